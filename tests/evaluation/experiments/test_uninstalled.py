"""Experiments where debates or swarms are not installed: what needs them is refused with a sentence, everything else is played."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings as installation
from django.core.management import CommandError, call_command
from django.test import override_settings

from agents.models import Agent
from evaluation.experiments.measuring import judge_here
from evaluation.experiments.models import Experiment
from evaluation.experiments.play import play
from evaluation.experiments.report import report
from evaluation.experiments.starting import start_experiment
from tests.evaluation.experiments.playing import scenario

pytestmark = pytest.mark.django_db
GONE = ("agents.debates", "agents.swarm")


@pytest.fixture(autouse=True)
def _uninstalled() -> Iterator[None]:
    with override_settings(
        INSTALLED_APPS=[app for app in installation.INSTALLED_APPS if app not in GONE],
        TURN_PIPELINE=[path for path in installation.TURN_PIPELINE if not path.startswith(GONE)],
        ACTOR_MODEL="offline:scripted-1",
        JUDGE_MODEL="offline:heuristic-1",
        WORKER_THREADS=1,
    ):
        yield


@pytest.mark.parametrize(
    ("shipped", "said"),
    [
        ("debate-or-vote", "arms[1].debate: debates are not installed; allowed: arms without a debate, or agents.debates"),
        ("swarm-on-off", "population.swarms: swarms are not installed; allowed: a population without swarms, or agents.swarm"),
    ],
)  # fmt: skip
def test_a_shipped_scenario_that_needs_them_says_so(shipped: str, said: str) -> None:
    for dry in ((), ("--dry-run",)):
        with pytest.raises(CommandError) as error:
            call_command("experiment", "run", shipped, *dry)
        assert error.value.returncode == 3
        assert said in str(error.value)
    assert not Experiment.objects.exists()
    assert not Agent.objects.exists()


def test_other_scenarios_are_played_and_reported() -> None:
    arms = [{"name": "north", "overrides": {"stages": []}}, {"name": "south", "overrides": {"stages": []}}]
    experiment = play(start_experiment(scenario(environments=2, arms=arms)))
    judge_here(experiment)

    assert not report(experiment).unfinished
