"""What an experiment asks of the database: no more for a turn than the turn itself, and no more for a report with more people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from evaluation.experiments.measuring import evaluations, judge_here
from evaluation.experiments.models import Experiment
from evaluation.experiments.play import play, work_one
from evaluation.experiments.report import report
from evaluation.experiments.starting import start_experiment
from tests.evaluation.experiments.playing import scenario

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL, settings.WORKER_THREADS = "offline:scripted-1", "offline:heuristic-1", 1


def statements(action: Callable[[], Any]) -> int:
    with CaptureQueriesContext(
        connection,
    ) as asked:
        action()
    return len(asked)


def started(environments: int, *, steps: int = 2) -> Experiment:
    return start_experiment(
        scenario(
            population={"size": 2 * environments, "about": "people of one street"},
            environments=environments,
            arms=[{"name": "north", "overrides": {"stages": []}}, {"name": "south", "overrides": {"stages": []}}],
            steps=[{"says": f"Question {n}?"} for n in range(steps)],
        )
    )


@pytest.mark.slow
def test_a_report_asks_as_much_for_many_people_as_for_few() -> None:
    experiments = [play(started(environments)) for environments in (2, 6)]
    for experiment in experiments:
        judge_here(experiment)

    few, many = (statements(lambda one=one: report(one)) for one in experiments)  # type: ignore[misc]

    assert many == few
    assert few <= 15


def test_workers_play_it_and_plan_the_evaluations_of_each_environment() -> None:
    experiment = started(2)

    assert work_one(owner="one"), "the people"
    planned = []
    while work_one(owner="one"):
        ended = experiment.environments.filter(status="completed").count()
        planned.append((ended, evaluations(experiment).values("environment_link__environment").distinct().count()))

    assert planned == [(1, 1), (2, 2), (3, 3), (4, 4)]
    experiment.refresh_from_db()
    assert experiment.state == "judging"
