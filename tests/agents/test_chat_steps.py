"""The steps of a turn on the page of a chat: shown as they happen, folded afterwards, and honest where something broke."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from agents.chat import ask, begin_chat
from agents.kit.models import owner_name
from agents.models import Agent, Channel, ChannelMember, Message, Run, RunMessage, RunStep
from agents.turn.orchestrator import run_turn, start_turn, work_one
from agents.turn.pipeline import Accept, Draft, Revise, Turn
from tests.console import HOSTILE, page_of, plain, read, signed_in, superuser
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db
HERE = f"{__name__}."


class Watching:
    """A stage in which somebody looks at what is stored of the turn, or stops its worker."""

    name = "watching"
    looks: ClassVar[list[Callable[[Turn, str], object]]] = []

    def prepare(self, turn: Turn) -> None:
        if turn.preview:  # the page says what a turn takes
            return
        for look in self.looks:
            look(turn, "prepare")

    def review(self, turn: Turn, draft: Draft) -> Accept:
        for look in self.looks:
            look(turn, "review")
        return Accept(draft)


class Picky:
    """A stage that sends the first draft back."""

    name = "picky"

    def review(self, turn: Turn, draft: Draft) -> Accept | Revise:
        if turn.revisions:
            return Accept(draft, "corrected")
        return Revise(f"Shorter, please. {HOSTILE}")


class Broken:
    name = "broken"

    def prepare(self, turn: Turn) -> None:
        raise RuntimeError(f"no such table {HOSTILE}")


@pytest.fixture
def ada() -> Agent:
    return make_agent(sample_lines=["Noted.", "Filed under B.", "As you wish."])


@pytest.fixture
def client() -> Client:
    return signed_in(superuser())


@pytest.fixture
def looks(settings: Settings) -> Any:
    """What happens in the stage, for one test."""
    settings.TURN_PIPELINE = [HERE + "Watching"]
    Watching.looks = []
    yield Watching.looks
    Watching.looks = []


def answered(run: Run) -> Run:
    return run_turn(run, owner=owner_name())


def test_stages_and_model_calls_are_shown_while_the_turn_runs(
    ada: Agent, client: Client, looks: list[Callable[[Turn, str], object]]
) -> None:
    chat = begin_chat(ada)
    seen: dict[str, str] = {}
    digests: dict[str, str] = {}

    def look(turn: Turn, phase: str) -> None:
        seen[phase] = plain(read(client, page_of(chat, "chat")))
        digests[phase] = client.get(page_of(chat, "chat") + "?progress=1").json()["seen"]

    looks.append(look)
    answered(ask(ada, chat, "Hello"))
    assert "watching running since" in seen["prepare"]
    assert "asked the model" not in seen["prepare"]
    assert "asked the model" in seen["review"]
    assert "watching running since" in seen["review"]
    assert digests["prepare"] != digests["review"]  # the page asks, and shows it
    after = plain(read(client, page_of(chat, "chat")))
    assert "running" not in after
    assert "watching" in after


def test_while_the_model_thinks_the_page_says_so(ada: Agent, client: Client) -> None:
    chat = begin_chat(ada)
    run = ask(ada, chat, "Hello")
    assert run.acquire(owner=owner_name(), lease=timedelta(minutes=1))
    assert "preparing running" in plain(read(client, page_of(chat, "chat")))
    RunMessage.objects.create(run=run, number=1, role="user", content={})
    assert "asking the model running" in plain(read(client, page_of(chat, "chat")))
    sent_back = {"tool": "send_message", "committed": False, "feedback": "Shorter, please.", "stages": []}
    step = RunStep.objects.create(run=run, number=1, kind="tool_call", detail=sent_back, duration_ms=3)
    RunMessage.objects.create(run=run, number=2, role="tool", content={}, step=step)
    html = plain(read(client, page_of(chat, "chat")))
    assert "asking the model, attempt 2 running" in html
    assert "Shorter, please." in html


def test_a_draft_that_was_sent_back_shows_its_feedback_and_the_second_attempt(
    ada: Agent, client: Client, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Picky"]
    chat = begin_chat(ada)
    run = answered(ask(ada, chat, "Hello"))
    html = read(client, page_of(chat, "chat"))
    text = plain(html)
    for what in ("draft sent back", "Shorter, please.", "asked the model, attempt 2", "sent corrected"):
        assert what in text
    assert HOSTILE not in html
    assert f'<details class="pl-more" id="steps-{run.pk}">' in html  # folded
    assert page_of(run) in html


def test_a_stage_that_failed_is_named_with_its_error(ada: Agent, client: Client, settings: Settings) -> None:
    settings.TURN_PIPELINE = [HERE + "Broken"]
    chat = begin_chat(ada)
    answered(ask(ada, chat, "Hello"))
    html = read(client, page_of(chat, "chat"))
    assert "broken failed" in plain(html)
    assert "no such table" in plain(html)
    assert HOSTILE not in html


def test_a_turn_whose_worker_was_killed_is_interrupted_there_until_another_ends_it(
    ada: Agent, client: Client, looks: list[Callable[[Turn, str], object]]
) -> None:
    chat = begin_chat(ada)
    run = ask(ada, chat, "Hello")

    def killed(turn: Turn, phase: str) -> None:
        if phase == "review":
            # As a process that is killed leaves it: the row says that it runs, and nobody renews the lease.
            Run.objects.filter(pk=run.pk).update(lease_owner="elsewhere:1:dead", lease_expires_at=timezone.now())
            raise SystemExit

    looks.append(killed)
    with pytest.raises(SystemExit):
        answered(run)
    text = plain(read(client, page_of(chat, "chat")))
    assert "watching interrupted" in text
    assert "another one goes on" in text

    looks.clear()
    assert work_one(owner=owner_name())
    run.refresh_from_db()
    assert run.status == Run.Status.COMPLETED
    text = plain(read(client, page_of(chat, "chat")))
    assert "watching interrupted" in text
    assert "sent" in text


def test_a_turn_that_ended_with_its_worker_shows_no_stage_as_running(ada: Agent, client: Client) -> None:
    chat = begin_chat(ada)
    run = ask(ada, chat, "Hello")
    trace = [{"stage": "gate", "phase": "review", "status": "running", "ms": 0.0}]
    Run.objects.filter(pk=run.pk).update(status="errored", error="lost three workers", trace=trace)
    text = plain(read(client, page_of(chat, "chat")))
    assert "gate interrupted" in text
    assert "gate running" not in text


def test_turns_that_nobody_watches_are_not_stored_stage_by_stage(
    ada: Agent, looks: list[Callable[[Turn, str], object]]
) -> None:
    desk = make_channel("desk", kind=Channel.Kind.DM)
    ChannelMember.objects.create(channel=desk, agent=ada)
    stored = []
    looks.append(lambda turn, phase: stored.append(Run.objects.get().trace) if phase == "prepare" else None)
    message = Message.objects.create(channel=desk, position=1, outsider="Zed", text="Hello")
    answered(start_turn(agent=ada, channel=desk, trigger=message))
    assert stored == [[]]
