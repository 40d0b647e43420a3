"""Alerts: a lasting fall is reported once, with numbers and no words; a change that was asked for is no drift."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pytest_django.plugin import DjangoDbBlocker

from agents.alerts.models import Alert
from agents.alerts.resolving import resolve
from agents.models import Agent, Message
from evaluation.change.models import DriftAlert
from evaluation.change.over_time import look_for_drift, next_to_look_at
from evaluation.change.series import series_of
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs import schedules
from evaluation.runs.failures import reopen_failed
from tests.evaluation.change.drift.scheduling import DAY, make_schedule, measured_day
from tests.evaluation.judged import OFFLINE, make_run, make_score
from tests.factories import MONDAY, make_agent, speaking
from tests.once import rows_for_all
from tests.tracing import Caught

pytestmark = pytest.mark.django_db

GOOD, LOW = (7, 8, 7, 6, 8, 7), (5, 5, 4, 6, 5, 4)


@pytest.fixture(scope="module", autouse=True)
def _good_fortnight(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """An agent that a nightly schedule measured well for fourteen days."""
    with rows_for_all(django_db_blocker, SCORE_MIN_JUDGEMENTS=1, SCORE_MIN_COVERAGE=0.0):
        agent = speaking("ada", ["a secret that was said"])
        days(make_schedule("nightly", agent, due=MONDAY + 400 * DAY), agent, 0, 14, GOOD)
        yield


@pytest.fixture
def ada() -> Agent:
    return Agent.objects.get(slug="ada")


@pytest.fixture
def nightly() -> EvaluationSchedule:
    return EvaluationSchedule.objects.get(name="nightly")


def days(
    schedule: EvaluationSchedule, agent: Agent, first: int, count: int, scores: tuple[int, ...], **fields: Any
) -> None:
    """Measure some days and look at each, as the worker does."""
    for day in range(first, first + count):
        turned = scores[day % len(scores) :] + scores[: day % len(scores)]
        measured_day(schedule, agent, day, turned[: 5 + day % 2], **fields)
        assert schedules.work_one(owner="test")


def days_of_build(
    schedule: EvaluationSchedule,
    agent: Agent,
    first: int,
    scores: Sequence[tuple[int, ...]],
    build: str,
    **fields: Any,
) -> None:
    """The same for days whose messages carry the tag of a build."""
    for number, day_scores in enumerate(scores):
        run = measured_day(schedule, agent, first + number, day_scores[: 5 + number % 2], **fields)
        Message.objects.filter(evaluation_scores__evaluation_run=run).update(tags={"build": build})
        assert schedules.work_one(owner="test")


def look_at_all() -> None:
    while schedules.work_one(owner="test"):
        pass


def test_a_lasting_fall_is_reported_to_people_log_and_sentry(
    ada: Agent, nightly: EvaluationSchedule, sentry: Caught, caplog: pytest.LogCaptureFixture
) -> None:
    assert not DriftAlert.objects.exists()

    with caplog.at_level(logging.WARNING, "evaluation.drift"):
        days(nightly, ada, 14, 6, LOW)

    alert = DriftAlert.objects.get()
    assert alert.alert_id is not None
    raised = Alert.objects.get(pk=alert.alert_id)
    assert (raised.kind, raised.agent) == ("drift", alert.agent)
    assert (alert.agent, alert.dimension, alert.schedule, alert.procedure) == (ada, "adherence", nightly, "plumbline")
    assert alert.before == pytest.approx(7.2, abs=0.3)
    assert alert.after == pytest.approx(4.8, abs=0.4)
    assert alert.since == MONDAY + 15 * DAY, "the first day of the fall, by the end of its window"
    noticed = alert.evaluation_run.window_end
    assert noticed is not None
    assert noticed <= MONDAY + 18 * DAY
    (event,) = sentry.of_type("event")
    assert (event["level"], event["message"]) == ("warning", event["message"])
    assert event["message"].startswith("drift: adherence of ada fell from 7.")
    assert event["tags"] == {
        "agent": "ada",
        "dimension": "adherence",
        "schedule": "nightly",
        "judge": alert.judge,
    }
    assert event["fingerprint"] == ["drift", "ada", "adherence", "nightly", alert.judge]
    assert "secret" not in sentry.text
    (line,) = [record for record in caplog.records if record.name == "evaluation.drift"]
    assert (line.levelname, "adherence of ada fell from" in line.getMessage()) == ("WARNING", True)
    assert "nightly" in line.getMessage()
    assert "secret" not in caplog.text
    for run in EvaluationRun.objects.all():
        assert look_for_drift(run) == [], "it is reported once"


def test_a_lasting_fall_reopens_the_alert_in_the_build_after_the_one_that_resolved_it(
    ada: Agent, nightly: EvaluationSchedule
) -> None:
    days_of_build(nightly, ada, 14, [LOW] * 6, "41")
    alert = Alert.objects.get()
    assert alert.build == "build=41"
    resolve(alert, in_build="42", user=None)
    days_of_build(nightly, ada, 20, [GOOD] * 14, "42", persona_digest="p2")  # the fix is a new persona
    assert Alert.objects.get().acknowledged_at is not None
    days_of_build(nightly, ada, 34, [LOW] * 6, "43", persona_digest="p2")

    alert.refresh_from_db()
    assert (alert.acknowledged_at, alert.back_in) == (None, "build=43")
    assert list(DriftAlert.objects.values_list("alert_id", flat=True)) == [alert.pk] * 2


def test_a_look_that_crashed_is_made_again(
    ada: Agent, nightly: EvaluationSchedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in (14, 15, 16):
        measured_day(nightly, ada, day, LOW)

    def power_cut(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("evaluation.change.over_time.log.warning", power_cut)
        with pytest.raises(KeyboardInterrupt):
            look_at_all()
    assert not DriftAlert.objects.exists()
    look_at_all()

    assert DriftAlert.objects.count() == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"persona_digest": "p2"},
        {"proposition_digests": {"adherence": {"dry": "b"}}},
        {"where": {"build": "41"}},
        {"window": "1d"},
        {"additional_context": {"season": "winter"}},
    ],
)
def test_a_change_that_was_asked_for_starts_the_series_again(
    ada: Agent, nightly: EvaluationSchedule, changed: dict[str, Any]
) -> None:
    days(nightly, ada, 14, 6, LOW, **changed)

    (series,) = series_of(ada)
    assert not DriftAlert.objects.exists()
    assert [point.restarts for point in series.points] == [day == 14 for day in range(20)]


def test_judges_schedules_and_agents_have_series_of_their_own(ada: Agent, nightly: EvaluationSchedule) -> None:
    bea = make_agent("bea")
    hourly = make_schedule("other", bea, due=MONDAY + 400 * DAY)
    days(nightly, bea, 0, 3, GOOD)
    days(nightly, bea, 3, 3, LOW, judge=OFFLINE)
    days(hourly, bea, 6, 3, LOW)

    found = series_of(bea)

    assert [(s.schedule.name, s.judge == OFFLINE, len(s.points)) for s in found] == [
        ("nightly", False, 3),
        ("nightly", True, 3),
        ("other", False, 3),
    ]
    assert all("at least 9 are needed" in s.note for s in found)
    assert not DriftAlert.objects.exists()


def test_runs_that_end_out_of_order_raise_one_alert(ada: Agent, nightly: EvaluationSchedule) -> None:
    late = [measured_day(nightly, ada, day, LOW) for day in range(14, 20)]

    for run in (late[1], late[3], late[0], late[2], late[5], late[4]):
        look_for_drift(run)

    assert DriftAlert.objects.count() == 1


def test_evaluations_that_share_messages_are_tested_once_per_window(nightly: EvaluationSchedule) -> None:
    bea = make_agent("bea")
    for day in range(9):
        end = MONDAY + (day + 1) * DAY
        measured_day(nightly, bea, day, (7,), window="4d", window_start=end - 4 * DAY, window_end=end)
        schedules.work_one(owner="test")

    (series,) = series_of(bea)

    assert [n for n, point in enumerate(series.points) if point.tested] == [0, 4, 8]


def test_a_window_that_is_no_duration_is_shown_but_not_tested(nightly: EvaluationSchedule) -> None:
    bea = make_agent("bea")
    for day in range(3):
        measured_day(nightly, bea, day, LOW, window="last:5", window_start=None, window_end=None)
        schedules.work_one(owner="test")

    (series,) = series_of(bea)

    assert len(series.points) == 3
    assert (series.drops, "not tested for drift" in series.note) == ((), True)


def test_only_completed_runs_of_an_agent_by_a_schedule_are_looked_at(ada: Agent, nightly: EvaluationSchedule) -> None:
    for status in ("failed", "cancelled", "errored", "running", "pending", "paused_budget"):
        measured_day(nightly, ada, 14, GOOD, status=status)
    make_run(ada)
    make_run(schedule=nightly, dimensions=["convergence"])

    assert next_to_look_at() is None


def test_a_run_that_is_judged_further_is_looked_at_again(ada: Agent, nightly: EvaluationSchedule) -> None:
    run = measured_day(nightly, ada, 14, (7,))
    schedules.work_one(owner="test")
    row = make_score(run, None, proposition_id="mood", reason="timeout: no answer")
    run.refresh_from_db()

    assert reopen_failed(run) == 1
    row.refresh_from_db()

    found = next_to_look_at()
    assert found == run
