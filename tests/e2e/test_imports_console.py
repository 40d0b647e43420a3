"""Files are imported in the browser: uploaded, asked about, watched until they are done, and undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, Route, expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from agents.models import Import, Message
from tests.agents.transcripts.imports.uploading import lines, support_log, work
from tests.e2e.conftest import PASSWORD, Visitor
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_text(lines(("Ada", "No."), ("Guide", "Twenty minutes. Fog."), (HOSTILE, f"Is it late? {HOSTILE}")))
    return path


def upload(page: Page, *paths: Path) -> None:
    """Choose files; they are sent at once."""
    with page.expect_navigation():
        page.get_by_label("Files").set_input_files(paths)


def test_an_ordinary_file_takes_two_clicks(visit: Callable[..., Visitor], operator: User, talk: Path) -> None:
    make_agent()
    make_agent("guide", display_name="Harbour Guide")
    visitor = visit(operator, "/admin/agents/import/add/", width=390, scheme="dark")
    page = visitor.page
    assert visitor.faults() == []
    upload(page, talk)
    expect(page.get_by_text("3 messages, 1 conversation, 3 speakers")).to_be_visible()
    assert visitor.faults() == []
    page.get_by_role("button", name="Import 3 messages").click()
    expect(page.get_by_text("waits for a worker", exact=True)).to_be_visible()
    assert visitor.fits

    assert work()
    expect(page.get_by_text("imported", exact=True)).to_be_visible()  # without a reload
    expect(page.get_by_role("link", name="Harbour Guide").first).to_be_visible()
    assert visitor.faults() == []
    authors = list(Message.objects.order_by("position").values_list("agent__slug", "outsider"))
    assert authors == [("ada", ""), ("guide", ""), (None, HOSTILE)]

    visitor.open("/admin/agents/import/")
    expect(page.locator("#result_list .field-stored")).to_have_text("3")
    assert visitor.fits

    page.go_back()
    page.get_by_text("Undo …").click()
    assert visitor.fits
    page.get_by_role("button", name="Undo this import").click()
    expect(page.get_by_text("being undone", exact=True)).to_be_visible()
    assert work()
    expect(page.get_by_text("undone", exact=True)).to_be_visible()
    assert not Message.objects.exists()


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_one_question_at_a_time_is_asked_of_a_persona_and_a_log_uploaded_together(
    visit: Callable[..., Visitor], operator: User, tmp_path: Path, width: int, scheme: str
) -> None:
    make_agent()
    log, persona = tmp_path / "chat.csv", tmp_path / "nora.yaml"
    text = support_log().replace("nora", "Nora B")
    log.write_text(text.replace("this morning.", "this morning and is due at your door tomorrow before noon."))
    persona.write_text("slug: nora\ndisplay_name: Nora\nsystem_prompt: You are Nora.\n")
    visitor = visit(operator, "/admin/agents/import/add/", width=width, scheme=scheme)
    page = visitor.page
    upload(page, log, persona)
    assert visitor.faults() == []
    page.get_by_role("button", name="Import 1 persona").click()

    following = page.get_by_role("button", name="Next")
    expect(page.get_by_role("heading", name="Who is the bot?")).to_be_visible()
    expect(page.get_by_role("checkbox", name="Nora B")).to_be_checked()
    customer = page.locator("[name=answer][value='customer%203']")
    expect(customer).to_be_hidden()
    page.get_by_text("26 more speakers").click()
    expect(customer).to_be_visible()
    assert visitor.faults() == []
    following.click()
    expect(page.get_by_label("Which agent is Nora B?")).to_have_value("nora")
    assert visitor.faults() == []
    following.click()
    expect(page.get_by_role("radio", name="ticket")).to_be_checked()
    following.click()
    expect(page.get_by_role("checkbox", name="build").first).to_be_checked()
    page.get_by_role("link", name="Back", exact=True).click()
    expect(page.get_by_role("radio", name="ticket")).to_be_checked()
    following.click()
    following.click()
    expect(page.get_by_label("In which time zone")).to_have_value("UTC")
    assert visitor.faults() == []
    following.click()

    expect(page.get_by_label("Answers so far")).to_contain_text("Conversation: ticket")
    page.get_by_role("link", name="Change Tags").click()
    page.get_by_role("checkbox", name="build").first.uncheck()
    following.click()
    assert visitor.faults() == []
    page.get_by_role("button", name="Import 52 messages").click()
    assert work()
    expect(page.get_by_text("What was imported")).to_be_visible()
    assert visitor.faults() == []
    assert Message.objects.filter(agent__slug="nora", channel__slug="T3", tags={}).count() == 1


def test_a_file_chosen_before_the_page_has_its_script_is_sent_too(
    visit: Callable[..., Visitor], operator: User, talk: Path
) -> None:
    visitor = visit(operator, "/admin/agents/import/")
    page = visitor.page
    scripts: list[Route] = []
    page.route("**/kit/files*.js", lambda route: scripts.append(route))
    page.goto(f"{visitor.home}/admin/agents/import/add/", wait_until="commit")
    page.get_by_label("Files").set_input_files(talk)
    page.wait_for_function("document.readyState === 'interactive'")

    scripts.pop().continue_()

    expect(page.get_by_text("3 messages, 1 conversation, 3 speakers")).to_be_visible()


def test_files_that_are_too_large_are_not_even_sent(
    visit: Callable[..., Visitor], operator: User, talk: Path, settings: Settings
) -> None:
    settings.IMPORT_MOST_BYTES = 20
    visitor = visit(operator, "/admin/agents/import/add/")
    visitor.page.get_by_label("Files").set_input_files(talk)

    expect(visitor.page.get_by_role("alert")).to_have_text("These files are larger than 20 bytes together.")
    assert not Import.objects.exists()


def test_it_goes_without_scripts(chromium: Browser, live_server: LiveServer, operator: User, talk: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(live_server.url + "/admin/login/?next=/admin/agents/import/add/")
    page.get_by_label("Username").fill(operator.get_username())
    page.locator("[name=password]").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_label("Files").set_input_files(talk)
    page.get_by_role("button", name="Upload", exact=True).click()
    page.get_by_role("checkbox", name="Ada").check()
    page.get_by_role("button", name="Next").click()
    page.get_by_label("Which agent is").select_option(index=0)
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Import 3 messages").click()
    expect(page.get_by_text("waits for a worker", exact=True)).to_be_attached()
    assert work()
    page.reload()
    expect(page.get_by_text("What was imported")).to_be_attached()
    context.close()

    assert Message.objects.count() == 3
