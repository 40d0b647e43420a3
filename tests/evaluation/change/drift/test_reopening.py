"""A regression belongs to a build: resolved in a later one, it reopens by itself where the stored changes say that it is back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agents.alerts.models import Alert
from agents.alerts.raising import acknowledge
from agents.alerts.resolving import resolve
from agents.models import Agent, Message
from evaluation.change.models import Change, DriftAlert, Evidence
from evaluation.change.over_time import look_for_sharp_fall
from evaluation.change.stored import store_ended
from evaluation.models import EvaluationRun
from tests.evaluation.change.drift.scheduling import DAY
from tests.evaluation.change.measured import capture, measure
from tests.factories import MONDAY, make_agent

pytestmark = pytest.mark.django_db

STEADY, LOW = [8, 7, 8, 9, 8, 7, 8, 8, 9, 8], [4, 3, 4, 5, 4, 3, 4, 4, 5, 4]
LOWER = [6, 5, 6, 7, 6, 5, 6, 6, 7, 6]  # by two points: significant, not sharp


@pytest.fixture
def ada() -> Agent:
    """An agent that build 41 made worse, with the alert."""
    agent = make_agent()
    said_on(0, capture(agent, {"dry": STEADY}))
    assert len(measured(agent, "41", 1, LOW)) == 1
    return agent


def measured(agent: Agent, build: str, day: int, scores: Sequence[int]) -> list[DriftAlert]:
    """Measure what a build said on a day; the falls that are new."""
    run = said_on(day, measure(agent, {"dry": scores}, build=build))
    store_ended(run)
    return look_for_sharp_fall(run)


def said_on(day: int, run: EvaluationRun) -> EvaluationRun:
    at = MONDAY + day * DAY
    Message.objects.filter(evaluation_scores__evaluation_run=run).update(sent_at=at, said_at=at)
    Evidence.objects.filter(evaluation_run=run).update(newest_message_at=at)
    return run


def only_alert() -> Alert:
    return Alert.objects.get()


def test_an_alert_is_of_the_build_whose_messages_fell(ada: Agent) -> None:
    assert only_alert().build == "build=41"
    assert "build 41" in only_alert().title


def test_messages_of_several_builds_or_of_none_leave_it_without_one() -> None:
    bob = make_agent("bob")
    said_on(0, capture(bob, {"dry": STEADY}))
    run = said_on(1, measure(bob, {"dry": LOW}))
    first = Message.objects.filter(evaluation_scores__evaluation_run=run).earliest("pk")
    Message.objects.filter(pk=first.pk).update(tags={})
    look_for_sharp_fall(run)

    assert only_alert().build == ""


@pytest.mark.parametrize("scores", [LOW, LOWER])
def test_it_reopens_in_the_build_after_the_one_that_resolved_it(ada: Agent, scores: list[int]) -> None:
    resolve(only_alert(), in_build="42", user=None)

    assert measured(ada, "42", 2, STEADY) == []
    (again,) = measured(ada, "43", 3, scores)
    alert = only_alert()
    assert again.alert_id == alert.pk
    assert (alert.acknowledged_at, alert.back_in, alert.page) == (
        None,
        "build=43",
        f"change/driftalert/{again.pk}/change/",
    )
    assert measured(ada, "43", 4, scores) == [], "it is open"
    assert (Alert.objects.count(), DriftAlert.objects.filter(acknowledged_at=None).count()) == (1, 1)


def test_it_reopens_in_the_build_that_was_to_resolve_it_and_did_not(ada: Agent) -> None:
    resolve(only_alert(), user=None)

    assert len(measured(ada, "42", 2, LOW)) == 1
    assert only_alert().back_in == "build=42"


def test_older_builds_and_what_is_steady_do_not_reopen_it(ada: Agent) -> None:
    resolve(only_alert(), in_build="42", user=None)

    assert measured(ada, "41", 2, LOW) == []
    assert measured(ada, "42", 3, STEADY) == []
    assert measured(ada, "41", 4, LOW) == [], "messages of an older build still arrive"
    assert only_alert().acknowledged_at is not None
    assert only_alert().back_in == ""


def test_older_builds_do_not_reopen_it_against_a_newer_baseline_either(ada: Agent) -> None:
    resolve(only_alert(), in_build="42", user=None)
    Evidence.objects.filter(evaluation_run__is_baseline=True).update(newest_message_at=MONDAY + 2 * DAY)

    assert measured(ada, "41", 3, LOW) == []
    assert only_alert().acknowledged_at is not None


def test_without_a_stored_change_that_fell_it_stays_resolved(ada: Agent) -> None:
    resolve(only_alert(), in_build="42", user=None)
    run = said_on(2, measure(ada, {"dry": LOWER}, build="42"))
    Change.objects.filter(evaluation_run=run).update(verdict="not enough data")
    for row in Change.objects.filter(evaluation_run=run):
        row.value["result"]["verdict"] = "not enough data"
        row.save()

    assert look_for_sharp_fall(run) == []
    assert only_alert().acknowledged_at is not None


def test_what_was_only_acknowledged_is_reported_once_as_before(ada: Agent) -> None:
    acknowledge(Alert.objects.all(), user=None)

    assert measured(ada, "42", 2, LOW) == []
    assert only_alert().acknowledged_at is not None
