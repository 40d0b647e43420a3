"""One evaluation that fell far raises an alert when it ends; steady series do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import models
from django.utils import timezone
from numpy.typing import NDArray

from agents.alerts.models import Alert
from agents.models import Message
from agents.personas.persona import TraitValue, save_persona
from evaluation.change.change import ChangeResult, fell_sharply, with_verdict
from evaluation.change.models import DriftAlert, Evidence
from evaluation.change.over_time import look_for_sharp_fall
from evaluation.models import EvaluationRun
from evaluation.runs import schedules
from evaluation.runs.shares import Share
from evaluation.statistics.bootstrap import Observation
from evaluation.statistics.difference import MARGIN, difference_interval
from tests.evaluation.change.drift.scheduling import DAY, make_schedule, measured_day
from tests.evaluation.change.measured import capture, drift_of, measure
from tests.evaluation.judged import LLM, OFFLINE
from tests.factories import MONDAY, make_agent, talk

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
STEADY, LOW = [8, 7, 8, 9, 8, 7, 8, 8, 9, 8], [4, 3, 4, 5, 4, 3, 4, 4, 5, 4]


def usual(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """A model's scores: around 7.5, and a lapse in ten messages."""
    scores = np.clip(np.rint(rng.normal(7.5, 1.5, n)), 0, 9)
    return np.asarray(np.where(rng.random(n) < 0.1, rng.integers(1, 5, n), scores), dtype=np.float64)


def several(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """A dimension of three such propositions and a rule that is broken in every fifth message."""
    return (usual(rng, n) + usual(rng, n) + usual(rng, n) + a_rule(rng, n)) / np.float64(4)


def a_rule(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """The hardest: a lone rule, 9 or 0, broken in every fifth message."""
    return np.where(rng.random(n) < 0.8, 9.0, 0.0)


def alarms(before: Draw, now: Draw, *, n: int = 10, trials: int = 3_000) -> float:
    """How often an evaluation of `n` messages alerts against a baseline of as many."""
    rng = np.random.default_rng(20)
    return sum(fell_sharply(change(before(rng, n), now(rng, n))) for _ in range(trials)) / trials


def change(before: NDArray[np.float64], now: NDArray[np.float64]) -> ChangeResult:
    n = len(before)
    share = Share(n, n)
    row = ChangeResult(
        baseline=before.mean(), candidate=now.mean(), verdict="not enough data", share=share, baseline_share=share
    )
    if before.mean() - now.mean() < 2:  # no interval is needed to say no
        return row
    first, second = (
        [Observation(float(value), 1.0, (name, k)) for k, value in enumerate(values)]
        for name, values in (("before", before), ("now", now))
    )
    return with_verdict(row, difference_interval(first, second), MARGIN, n=n, baseline_n=n)


@pytest.mark.parametrize(("draw", "most"), [(several, 0.0), (usual, 0.003), (a_rule, 0.025)])
def test_steady_scores_of_ten_messages_hardly_ever_alert(draw: Draw, most: float) -> None:
    """Measured: 0, 0.1 % and 1.5 % of evaluations; at 20 messages 0, 0 and 0.3 %."""
    assert alarms(draw, draw) <= most
    assert alarms(draw, draw, n=20) <= most / 4


def test_a_fall_of_four_points_in_ten_messages_alerts_nearly_always() -> None:
    assert alarms(several, lambda rng, n: several(rng, n) - 4) > 0.9


@pytest.mark.django_db
def test_one_drop_against_the_baseline_alerts_at_once_and_once(caplog: pytest.LogCaptureFixture) -> None:
    ada = make_agent()
    capture(ada, {"dry": STEADY})
    run = measure(ada, {"dry": LOW})
    (alert,) = look_for_sharp_fall(run)

    assert (alert.agent, alert.dimension, alert.judge, alert.schedule) == (ada, "adherence", LLM, None)
    assert (alert.before, alert.after) == (8.0, 4.0)
    assert "adherence of ada fell from 8.0 to 4.0" in caplog.text
    assert drift_of(ada).state == "drifted", "the overview says the same"
    assert look_for_sharp_fall(run) == []
    assert look_for_sharp_fall(measure(ada, {"dry": LOW})) == [], "the same fall"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("before", "now"),
    [
        (STEADY, [6, 5, 6, 7, 6, 5, 6, 6, 7, 6]),  # two points
        (STEADY[:9], LOW),
        (STEADY, LOW[:9]),
        ([9] * 6 + [0] * 4, [9] * 2 + [0] * 8),  # 3.6 points, within chance
    ],
)
def test_a_small_fall_few_judgements_or_chance_do_not_alert(before: list[int], now: list[int]) -> None:
    ada = make_agent()
    capture(ada, {"dry": before})

    assert look_for_sharp_fall(measure(ada, {"dry": now})) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "fields", [{"judge": OFFLINE}, {"hard": True}, {"simulated": True}, {"position_bins": [[1, None]]}]
)
def test_what_was_judged_in_another_way_or_simulated_is_no_fall(fields: dict[str, Any]) -> None:
    ada = make_agent()
    capture(ada, {"dry": STEADY})

    assert look_for_sharp_fall(measure(ada, {"dry": LOW}, **fields)) == []


@pytest.mark.django_db
def test_an_edited_persona_and_older_messages_raise_no_alert() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    for agent in (ada, bob):
        capture(agent, {"dry": STEADY})
    save_persona(agent=ada, traits=[TraitValue("loud")], note="edit")
    older = measure(bob, {"dry": LOW})
    Evidence.objects.filter(evaluation_run=older).update(newest_message_at=models.F("newest_message_at") - DAY)

    assert look_for_sharp_fall(measure(ada, {"dry": LOW})) == []
    assert look_for_sharp_fall(older) == []


@pytest.mark.django_db
def test_undated_messages_alert_in_a_schedule_alone() -> None:
    ada = make_agent()
    capture(ada, {"dry": STEADY})
    undated = measure(ada, {"dry": LOW})
    imported = Message.objects.filter(evaluation_scores__evaluation_run=undated)
    imported.update(sent_at=None, said_at=timezone.now())

    assert look_for_sharp_fall(undated) == [], "an old transcript that was imported now is no news"
    undated.schedule = make_schedule("nightly", ada, due=MONDAY)
    (alert,) = look_for_sharp_fall(undated)

    assert alert.alert_id is not None
    assert "undated" in Alert.objects.get(pk=alert.alert_id).title


@pytest.mark.django_db
def test_without_a_baseline_it_is_compared_with_the_evaluation_before() -> None:
    ada = make_agent()
    first = measure(ada, {"dry": STEADY}, build="40")

    assert look_for_sharp_fall(first) == []
    (alert,) = look_for_sharp_fall(measure(ada, {"dry": LOW}))
    assert (alert.before, alert.after) == (8.0, 4.0)
    assert look_for_sharp_fall(measure(ada, {"dry": LOW})) == [], "it stays low"


@pytest.mark.django_db
def test_a_sharp_fall_is_not_reported_again_as_a_lasting_one() -> None:
    agent = make_agent()
    talk(agent, ["hello"])
    schedule = make_schedule("nightly", agent, due=MONDAY + 999 * DAY)

    def night(day: int, scores: Sequence[int]) -> EvaluationRun:
        run = measured_day(schedule, agent, day, scores)
        at = MONDAY + timedelta(days=day, hours=1)
        Message.objects.filter(evaluation_scores__evaluation_run=run).update(sent_at=at, said_at=at)
        Evidence.objects.filter(evaluation_run=run).update(newest_message_at=at)
        look_for_sharp_fall(run)
        assert schedules.work_one(owner="test")
        return run

    for day in range(12):
        night(day, STEADY)
    fell = night(12, LOW)
    alerts = list(DriftAlert.objects.all())
    for day in range(13, 18):
        night(day, LOW)

    assert [(alert.evaluation_run, alert.schedule) for alert in alerts] == [(fell, schedule)]
    assert DriftAlert.objects.count() == 1
