"""A chat in the browser: by keyboard, with a model that hangs or answers nonsense, on a phone, in two tabs, read aloud."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django import Settings

from agents.chat import ask, begin_chat
from agents.kit.models import WorkerHeartbeat, owner_name
from agents.kit.work.worker import Worker
from agents.models import Channel, PersonaVersion, Run
from agents.turn.orchestrator import run_turn, work_one
from tests.agents.turn.playing import plays
from tests.console import HOSTILE, page_of
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
LINES = ["Noted.", "Filed under B.", "As you wish."]


def speech(channel: Channel, text: str) -> tuple[str, dict[str, str]]:
    return ("send_message", {"channel": channel.slug, "text": text})


def test_a_person_talks_by_keyboard_and_hears_the_answer(visit: Callable[..., Visitor], operator: User) -> None:
    ada = make_agent(sample_lines=LINES)
    visitor = visit(operator, page_of(ada))
    page = visitor.page
    page.get_by_role("link", name="Chat", exact=True).click()
    assert grave_faults(page) == []
    page.get_by_label("Gate").select_option("enforce")
    box = page.get_by_role("textbox", name="Your message")
    box.press_sequentially("Good morning.")
    box.press("Shift+Enter")
    box.press_sequentially(HOSTILE)
    box.press("Enter")
    expect(page.get_by_text("none is running")).to_be_visible()
    expect(page.locator(".pl-said > .pl-text")).to_have_text(f"Good morning.\n{HOSTILE}")
    Worker(WorkerHeartbeat.Kind.WORK, {}).beat()
    expect(page.get_by_text("It waits for a worker.")).to_be_visible()

    assert work_one(owner=owner_name())
    answer = page.locator(".pl-by-agent .pl-said > .pl-text")  # appears without a reload
    expect(answer).to_have_count(1)
    expect(page.get_by_role("status").filter(has_text="Ada: ")).to_have_text(f"Ada: {answer.text_content()}")
    expect(page.locator(".pl-by-agent .pl-gate-note")).to_have_count(1)
    expect(page.get_by_text("Stages of the last turn")).to_be_visible()
    assert grave_faults(page) == []

    expect(page.get_by_label("Gate")).to_have_value("enforce")
    second = visitor.page.context.new_page()  # another tab at the same chat
    second.goto(page.url)
    box.fill("And now?")
    box.press("Enter")
    expect(box).to_have_value("")
    expect(box).to_be_focused()
    expect(second.get_by_text("And now?")).to_be_visible()
    box.fill("")
    box.press("Enter")  # an empty message goes nowhere
    assert work_one(owner=owner_name())
    for tab in (page, second):
        expect(tab.locator(".pl-by-agent")).to_have_count(2)
    assert Run.objects.count() == 2


def test_a_model_that_hangs_or_talks_nonsense_is_named_and_asked_again(
    visit: Callable[..., Visitor], operator: User, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_STEP_DEADLINE = 1.0
    ada = make_agent()
    chat = begin_chat(ada, user=operator)
    visitor = visit(operator, page_of(chat, "chat"), width=390, scheme="dark")
    page = visitor.page
    page.get_by_label("Your message").fill("Hello?")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()

    llm_server.reply(hang=True)
    assert work_one(owner=owner_name())
    expect(page.locator(".pl-turn-failed")).to_contain_text("the model call failed: timeout")
    assert visitor.faults() == []
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()

    llm_server.reply(tool_calls=[{"type": "tool_use", "id": "a", "name": "send_message", "input": "no object"}])
    llm_server.reply(tool_calls=[{"type": "tool_use", "id": "b", "name": "send_message", "input": "no object"}])
    assert work_one(owner=owner_name())
    expect(page.locator(".pl-turn-failed").last).to_contain_text("the model call failed: malformed")
    page.get_by_role("button", name="Try again").last.click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()

    plays(llm_server, speech(chat, "At last."), "Done.")
    assert work_one(owner=owner_name())
    expect(page.locator(".pl-by-agent .pl-said > .pl-text")).to_have_text("At last.")
    assert visitor.fits
    composer = page.locator("#chat-compose").bounding_box()
    assert composer is not None
    assert composer["y"] + composer["height"] <= 900  # in sight


def test_an_edited_persona_is_asked_the_question_again_and_then_saved(
    visit: Callable[..., Visitor], operator: User, llm_server: LLMServer
) -> None:
    ada = make_agent()
    chat = begin_chat(ada, user=operator)
    plays(llm_server, speech(chat, "No."), "Done.")
    run_turn(ask(ada, chat, "May I come in?", user=operator), owner=owner_name())
    visitor = visit(operator, page_of(chat, "chat"))
    page = visitor.page
    page.get_by_role("link", name="say it again with an edited persona").click()
    assert grave_faults(page) == []
    page.get_by_label("System prompt").fill("You are Ada, glad of every guest.")
    page.get_by_role("button", name="Say it again").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()

    plays(llm_server, speech(Channel.objects.latest("pk"), "Gladly!"), "Done.")
    assert work_one(owner=owner_name())
    expect(page.get_by_role("region", name="The answer").get_by_text("No.", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="With the edited persona").get_by_text("Gladly!")).to_be_visible()
    assert grave_faults(page) == []
    page.get_by_text("Save as a new version …").click()
    page.get_by_role("button", name="Save as a new version").click()
    expect(page.get_by_text("Version 2 is saved")).to_be_visible()
    assert PersonaVersion.objects.latest("number").note == "edited in a chat"
    assert [message.text for message in chat.messages.order_by("position")] == ["May I come in?", "No."]
