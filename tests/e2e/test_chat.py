"""A chat in the browser: by keyboard, with a model that hangs or answers nonsense, on a phone, in two tabs, read aloud."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django import Settings

from agents.chat import ask, begin_chat
from agents.kit.models import WorkerHeartbeat, owner_name
from agents.kit.work.worker import Worker
from agents.models import Channel, PersonaVersion, Run
from agents.turn.orchestrator import run_turn, work_one
from agents.turn.pipeline import Accept, Draft, Revise, Turn
from correction.behavior.work import work_one as read_one_request
from tests.agents.turn.playing import plays
from tests.console import HOSTILE, page_of
from tests.correction.behavior.asking import judge
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


class Watched:
    """A stage during which the test looks at the page: it runs in the test's thread, so nothing goes on meanwhile."""

    name = "watched"
    looks: ClassVar[dict[str, Callable[[], object]]] = {}

    def prepare(self, turn: Turn) -> None:
        if not turn.preview:  # the page asks for one, too
            self.looks["prepare"]()

    def review(self, turn: Turn, draft: Draft) -> Accept | Revise:
        attempt = "review again" if turn.revisions else "review"
        self.looks[attempt]()
        return Accept(draft) if turn.revisions else Revise(f"Shorter, please. {HOSTILE}")


@pytest.mark.parametrize("width", [1440, 390])
def test_steps_appear_while_the_turn_runs_and_are_folded_afterwards(
    visit: Callable[..., Visitor], operator: User, settings: Settings, width: int
) -> None:
    settings.TURN_PIPELINE = [f"{__name__}.Watched"]
    ada = make_agent(sample_lines=LINES)
    chat = begin_chat(ada, user=operator)
    visitor = visit(operator, page_of(chat, "chat"), width=width)
    page = visitor.page
    steps = page.locator(".pl-steps > li")

    def preparing() -> None:
        expect(steps.last).to_contain_text("watched running since")

    def reviewing() -> None:
        expect(steps.filter(has_text="asked the model")).to_have_count(1)
        expect(steps.last).to_contain_text("watched running since")
        assert visitor.faults() == []

    def reviewing_again() -> None:
        expect(steps.filter(has_text="sent back")).to_contain_text("Shorter, please.")
        expect(steps.filter(has_text="attempt 2")).to_have_count(1)

    Watched.looks = {"prepare": preparing, "review": reviewing, "review again": reviewing_again}
    page.get_by_label("Your message").fill("Good morning.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    assert work_one(owner=owner_name())
    expect(page.locator(".pl-by-agent")).to_have_count(1)
    expect(steps.first).to_be_hidden()
    page.get_by_text(re.compile(r"^\d+ steps")).click()
    expect(steps.filter(has_text="sent back")).to_be_visible()
    expect(page.get_by_role("link", name="the turn, with its prompt")).to_be_visible()
    assert visitor.faults() == []


def test_what_was_heard_as_a_request_is_undone_in_the_chat(
    visit: Callable[..., Visitor], operator: User, llm_server: LLMServer
) -> None:
    ada = make_agent()
    chat = begin_chat(ada, user=operator)
    page = visit(operator, page_of(chat, "chat"), width=390).page
    page.get_by_label("Your message").fill("Be shorter from now on.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("not read for requests yet")).to_be_visible()
    llm_server.respond = judge()
    assert read_one_request(owner=owner_name())
    expect(page.get_by_text("Heard as a request")).to_be_visible()
    expect(page.get_by_text("for you, in this conversation")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("behaves as before the request")).to_be_visible()
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    assert page.url.endswith(page_of(chat, "chat"))


def test_an_answer_is_made_a_test_that_can_be_copied(visit: Callable[..., Visitor], operator: User) -> None:
    ada = make_agent(sample_lines=LINES)
    chat = begin_chat(ada, user=operator)
    run_turn(ask(ada, chat, HOSTILE, user=operator), owner=owner_name())
    visitor = visit(operator, page_of(chat, "chat"), width=390, scheme="dark")
    page = visitor.page
    expect(page.get_by_role("link", name="Make this a rule")).to_be_visible()
    page.get_by_role("link", name="Make this a test").click()
    page.get_by_label("No answer says").fill("sorry")
    page.get_by_role("button", name="Update the test").click()
    expect(page.locator("pre")).to_contain_text("'contains_none': ['sorry']")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert "def test_chat_ada_1_2(" in page.evaluate("navigator.clipboard.readText()")
    assert visitor.faults() == []


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
