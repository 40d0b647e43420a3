"""The attempts at one message: feedback, retries, and what continues a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.models import Message, Run
from agents.turn.pipeline import pipeline
from correction.gate.results import scores_of
from correction.gate.sessions import best_attempt, check_session
from correction.models import CorrectionLog, GateDimensionResult
from tests.correction.gating import DIMENSIONS, by_text, configure, gated, join, judge, logs, outcomes, send, turn_of
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def test_a_draft_that_fails_is_sent_back_and_its_retry_passes(llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS)
    llm_server.respond = judge(lambda d, tail: 2 if d != "consistency" and "synergy" in tail else 8)
    first = send(agent, channel, "Leverage the synergy!")
    assert (first.committed, first.outcome) == (False, "corrected")
    assert Message.objects.count() == 0
    explained = (
        "Persona adherence: 2 of 9, at least 5.0",
        "> adherence was looked at",
        "Fluency: 2 of 9",
        "> Leverage the synergy!",
    )
    assert [words for words in explained if words not in first.feedback] == []
    assert "Self-consistency" not in first.feedback
    assert logs()[0].feedback == first.feedback
    second = send(agent, channel, "I filed it.", session=first.session)
    assert (second.committed, second.outcome) == (True, "passed_after_retry")
    assert [(log.attempt, log.committed, log.session.message) for log in logs()] == [
        (1, False, second.message),
        (2, True, second.message),
    ]
    assert len({log.session_id for log in logs()}) == 1


def test_feedback_gets_more_radical_with_each_attempt(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency", max_correction_attempts=4)
    llm_server.respond = judge({"fluency": 2})
    session, answer = "", []
    for number in range(4):
        result = send(agent, channel, f"Draft {number}", session=session)
        session = result.session
        answer.append(result.feedback.partition("### What to do now")[2])
    assert len(set(answer)) == 4


def test_after_two_retries_the_best_attempt_is_said_and_not_the_last(llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS)
    llm_server.respond = by_text(one=1, two=4, three=3)
    first = send(agent, channel, "one", payload={"n": 1})
    second = send(agent, channel, "two", session=first.session, payload={"n": 2})
    third = send(agent, channel, "three", session=second.session, payload={"n": 3})
    assert (third.outcome, third.text) == ("forced_through", "two")
    message = Message.objects.get()
    assert (message.text, message.payload) == ("two", {"n": 2})
    assert outcomes() == ["corrected", "corrected", "forced_through"]
    assert [log.committed for log in logs()] == [False, True, False]
    assert {log.session.message for log in logs()} == {message}
    assert llm_server.calls == 9
    assert third.reports["gate"]["best"] == 2


def test_the_same_key_is_not_judged_twice(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    first = send(agent, channel, "one", idempotency_key="k")
    again = send(agent, channel, "one", idempotency_key="k")
    assert llm_server.calls == 1
    assert len(logs()) == 1
    assert (again.feedback, again.session, again.outcome) == (first.feedback, first.session, "corrected")
    assert again.reports["gate"] == first.reports["gate"]


def test_another_draft_under_the_same_key_is_judged_and_said_once(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = by_text(bad=2, good=8)
    first = send(agent, channel, "bad", idempotency_key="k")
    second = send(agent, channel, "good", session=first.session, idempotency_key="k")
    assert (second.outcome, second.text) == ("passed_after_retry", "good")
    assert send(agent, channel, "good", idempotency_key="k").message == second.message
    assert Message.objects.count() == 1


def test_a_key_of_another_agents_draft_gives_nothing_away(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    bob, _ = gated("fluency", slug="bob")
    llm_server.respond = judge({"fluency": 2})
    send(agent, channel, "my secret", idempotency_key="k")
    result = send(bob, channel, "hello", idempotency_key="k")
    assert "secret" not in result.feedback
    assert [log.draft_key for log in logs()] == ["k", None]


@pytest.mark.parametrize("session", ["nonsense", "00000000-0000-0000-0000-000000000000"])
def test_a_session_that_cannot_be_continued_begins_a_new_one(llm_server: LLMServer, session: str) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 8})
    result = send(agent, channel, "one", session=session)
    assert result.outcome == "passed"
    assert "a new session was begun" in next(e.why for e in result.trace if e.phase == "review" and e.stage == "gate")


def test_a_session_is_of_one_agent_one_channel_and_one_message(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    bob, elsewhere = make_agent("bob"), make_channel("kitchen")
    join(agent, elsewhere)
    llm_server.respond = judge(lambda d, tail: 8 if "good" in tail else 2)
    session = send(agent, channel, "one").session
    assert check_session(session=session, agent=agent, channel=channel).next_number == 2
    unknown = "00000000-0000-0000-0000-000000000000"
    for problem, *values in (
        ("another agent", session, bob, channel),
        ("another channel", session, agent, elsewhere),
        ("not a session id", "x", agent, channel),
        ("not known", unknown, agent, channel),
    ):
        with pytest.raises(ValueError, match=problem):
            check_session(**dict(zip(("session", "agent", "channel"), values, strict=True)))  # type: ignore[arg-type]
    send(agent, channel, "good", session=session)
    with pytest.raises(ValueError, match="is closed"):
        check_session(session=session, agent=agent, channel=channel)


def test_a_turn_that_ends_after_a_rejection_says_the_best_attempt(llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS)
    kitchen = join(agent, make_channel("kitchen"))
    llm_server.respond = by_text(one=4, two=2, there=1)
    turn = turn_of(agent, channel)
    send(agent, channel, "one", turn=turn)
    send(agent, channel, "two", turn=turn)
    send(agent, kitchen, "there", turn=turn)
    pipeline().finish(turn)
    assert {(m.channel.slug, m.text) for m in Message.objects.all()} == {("office", "one"), ("kitchen", "there")}
    assert outcomes() == ["corrected", "forced_through", "forced_through"]
    assert [log.committed for log in logs()] == [True, False, True]
    pipeline().finish(turn)
    assert Message.objects.count() == 2


def test_an_agent_may_give_a_message_up(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    turn = turn_of(agent, channel)
    send(agent, channel, "one", turn=turn)
    turn.abandoned = True
    pipeline().finish(turn)
    assert Message.objects.count() == 0
    assert outcomes() == ["abandoned"]


def test_a_run_taken_up_again_ends_what_its_first_claim_left_open(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    run = Run.objects.create(agent=agent, channel=channel)
    send(agent, channel, "one", turn=turn_of(agent, channel, run), run=run)
    run.attempt = 2
    pipeline().finish(turn_of(agent, channel, run))
    assert Message.objects.get().text == "one"
    pipeline().finish(turn_of(agent, channel, run))
    assert Message.objects.count() == 1


def test_what_the_pipelines_own_cap_lets_through_closes_the_session(llm_server: LLMServer, settings: Any) -> None:
    settings.TURN_MAX_REVISIONS = 1
    agent, channel = gated("fluency", max_correction_attempts=9)
    llm_server.respond = judge({"fluency": 2})
    turn = turn_of(agent, channel)
    send(agent, channel, "one", turn=turn)
    result = send(agent, channel, "two", turn=turn)
    assert result.committed
    assert outcomes() == ["corrected", "forced_through"]
    assert [(log.committed, log.session.message) for log in logs()] == [(False, result.message), (True, result.message)]


def test_a_gate_switched_off_between_two_leases_sends_no_rejected_draft(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    run = Run.objects.create(agent=agent, channel=channel)
    session = send(agent, channel, "one", turn=turn_of(agent, channel, run), run=run).session
    configure(agent, gate_mode="off")
    run.attempt, turn = 2, turn_of(agent, channel, run)
    message = send(agent, channel, "two", turn=turn, run=run, session=session).message
    pipeline().finish(turn)
    assert [m.text for m in Message.objects.all()] == ["two"]
    assert [(log.outcome, log.committed, log.session.message) for log in logs()] == [("corrected", False, message)]


def test_a_first_draft_sent_after_all_is_the_attempt_sent(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    session = send(agent, channel, "one").session
    send(agent, channel, "two", session=session)
    configure(agent, gate_mode="off")
    message = send(agent, channel, "one", session=session).message
    assert [(log.committed, log.session.message) for log in logs()] == [(True, message), (False, message)]


def test_a_gate_that_breaks_does_not_log_the_rejected_draft_as_sent(llm_server: LLMServer, settings: Any) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    turn = turn_of(agent, channel)
    send(agent, channel, "one", turn=turn)
    settings.LLM_MAX_CONCURRENCY = "many"  # as a broken deployment has it
    message = send(agent, channel, "two", turn=turn).message
    assert message is not None
    assert [(log.judged_text, log.committed, log.session.message) for log in logs()] == [("one", False, message)]
    pipeline().finish(turn)
    assert Message.objects.get() == message


def attempts(*scores: Mapping[str, float]) -> list[CorrectionLog]:
    logs = [CorrectionLog(attempt=number) for number in range(1, len(scores) + 1)]
    for log, of_log in zip(logs, scores, strict=True):
        log.results = tuple(GateDimensionResult(dimension=d, score=s, status="scored") for d, s in of_log.items())
    return logs


def test_a_dimension_that_was_not_judged_everywhere_does_not_decide() -> None:
    assert best_attempt(attempts({"a": 4}, {"a": 3, "b": 4, "c": 4})).attempt == 1
    assert best_attempt(attempts({"a": 6}, {"b": 2, "c": 3})).attempt == 1
    assert best_attempt(attempts({}, {"a": 0})).attempt == 2
    assert best_attempt(attempts({}, {})).attempt == 2
    with pytest.raises(ValueError, match="no attempt"):
        best_attempt([])


SCORES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9).map(float))


@given(st.lists(SCORES, min_size=1, max_size=6))
def test_no_attempt_beats_the_best_on_what_all_have(given_scores: list[dict[str, float]]) -> None:
    candidates = attempts(*given_scores)
    best = best_attempt(candidates)
    judged = [a for a in candidates if scores_of(a.results)]
    shared = set.intersection(*(set(scores_of(a.results)) for a in judged)) if judged else set()
    if shared:

        def worth(attempt: CorrectionLog) -> float:
            return sum(scores_of(attempt.results)[name] for name in shared)

        assert best in judged
        assert worth(best) == max(map(worth, judged))
        assert best.attempt == max(a.attempt for a in judged if worth(a) == worth(best))
    elif judged:
        assert best in judged
    else:
        assert best.attempt == len(candidates)
