"""What an evaluation contributes to its series, and how a series is read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agents.models import Agent
from evaluation.change.series import MOST_EVALUATIONS, series_of, series_points, standard_error
from evaluation.models import EvaluationRun, EvaluationSchedule
from tests.evaluation.change.drift.scheduling import DAY, make_schedule, measured_day
from tests.evaluation.judged import make_score
from tests.factories import MONDAY, say, speaking

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    agent = speaking("ada", ["a secret that was said"])
    return agent


@pytest.fixture
def nightly(ada: Agent) -> EvaluationSchedule:
    return make_schedule("nightly", ada, due=MONDAY + 400 * DAY)


# -- points
def test_the_error_is_that_of_a_mean_over_messages(ada: Agent, nightly: EvaluationSchedule) -> None:
    run = measured_day(nightly, ada, 0, (4, 6, 8))

    # one score a message: the textbook standard error, 2 / sqrt(3)
    assert standard_error(run, "adherence") == pytest.approx(2 / 3**0.5)
    points = series_points(run)["adherence"]
    assert points["score"] == 6
    assert points["error"] == pytest.approx(2 / 3**0.5)


def test_scores_of_one_message_belong_together_and_repeats_count_once(ada: Agent, nightly: EvaluationSchedule) -> None:
    run = measured_day(nightly, ada, 0, ())
    room = ada.messages.get().channel
    for first, second in ((4, 6), (8, 8)):
        said = say(room, ada, f"{first}")
        for repeat in (1, 2):
            make_score(run, first, message=said, repeat=repeat, weight=3)
            make_score(run, second, message=said, repeat=repeat, proposition_id="mood", weight=1)

    # message means 4.5 and 8 around 6.25: sd 2.475, / sqrt(2)
    assert standard_error(run, "adherence") == pytest.approx(1.75)


def test_one_message_or_none_has_no_error(ada: Agent, nightly: EvaluationSchedule) -> None:
    assert standard_error(measured_day(nightly, ada, 0, (4,)), "adherence") is None
    assert standard_error(measured_day(nightly, ada, 1, ()), "adherence") is None


def test_a_series_is_read_in_a_bounded_number_of_queries(
    ada: Agent, nightly: EvaluationSchedule, django_assert_max_num_queries: Any
) -> None:
    EvaluationRun.objects.bulk_create(
        EvaluationRun(
            agent=ada,
            schedule=nightly,
            judge="m",
            status="completed",
            dimensions=["adherence"],
            window="24h",
            window_start=MONDAY + n * DAY,
            window_end=MONDAY + (n + 1) * DAY,
            series_points={"adherence": {"score": 7.0, "error": 0.3, "of": "x"}},
        )
        for n in range(MOST_EVALUATIONS + 10)
    )

    with django_assert_max_num_queries(4):
        (series,) = series_of(ada, schedule=nightly)

    assert len(series.points) == MOST_EVALUATIONS
    assert series.points[-1].time == MONDAY + timedelta(days=MOST_EVALUATIONS + 10)
