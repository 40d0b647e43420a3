"""A transcript is imported in the browser: uploaded, its speakers chosen, watched until it is done, and undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from agents.models import Import, Message
from tests.agents.transcripts.imports.uploading import lines, work
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
    page.get_by_label("Files").set_input_files(paths)
    page.get_by_role("button", name="Upload a transcript", exact=True).click()


def test_a_transcript_is_imported(visit: Callable[..., Visitor], operator: User, talk: Path) -> None:
    make_agent()
    make_agent("guide", display_name="Harbour Guide")
    visitor = visit(operator, "/admin/agents/import/add/", width=390, scheme="dark")
    page = visitor.page
    assert visitor.fits
    upload(page, talk)
    expect(page.get_by_text("3 new messages by 3 speakers into 1 channel")).to_be_visible()
    assert visitor.fits

    which = page.get_by_label("Guide: agent")
    expect(which).to_be_hidden()
    page.get_by_label("Guide: who it is").select_option(label="an agent …")
    which.fill("guide")
    assert visitor.fits
    page.get_by_role("button", name="Update the preview").click()
    expect(page.get_by_text("now: agent guide")).to_be_visible()
    page.get_by_role("button", name="Import 3 messages").click()
    expect(page.get_by_text("waits for a worker", exact=True)).to_be_visible()
    assert visitor.fits

    assert work()
    expect(page.get_by_text("imported", exact=True)).to_be_visible()  # without a reload
    expect(page.get_by_role("link", name="Harbour Guide").first).to_be_visible()
    assert visitor.fits
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


def test_files_that_are_too_large_are_not_even_sent(
    visit: Callable[..., Visitor], operator: User, talk: Path, settings: Settings
) -> None:
    settings.IMPORT_MOST_BYTES = 20
    visitor = visit(operator, "/admin/agents/import/add/")
    upload(visitor.page, talk)

    expect(visitor.page.get_by_role("alert")).to_have_text("These files are larger than 20 bytes together.")
    assert not Import.objects.exists()


def test_it_goes_without_scripts(chromium: Browser, live_server: LiveServer, operator: User, talk: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(live_server.url + "/admin/login/?next=/admin/agents/import/add/")
    page.get_by_label("Username").fill(operator.get_username())
    page.locator("[name=password]").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    upload(page, talk)
    page.get_by_role("button", name="Import 3 messages").click()
    expect(page.get_by_text("waits for a worker", exact=True)).to_be_attached()
    assert work()
    page.reload()
    expect(page.get_by_text("What was imported")).to_be_attached()
    context.close()

    assert Message.objects.count() == 3
