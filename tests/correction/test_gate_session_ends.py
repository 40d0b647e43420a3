"""How a session ends that no accepted draft has closed, and which attempt is the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.models import Message, Run
from agents.turn.pipeline import pipeline
from correction.gate.sessions import Attempt, best_attempt
from tests.correction.gating import DIMENSIONS, by_text, configure, gated, join, judge, logs, outcomes, send, turn_of
from tests.factories import make_channel
from tests.llm_server import LLMServer


@pytest.mark.django_db
def test_a_turn_that_ends_after_a_rejection_says_the_best_attempt(llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS)
    llm_server.respond = by_text(one=4, two=2)
    turn = turn_of(agent, channel)
    send(agent, channel, "one", turn=turn)
    send(agent, channel, "two", turn=turn)
    pipeline().finish(turn)
    assert Message.objects.get().text == "one"
    assert outcomes() == ["corrected", "forced_through"]
    assert [log.committed for log in logs()] == [True, False]
    pipeline().finish(turn)
    assert Message.objects.count() == 1


@pytest.mark.django_db
def test_an_agent_may_give_a_message_up(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    turn = turn_of(agent, channel)
    send(agent, channel, "one", turn=turn)
    turn.abandoned = True
    pipeline().finish(turn)
    assert Message.objects.count() == 0
    assert outcomes() == ["abandoned"]


@pytest.mark.django_db
def test_a_turn_ends_the_sessions_of_all_its_channels(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency")
    kitchen = join(agent, make_channel("kitchen"))
    llm_server.respond = judge({"fluency": 2})
    turn = turn_of(agent, channel)
    send(agent, channel, "here", turn=turn)
    send(agent, kitchen, "there", turn=turn)
    pipeline().finish(turn)
    assert {(m.channel.slug, m.text) for m in Message.objects.all()} == {("office", "here"), ("kitchen", "there")}


@pytest.mark.django_db
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


@pytest.mark.django_db
def test_what_the_pipelines_own_cap_lets_through_closes_the_session(llm_server: LLMServer, settings: Any) -> None:
    settings.TURN_MAX_REVISIONS = 1
    agent, channel = gated("fluency", max_correction_attempts=9)
    llm_server.respond = judge({"fluency": 2})
    turn = turn_of(agent, channel)
    send(agent, channel, "one", turn=turn)
    result = send(agent, channel, "two", turn=turn)
    assert result.committed
    assert outcomes() == ["corrected", "forced_through"]
    assert [(log.committed, log.message) for log in logs()] == [(False, result.message), (True, result.message)]


@pytest.mark.django_db
@pytest.mark.parametrize("mode", ["off", "observe"])
def test_a_gate_switched_off_between_two_claims_of_a_run_says_nothing_of_what_was_sent_back(
    llm_server: LLMServer, mode: str
) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    run = Run.objects.create(agent=agent, channel=channel)
    session = send(agent, channel, "one", turn=turn_of(agent, channel, run), run=run).session
    configure(agent, gate_mode=mode)
    run.attempt, turn = 2, turn_of(agent, channel, run)
    message = send(agent, channel, "two", turn=turn, run=run, session=session).message
    pipeline().finish(turn)
    assert [m.text for m in Message.objects.all()] == ["two"]
    assert [(log.outcome, log.committed, log.message) for log in logs()] == [("corrected", False, message)]


@pytest.mark.django_db
def test_a_gate_that_breaks_after_a_rejection_does_not_log_the_rejected_draft_as_said(
    llm_server: LLMServer, settings: Any
) -> None:
    agent, channel = gated("fluency")
    llm_server.respond = judge({"fluency": 2})
    turn = turn_of(agent, channel)
    send(agent, channel, "one", turn=turn)
    settings.LLM_MAX_CONCURRENCY = "many"  # as a broken deployment has it
    message = send(agent, channel, "two", turn=turn).message
    assert message is not None
    assert [(log.judged_text, log.committed, log.message) for log in logs()] == [("one", False, message)]
    pipeline().finish(turn)
    assert Message.objects.get() == message


def attempts(*scores: Mapping[str, float]) -> list[Attempt]:
    return [Attempt(number=n, text=str(n), scores=s) for n, s in enumerate(scores, 1)]


def test_the_best_attempt_has_the_highest_sum_and_of_equal_ones_the_latest() -> None:
    assert best_attempt(attempts({"a": 4, "b": 4}, {"a": 9, "b": 1}, {"a": 1, "b": 6})).number == 2
    assert best_attempt(attempts({"a": 4, "b": 4}, {"a": 3, "b": 5}, {"a": 1, "b": 1})).number == 2
    assert best_attempt(attempts({"a": 0.1 + 0.2}, {"a": 0.3})).number == 2


def test_a_dimension_that_was_not_judged_everywhere_does_not_decide() -> None:
    assert best_attempt(attempts({"a": 4}, {"a": 3, "b": 4, "c": 4})).number == 1
    assert best_attempt(attempts({"a": 6}, {"b": 2, "c": 3})).number == 1
    assert best_attempt(attempts({}, {"a": 0})).number == 2
    assert best_attempt(attempts({}, {})).number == 2
    with pytest.raises(ValueError, match="no attempt"):
        best_attempt([])


SCORES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9).map(float))


@given(st.lists(SCORES, min_size=1, max_size=6))
def test_no_attempt_beats_the_best_on_what_all_have(given_scores: list[dict[str, float]]) -> None:
    candidates = attempts(*given_scores)
    best = best_attempt(candidates)
    judged = [a for a in candidates if a.scores]
    shared = set.intersection(*(set(a.scores) for a in judged)) if judged else set()
    if shared:

        def worth(attempt: Attempt) -> float:
            return sum(attempt.scores[name] for name in shared)

        assert best in judged
        assert worth(best) == max(map(worth, judged))
        assert best.number == max(a.number for a in judged if worth(a) == worth(best))
    elif judged:
        assert best in judged
    else:
        assert best.number == len(candidates)


@given(st.lists(st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.integers(0, 9)}), min_size=1, max_size=6))
def test_where_all_are_scored_alike_the_sum_decides(given_scores: list[dict[str, int]]) -> None:
    best = best_attempt(attempts(*given_scores))
    sums = [sum(s.values()) for s in given_scores]
    assert best.number == len(sums) - sums[::-1].index(max(sums))
