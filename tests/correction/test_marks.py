"""What people say of failed checks, and the precision of a threshold by it."""

from __future__ import annotations

import uuid
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from agents.models import Agent
from correction.gate.thresholds import mark_result, precision, wilson_interval
from correction.models import GateDimensionResult
from tests.correction.test_gate_statistics import attempt
from tests.factories import make_agent


def failed(agent: Agent, dimension: str = "adherence", threshold: str = "5.0", **fields: str) -> GateDimensionResult:
    log = attempt(agent, uuid.uuid4(), 1, "corrected", dims={dimension: 2.0}, **fields)
    GateDimensionResult.objects.filter(log=log).update(threshold=Decimal(threshold))
    return log.dimension_results.get()


@pytest.mark.django_db
def test_a_failed_check_can_be_marked_and_the_mark_taken_back() -> None:
    user = get_user_model().objects.create_user("eve")
    result = failed(make_agent())
    mark_result(result=result, mark="false_alarm", user=user)
    result.refresh_from_db()
    assert (result.mark, result.marked_by, result.marked_at is not None) == ("false_alarm", user, True)
    mark_result(result=result, mark="", user=user)
    result.refresh_from_db()
    assert (result.mark, result.marked_by, result.marked_at) == ("", None, None)


@pytest.mark.django_db
def test_only_failures_take_marks_and_only_known_ones() -> None:
    agent = make_agent()
    passed = attempt(agent, uuid.uuid4(), 1, "passed").dimension_results.get()
    with pytest.raises(ValueError, match="did not fail here"):
        mark_result(result=passed, mark="right", user=None)
    with pytest.raises(ValueError, match="'maybe': allowed: right, false_alarm"):
        mark_result(result=failed(agent), mark="maybe", user=None)


@pytest.mark.django_db
def test_precision_stands_per_dimension_threshold_and_judge(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    agent = make_agent()
    for mark in ["right"] * 7 + ["false_alarm"] * 3:
        mark_result(result=failed(agent), mark=mark, user=None)
    mark_result(result=failed(agent, threshold="6.5"), mark="right", user=None)
    mark_result(result=failed(agent, "fluency"), mark="false_alarm", user=None)
    mark_result(result=failed(agent, judge="offline:lexical-1"), mark="right", user=None)
    failed(agent)  # not marked: says nothing
    with django_assert_num_queries(1):
        found = precision()
    assert [(p.dimension, str(p.threshold), p.judge, p.right, p.false_alarms) for p in found] == [
        ("adherence", "5.0", "offline:lexical-1", 1, 0),
        ("adherence", "5.0", "test-model", 7, 3),
        ("adherence", "6.5", "test-model", 1, 0),
        ("fluency", "5.0", "test-model", 0, 1),
    ]
    assert found[1].precision == 0.7
    assert (round(found[1].low, 3), round(found[1].high, 3)) == (0.397, 0.892)  # as published tables have it
    assert [p.dimension for p in precision(agent=agent, dimension="fluency")] == ["fluency"]
    assert precision(agent=make_agent("bob")) == []


@given(st.integers(0, 500).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_wilsons_interval_holds_the_share_and_stays_within_0_and_1(counted: tuple[int, int]) -> None:
    successes, total = counted
    low, high = wilson_interval(successes, total)
    assert 0 <= low <= high <= 1
    if total:
        assert low - 1e-12 <= successes / total <= high + 1e-12


def test_more_than_all_is_no_share() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        wilson_interval(3, 2)
