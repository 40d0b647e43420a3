"""The attempts at one message: feedback, retries, and what continues a session."""

from __future__ import annotations

import pytest

from agents.models import Message
from correction.gate.sessions import check_session
from tests.correction.gating import DIMENSIONS, by_text, gated, join, judge, logs, outcomes, send
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer


@pytest.mark.django_db
def test_a_draft_that_fails_is_sent_back_and_its_retry_passes(llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS)
    llm_server.respond = judge(lambda d, tail: 2 if d == "adherence" and "synergy" in tail else 8)
    first = send(agent, channel, "Leverage the synergy!")
    assert (first.committed, first.outcome) == (False, "corrected")
    assert Message.objects.count() == 0
    second = send(agent, channel, "I filed it.", session=first.session)
    assert (second.committed, second.outcome) == (True, "passed_after_retry")
    assert [(log.attempt, log.committed, log.message) for log in logs()] == [
        (1, False, second.message),
        (2, True, second.message),
    ]
    assert len({log.session for log in logs()}) == 1


@pytest.mark.django_db
def test_feedback_explains_every_failed_dimension_and_only_those(llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS)
    llm_server.respond = judge({"adherence": 3, "consistency": 8, "fluency": 1})
    feedback = send(agent, channel, "Leverage the synergy!").feedback
    for words in (
        "2 of 3 checks failed",
        "Persona adherence: 3 of 9, at least 5.0",
        "> adherence was looked at",
        "Go back to who you are",
        "Fluency: 1 of 9",
        "> Leverage the synergy!",
        "more radical",
        "better to say nothing",
        "`do_nothing`",
        "2 more times",
    ):
        assert words in feedback
    assert "Self-consistency" not in feedback
    assert logs()[0].feedback == feedback


@pytest.mark.django_db
def test_feedback_gets_more_radical_with_each_attempt(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency", max_correction_attempts=4)
    llm_server.respond = judge({"fluency": 2})
    session, told = "", []
    for number in range(4):
        result = send(agent, channel, f"Draft {number}", session=session)
        session = result.session
        told.append(result.feedback.partition("### What to do now")[2])
    assert len(set(told)) == 4
    assert "Do more than swap a few words" in told[0]
    assert "throw the wording away" in told[1]
    assert "Nothing of the earlier ones may remain" in told[2]
    assert "one more time" in told[3]


@pytest.mark.django_db
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
    assert {log.message for log in logs()} == {message}
    assert llm_server.calls == 9
    assert third.reports["gate"]["best"] == 2


@pytest.mark.django_db
def test_without_retries_the_first_draft_is_forced_through(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency", max_correction_attempts=0)
    llm_server.respond = judge({"fluency": 2})
    assert send(agent, channel, "one").outcome == "forced_through"
    assert [(log.attempt, log.committed) for log in logs()] == [(1, True)]


@pytest.mark.django_db
def test_a_send_without_a_session_begins_a_new_message(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    first, other = send(agent, channel, "one"), send(agent, channel, "two")
    assert first.session != other.session
    assert [log.attempt for log in logs()] == [1, 1]


@pytest.mark.django_db
def test_the_same_key_is_not_judged_twice(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    first = send(agent, channel, "one", idempotency_key="k")
    again = send(agent, channel, "one", idempotency_key="k")
    assert llm_server.calls == 1
    assert len(logs()) == 1
    assert (again.feedback, again.session, again.outcome) == (first.feedback, first.session, "corrected")
    assert again.reports["gate"] == first.reports["gate"]


@pytest.mark.django_db
def test_another_draft_under_the_same_key_is_judged_and_said_once(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = by_text(bad=2, good=8)
    first = send(agent, channel, "bad", idempotency_key="k")
    second = send(agent, channel, "good", session=first.session, idempotency_key="k")
    assert (second.outcome, second.text) == ("passed_after_retry", "good")
    assert send(agent, channel, "good", idempotency_key="k").message == second.message
    assert Message.objects.count() == 1


@pytest.mark.django_db
def test_a_key_of_another_agents_draft_gives_nothing_away(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    bob, _ = gated("fluency", slug="bob")
    llm_server.respond = judge({"fluency": 2})
    send(agent, channel, "my secret", idempotency_key="k")
    result = send(bob, channel, "hello", idempotency_key="k")
    assert "secret" not in result.feedback
    assert [log.draft_key for log in logs()] == ["k", None]


@pytest.mark.django_db
@pytest.mark.parametrize("session", ["nonsense", "00000000-0000-0000-0000-000000000000", "' OR 1=1 --"])
def test_a_session_that_cannot_be_continued_begins_a_new_one_and_the_trace_says_why(
    llm_server: LLMServer, session: str
) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 8})
    result = send(agent, channel, "one", session=session)
    assert result.outcome == "passed"
    assert "a new session was begun" in next(e.why for e in result.trace if e.phase == "review")


@pytest.mark.django_db
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
