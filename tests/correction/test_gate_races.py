"""Two processes at the same message: the offline judge, which runs in the calling thread, lets one act while the other waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from agents.llm import LLMRequest
from agents.models import Agent, Channel, Message
from correction.models import CorrectionLog
from tests.correction.gating import gated, logs, send
from tests.evaluation.judging import entry

meanwhile: list[Callable[[], Any]] = []


def respond(request: LLMRequest) -> dict[str, Any]:
    """Lets the other process act first, then judges: ``good`` is good, everything else is not."""
    if meanwhile:
        meanwhile.pop()()
    return entry(8 if "good" in request.facts["texts"][0] else 2)


@pytest.fixture
def agent_in_channel(settings: Settings) -> tuple[Agent, Channel]:
    settings.JUDGE_MODEL = "offline:test"
    settings.OFFLINE_RESPONDERS = {"score": "tests.correction.test_gate_races.respond"}
    meanwhile.clear()
    return gated("fluency")


def numbers(session: str) -> list[tuple[int, str]]:
    return [(log.attempt, log.outcome) for log in logs(session=session)]


@pytest.mark.django_db
def test_two_rejected_attempts_get_numbers_of_their_own(agent_in_channel: tuple[Agent, Channel]) -> None:
    agent, channel = agent_in_channel
    session = send(agent, channel, "one").session
    meanwhile.append(lambda: send(agent, channel, "theirs", session=session))
    ours = send(agent, channel, "ours", session=session)
    assert ours.session == session
    assert ours.feedback
    assert numbers(session) == [(1, "corrected"), (2, "corrected"), (3, "corrected")]
    assert [log.judged_text for log in logs()] == ["one", "theirs", "ours"]


@pytest.mark.django_db
def test_a_rejection_after_the_message_was_said_begins_a_session_of_its_own(
    agent_in_channel: tuple[Agent, Channel],
) -> None:
    agent, channel = agent_in_channel
    session = send(agent, channel, "one").session
    meanwhile.append(lambda: send(agent, channel, "good", session=session))
    ours = send(agent, channel, "ours", session=session)
    assert not ours.committed
    assert ours.session != session
    assert numbers(session) == [(1, "corrected"), (2, "passed_after_retry")]
    assert numbers(ours.session) == [(1, "corrected")]
    assert send(agent, channel, "good as well", session=ours.session).outcome == "passed_after_retry"


@pytest.mark.django_db
def test_two_attempts_that_pass_are_both_said_and_both_logged(agent_in_channel: tuple[Agent, Channel]) -> None:
    agent, channel = agent_in_channel
    session = send(agent, channel, "one").session
    meanwhile.append(lambda: send(agent, channel, "good: theirs", session=session))
    assert send(agent, channel, "good: ours", session=session).committed
    assert [m.text for m in Message.objects.order_by("position")] == ["good: theirs", "good: ours"]
    said = CorrectionLog.objects.filter(committed=True).order_by("pk")
    assert [(log.judged_text, log.message.text if log.message else "") for log in said] == [
        ("good: theirs", "good: theirs"),
        ("good: ours", "good: ours"),
    ]


@pytest.mark.django_db
def test_one_key_rejected_twice_at_once_gets_one_answer(agent_in_channel: tuple[Agent, Channel]) -> None:
    agent, channel = agent_in_channel
    theirs: list[str] = []
    meanwhile.append(lambda: theirs.append(send(agent, channel, "one", idempotency_key="k").session))
    ours = send(agent, channel, "one", idempotency_key="k")
    assert [ours.session] == theirs
    assert len(logs()) == 1


@pytest.mark.django_db
def test_one_key_accepted_twice_at_once_is_said_once(agent_in_channel: tuple[Agent, Channel]) -> None:
    agent, channel = agent_in_channel
    meanwhile.append(lambda: send(agent, channel, "good", idempotency_key="k"))
    assert send(agent, channel, "good", idempotency_key="k").committed
    assert Message.objects.count() == 1
    assert [(log.outcome, log.committed) for log in logs()] == [("passed", True)]
