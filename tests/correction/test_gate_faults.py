"""A judge that hangs, refuses or is full holds nothing back: what could not be judged passes, and the log says so."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from agents.kit.llm import Label, LLMRequest, Reply, Status, complete_many
from agents.kit.llm.loop import Clients
from agents.kit.llm.providers.base import Route
from agents.kit.llm.requests import Block, Turn
from agents.kit.models import LLMCall
from agents.models import Agent, Channel, Message
from correction.config.configure import notes_on
from correction.config.settings import resolve_config
from correction.gate.results import PropositionResult, combine, read_judge_reply
from evaluation.judge.questions import Question
from tests.correction.gating import DIMENSIONS, gated, judge, logs, outcomes, scores, send, team_file
from tests.declaring import declare
from tests.evaluation.judging import CONTEXT, LABEL, claim, entry
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

HANG = {"hang": True}
SHORT: dict[str, Any] = {"gate_deadline_seconds": Decimal("3")}  # with room for a busy machine


def statuses(**where: Any) -> dict[str, str]:
    return {r.dimension: r.status for log in logs(**where) for r in log.dimension_results.all()}


@pytest.mark.slow
def test_when_every_dimension_hangs_the_message_is_said_after_one_deadline(llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS, **SHORT)
    llm_server.always(hang=True)
    result = send(agent, channel, "I filed it.")
    assert (result.committed, result.outcome) == (True, "timeout_passed")
    assert llm_server.calls == llm_server.peak_inflight == 3  # side by side, so one deadline is all it takes
    assert statuses() == dict.fromkeys(DIMENSIONS, "timeout")
    assert scores(logs()[0]) == dict.fromkeys(DIMENSIONS, None)
    assert [c.status for c in LLMCall.objects.all()] == ["timeout"] * 3


def test_a_dimension_that_hangs_does_not_cost_the_others_their_verdict(llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS, **SHORT)
    llm_server.respond = judge({"adherence": HANG, "consistency": 2, "fluency": 8})
    result = send(agent, channel, "I filed it.")
    assert result.outcome == "corrected"
    assert statuses() == {"adherence": "timeout", "consistency": "scored", "fluency": "scored"}
    assert "Self-consistency: 2 of 9" in result.feedback
    assert "adherence" not in result.feedback.lower()


@pytest.mark.parametrize(
    "fault", [{"status": 529}, {"text": "seven, I would say"}, {"stop_reason": "refusal"}], ids=str
)
def test_a_judge_that_fails_is_asked_once_and_lets_pass(llm_server: LLMServer, fault: dict[str, Any]) -> None:
    agent, channel = gated("consistency")
    llm_server.always(**fault)
    result = send(agent, channel, "I filed it.")
    assert (result.committed, result.outcome) == (True, "error_passed")
    assert llm_server.calls == 1
    (row,) = logs()[0].dimension_results.all()
    assert (row.status, row.score, row.passed) == ("error", None, True)
    assert row.reason


@pytest.mark.slow
def test_a_timeout_outranks_an_error_in_the_outcome(llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS, **SHORT)
    llm_server.respond = judge({"adherence": {"status": 529}, "consistency": HANG, "fluency": 8})
    assert send(agent, channel, "I filed it.").outcome == "timeout_passed"
    assert statuses() == {"adherence": "error", "consistency": "timeout", "fluency": "scored"}


def requests_that_wait(number: int) -> list[LLMRequest]:
    return [
        LLMRequest(
            role="judge", task="score", system=(), turns=(Turn("user", (Block(f"hold {n}"),)),), label=Label(purpose="x")
        )
        for n in range(number)
    ]  # fmt: skip


def test_an_evaluation_that_fills_every_slot_does_not_starve_the_gate(
    llm_server: LLMServer, settings: Settings
) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 2, 2
    agent, channel = gated("consistency", "fluency")
    verdict = judge({"consistency": 8, "fluency": 2})
    sent: list[bool] = []

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        held = "hold" in str(body["messages"])
        return {"hold": True} if held else verdict(body)

    llm_server.respond = respond

    def more() -> Any:
        waiting = requests_that_wait(6)
        yield from waiting[:3]
        assert llm_server.wait_until(lambda: llm_server.inflight == 2)  # both ordinary slots, a third call waits
        sent.append(send(agent, channel, "I filed it.").committed)
        llm_server.release()
        yield from waiting[3:]

    assert len(list(complete_many(more(), deadline=20))) == 6
    assert sent == [False]
    assert outcomes() == ["corrected"]


@pytest.mark.slow
def test_without_a_free_slot_in_time_the_draft_passes_as_overloaded(llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 1, 0
    agent, channel = gated("consistency", **SHORT)
    llm_server.always(hold=True)
    result = []

    def more() -> Any:
        yield from requests_that_wait(1)
        assert llm_server.wait_until(lambda: llm_server.inflight == 1)
        result.append(send(agent, channel, "I filed it."))
        llm_server.release()

    # The generator is asked for a second request only while the first is in flight.
    assert len(list(complete_many(more(), deadline=20))) == 1
    assert result[0].outcome == "overload_passed"
    assert statuses() == {"consistency": "overload"}


def test_earlier_attempts_use_up_the_time_for_judging(llm_server: LLMServer) -> None:
    agent, channel = gated("consistency", gate_total_deadline_seconds=Decimal("4"), gate_deadline_seconds=Decimal("4"))
    llm_server.respond = judge({"consistency": 2})
    first = send(agent, channel, "I filed it.")
    log = logs()[0]
    log.duration_ms = 4000
    log.save()
    calls = llm_server.calls
    second = send(agent, channel, "Filed.", session=first.session)
    assert (second.outcome, second.text) == ("timeout_passed", "Filed.")
    assert llm_server.calls == calls
    assert "used up by earlier attempts" in logs()[1].dimension_results.get().reason


@pytest.mark.slow
def test_start_up_work_does_not_use_up_a_session_s_time(llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, channel = gated("consistency")
    llm_server.respond = judge({"consistency": 2})
    get = Clients.get

    def slowly(clients: Clients, route: Route, **how: Any) -> Any:
        Event().wait(2)  # as importing the SDK takes on a busy machine
        return get(clients, route, **how)

    monkeypatch.setattr(Clients, "get", slowly)
    send(agent, channel, "I filed it.")
    (call,) = LLMCall.objects.all()
    assert logs()[0].duration_ms - call.latency_ms < 1500


def test_with_a_used_up_budget_only_rules_are_checked(
    llm_server: LLMServer, tmp_path: Path, settings: Settings
) -> None:
    team_file(settings, tmp_path, "adherence/ada.yaml", "rule: {max_words: 4}")
    agent, channel = gated("adherence", budget_enabled=True, daily_budget_usd=Decimal(0))
    passed = send(agent, channel, "Short.")
    assert passed.outcome == "budget_passed"
    assert not send(agent, channel, "This is by far too long for Ada.").committed
    assert llm_server.calls == 0


def test_a_proposition_file_that_cannot_be_used_lets_pass_as_an_error(
    llm_server: LLMServer, tmp_path: Path, settings: Settings
) -> None:
    agent, channel = gated(*DIMENSIONS)
    team_file(settings, tmp_path, "adherence/ada.yaml", "rule: {max_wrods: 4}")
    assert send(agent, channel, "I filed it.").outcome == "error_passed"
    assert "max_wrods" in logs()[0].dimension_results.first().reason  # type: ignore[union-attr]
    (note,) = notes_on(resolve_config(agent), agent)
    assert "max_wrods" in note  # said before anything passes


def test_a_crashing_gate_lets_the_message_through_visibly(llm_server: LLMServer, settings: Settings) -> None:
    agent, channel = gated("adherence")
    settings.LLM_MAX_CONCURRENCY = "many"  # as a broken deployment has it
    result = send(agent, channel, "I filed it.")
    assert result.committed
    assert Message.objects.get().text == "I filed it."
    (entry,) = [e for e in result.trace if e.stage == "gate" and e.phase == "review"]
    assert entry.status == "failed"


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(status=Status.TIMEOUT, attempts=1), "timeout"),
        (Reply(status=Status.TIMEOUT, attempts=0), "overload"),
        (Reply(status=Status.RATE_LIMITED), "error"),
        (Reply(status=Status.MALFORMED), "error"),
    ],
)
def test_replies_are_told_apart(reply: Reply, status: str) -> None:
    question = Question(propositions=(claim(),), context=CONTEXT, label=LABEL)
    assert [part.status for part in read_judge_reply(question, reply)] == [status]


def part(status: Any, score: float | None = None, judge: str = "m") -> PropositionResult:
    return PropositionResult(id="p", judge=judge, status=status, score=score)


@pytest.mark.parametrize(
    ("judged", "own", "status", "score", "passed"),
    [
        ([part("scored", 8)], [], "scored", 8, True),
        ([part("scored", 8)], [part("scored", 4)], "scored", 4, False),
        ([part("timeout")], [part("scored", 9, "rule")], "timeout", None, True),
        ([part("timeout")], [part("scored", 0, "rule")], "scored", 0, False),
        ([part("unscored")], [part("scored", 9, "rule")], "scored", 9, True),
        ([part("unscored")], [], "unscored", None, True),
        ([part("trivial", 9)], [], "trivial", 9, True),
        ([part("trivial", 9)], [part("unscored")], "trivial", 9, True),
        ([part("scored", 8), part("error")], [], "error", None, True),
        ([part("budget")], [], "budget", None, True),
        ([], [], "unscored", None, True),
    ],
)
def test_what_counts_for_a_dimension(
    judged: list[PropositionResult], own: list[PropositionResult], status: str, score: float | None, passed: bool
) -> None:
    check = combine(dimension="adherence", threshold=Decimal(5), judged=judged, own=own)
    assert (check.status, check.score, check.passed) == (status, score, passed)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.1, 1 / 3, 0.7, 1, 3])), min_size=1, max_size=6),
    st.integers(0, 90),
)
def test_the_score_that_is_stored_and_the_verdict_agree(rated: list[tuple[int, float]], tenths: int) -> None:
    judged = [
        PropositionResult(id="p", judge="m", status="scored", score=score, weight=weight) for score, weight in rated
    ]
    check = combine(dimension="fluency", threshold=Decimal(tenths) / 10, judged=judged)
    assert check.score is not None
    assert check.passed == (check.score >= check.threshold)


meanwhile: list[Callable[[], Any]] = []


def respond(request: LLMRequest) -> dict[str, Any]:
    """Lets the other process act first, then judges: ``good`` is good, everything else is not."""
    if meanwhile:
        meanwhile.pop()()
    return entry(8 if "good" in request.facts["texts"][0] else 2)


@pytest.fixture
def agent_in_channel(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> tuple[Agent, Channel]:
    settings.JUDGE_MODEL = "offline:test"
    declare(monkeypatch, "offline_responders", {"score": "tests.correction.test_gate_faults.respond"})
    meanwhile.clear()
    return gated("fluency")


def numbers(session: str) -> list[tuple[int, str]]:
    return [(log.attempt, log.outcome) for log in logs(session__uuid=session)]


def test_two_rejected_attempts_get_numbers_of_their_own(agent_in_channel: tuple[Agent, Channel]) -> None:
    agent, channel = agent_in_channel
    session = send(agent, channel, "one").session
    meanwhile.append(lambda: send(agent, channel, "theirs", session=session))
    ours = send(agent, channel, "ours", session=session)
    assert ours.session == session
    assert ours.feedback
    assert numbers(session) == [(1, "corrected"), (2, "corrected"), (3, "corrected")]
    assert [log.judged_text for log in logs()] == ["one", "theirs", "ours"]


def test_a_rejection_after_the_message_was_sent_begins_a_new_session(agent_in_channel: tuple[Agent, Channel]) -> None:
    agent, channel = agent_in_channel
    session = send(agent, channel, "one").session
    meanwhile.append(lambda: send(agent, channel, "good", session=session))
    ours = send(agent, channel, "ours", session=session)
    assert not ours.committed
    assert ours.session != session
    assert numbers(session) == [(1, "corrected"), (2, "passed_after_retry")]
    assert numbers(ours.session) == [(1, "corrected")]
    assert send(agent, channel, "good as well", session=ours.session).outcome == "passed_after_retry"


def test_two_attempts_that_pass_are_both_said_and_both_logged(agent_in_channel: tuple[Agent, Channel]) -> None:
    agent, channel = agent_in_channel
    session = send(agent, channel, "one").session
    meanwhile.append(lambda: send(agent, channel, "good: theirs", session=session))
    assert send(agent, channel, "good: ours", session=session).committed
    assert [m.text for m in Message.objects.order_by("position")] == ["good: theirs", "good: ours"]
    said = [log for log in logs() if log.committed]
    assert [(log.judged_text, log.session.message.text if log.session.message else "") for log in said] == [
        ("good: theirs", "good: theirs"),
        ("good: ours", "good: ours"),
    ]


def test_one_key_rejected_twice_at_once_gets_one_answer(agent_in_channel: tuple[Agent, Channel]) -> None:
    agent, channel = agent_in_channel
    theirs: list[str] = []
    meanwhile.append(lambda: theirs.append(send(agent, channel, "one", idempotency_key="k").session))
    ours = send(agent, channel, "one", idempotency_key="k")
    assert [ours.session] == theirs
    assert len(logs()) == 1


def test_one_key_accepted_twice_at_once_is_said_once(agent_in_channel: tuple[Agent, Channel]) -> None:
    agent, channel = agent_in_channel
    meanwhile.append(lambda: send(agent, channel, "good", idempotency_key="k"))
    assert send(agent, channel, "good", idempotency_key="k").committed
    assert Message.objects.count() == 1
    assert [(log.outcome, log.committed) for log in logs()] == [("passed", True)]
