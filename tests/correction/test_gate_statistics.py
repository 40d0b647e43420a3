"""The gate in numbers: a message counts once, however many drafts it took."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from agents.models import Agent
from correction.gate.statistics import get_gate_statistics
from correction.models import CorrectionLog, GateDimensionResult
from tests.factories import make_agent


def attempt(agent: Agent | None, session: uuid.UUID, number: int, outcome: str, **fields: Any) -> CorrectionLog:
    dims: Mapping[str, float | str] = fields.pop("dims", {"adherence": 8.0})
    scored = [value for value in dims.values() if not isinstance(value, str)]
    log = CorrectionLog.objects.create(
        session=session,
        attempt=number,
        agent=agent,
        outcome=outcome,
        original_text="x",
        judged_text="x",
        score_sum=sum(scored) if scored else None,
        **{"judge": "test-model", **fields},
    )
    for dimension, value in dims.items():
        failed = not isinstance(value, str) and value < 5
        GateDimensionResult.objects.create(
            log=log,
            dimension=dimension,
            threshold=5,
            passed=not failed,
            status=value if isinstance(value, str) else "scored",
            score=None if isinstance(value, str) else value,
        )
    return log


def message(agent: Agent | None, *attempts: tuple[str, Mapping[str, float | str]], **fields: Any) -> None:
    """A session of these attempts; the last one is said unless it says otherwise."""
    session = uuid.uuid4()
    for number, (outcome, dims) in enumerate(attempts, 1):
        said = number == len(attempts) and outcome != "abandoned"
        attempt(agent, session, number, outcome, **{"dims": dims, "committed": said, **fields})


GOOD, BAD = {"adherence": 8.0}, {"adherence": 2.0}


@pytest.mark.django_db
def test_retries_are_not_counted_as_messages() -> None:
    agent = make_agent()
    for _ in range(4):
        message(agent, ("passed", GOOD))
    message(agent, ("corrected", BAD), ("corrected", BAD), ("passed_after_retry", GOOD))
    found = get_gate_statistics(agent)
    assert found.original_success_rate == 0.8  # counting drafts as messages would show 4/7 = 57 %
    assert (found.total_actions, found.original_pass_count, found.regeneration_count) == (5, 4, 2)
    assert found.passed_after_retry_count == 1


@pytest.mark.django_db
def test_every_ending_is_counted_apart() -> None:
    agent = make_agent()
    message(agent, ("passed", GOOD))
    message(agent, ("corrected", BAD), ("corrected", BAD), ("forced_through", BAD))
    message(agent, ("corrected", BAD), ("abandoned", BAD))
    message(agent, ("timeout_passed", {"adherence": "timeout"}))
    message(agent, ("error_passed", {"adherence": 7.0, "fluency": "error"}))
    message(agent, ("overload_passed", {"adherence": "overload"}))
    message(agent, ("unscored_passed", {"adherence": "unscored"}))
    message(agent, ("budget_passed", {"adherence": "budget"}))
    found = get_gate_statistics(agent)
    assert (found.total_actions, found.forced_through_count, found.abandoned) == (8, 1, 1)
    assert (found.timeouts, found.errors, found.overloads, found.unscored, found.over_budget) == (1, 1, 1, 1, 1)
    # Judged first drafts: passed, the two sent back, and the one whose other dimension had an error.
    assert (found.judged_count, found.original_pass_count) == (4, 2)
    assert found.original_success_rate == 0.5, "of the four that were judged"
    assert found.regeneration_failure_rate == 1.0
    adherence, fluency = found.dimensions["adherence"], found.dimensions["fluency"]
    assert (adherence.checks, adherence.scored, adherence.failures, adherence.first_failures) == (11, 7, 5, 2)
    assert adherence.unjudged == {"timeout": 1, "overload": 1, "unscored": 1, "budget": 1}
    assert (fluency.checks, fluency.scored, fluency.unjudged, fluency.mean_first) == (1, 0, {"error": 1}, None)


@pytest.mark.django_db
def test_means_of_first_drafts_and_of_what_was_said_stand_apart() -> None:
    agent = make_agent()
    message(agent, ("corrected", {"adherence": 2.0}), ("passed_after_retry", {"adherence": 7.0}))
    message(agent, ("passed", {"adherence": 8.0}))
    adherence = get_gate_statistics(agent).dimensions["adherence"]
    assert (adherence.mean_first, adherence.mean_committed) == (5.0, 7.5)


@pytest.mark.django_db
def test_scores_of_different_judges_share_no_mean() -> None:
    agent = make_agent()
    message(agent, ("passed", {"adherence": 9.0}), judge="offline:lexical-1")
    message(agent, ("passed", {"adherence": 5.0}))
    adherence = get_gate_statistics(agent).dimensions["adherence"]
    assert adherence.mean_first is None
    assert [(j.judge, j.heuristic, j.mean_first) for j in adherence.by_judge] == [
        ("offline:lexical-1", True, 9.0),
        ("test-model", False, 5.0),
    ]


@pytest.mark.django_db
def test_observed_and_external_checks_stand_apart() -> None:
    agent = make_agent()
    message(agent, ("passed", GOOD))
    message(agent, ("observed", BAD), source="observe")
    message(agent, ("observed", {"adherence": 2.0, "fluency": 1.0}), source="observe")
    message(agent, ("observed", GOOD), source="observe")
    message(None, ("passed", GOOD), source="external")
    found = get_gate_statistics(agent)
    assert (found.total_actions, found.original_success_rate) == (1, 1.0)
    assert (found.observed.total, found.observed.passed) == (3, 1)
    assert found.observed.dimensions["adherence"].failures == 2
    assert found.external.total == 0
    assert get_gate_statistics().external.total == 1


@pytest.mark.django_db
def test_a_window_and_an_agent_can_be_chosen() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    message(ada, ("passed", GOOD))
    message(bob, ("passed", GOOD))
    message(ada, ("passed", GOOD))
    old = CorrectionLog.objects.filter(agent=ada).order_by("pk")[0]
    CorrectionLog.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=3))
    counts: Sequence[int] = [
        get_gate_statistics(agent, window).total_actions
        for agent, window in ((None, "all"), (ada, "all"), (ada, "2d"), (ada, "4d"), (bob, "1h"))
    ]
    assert counts == [3, 2, 1, 2, 1]
    assert get_gate_statistics(ada, "2d").dimensions["adherence"].checks == 1


@pytest.mark.django_db
@pytest.mark.parametrize("window", ["", "yesterday", "last:5", "0d"])
def test_a_window_that_is_none_is_named(window: str) -> None:
    with pytest.raises(ValueError, match="allowed: all, or a duration"):
        get_gate_statistics(None, window)


@pytest.mark.django_db
def test_with_nothing_logged_there_are_no_rates(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(2):
        found = get_gate_statistics()
    assert (found.total_actions, found.original_success_rate, found.regeneration_failure_rate) == (0, None, None)


VERDICTS = st.dictionaries(
    st.sampled_from(["adherence", "fluency"]),
    st.one_of(st.integers(0, 9).map(float), st.sampled_from(["timeout", "error", "unscored"])),
    min_size=1,
)
ENDED = st.sampled_from(
    ["passed", "passed_after_retry", "forced_through", "timeout_passed", "error_passed", "abandoned"]
)
SESSIONS = st.lists(st.lists(st.tuples(ENDED, VERDICTS), min_size=1, max_size=3), max_size=5)


@pytest.mark.django_db
@given(SESSIONS)
def test_the_database_counts_what_counting_by_hand_gives(
    sessions: list[list[tuple[str, dict[str, float | str]]]],
) -> None:
    CorrectionLog.objects.all().delete()
    for session in sessions:
        message(None, *session)
    found, drafts = get_gate_statistics(), [draft for session in sessions for draft in session]
    firsts = [session[0] for session in sessions]
    judged = [f for f in firsts if f[0] == "passed" or any(isinstance(score, float) for score in f[1].values())]
    good = [f for f in judged if f[0] in ("passed", "timeout_passed", "error_passed")]
    assert (found.total_actions, found.regeneration_count) == (len(sessions), len(drafts) - len(sessions))
    assert (found.judged_count, found.original_pass_count) == (len(judged), len(good))
    counted = (
        found.forced_through_count,
        found.passed_after_retry_count,
        found.timeouts,
        found.errors,
        found.abandoned,
    )
    words = ("forced_through", "passed_after_retry", "timeout_passed", "error_passed", "abandoned")
    assert counted == tuple(sum(outcome == word for outcome, _ in drafts) for word in words)
    for name in ("adherence", "fluency"):
        given_scores = [checks[name] for _, checks in drafts if isinstance(checks.get(name), float)]
        known = found.dimensions.get(name)
        assert (known.scored if known else 0) == len(given_scores)
        assert (known.failures if known else 0) == sum(float(score) < 5 for score in given_scores)
        if known and given_scores:
            assert known.by_judge[0].mean == pytest.approx(sum(map(float, given_scores)) / len(given_scores))
