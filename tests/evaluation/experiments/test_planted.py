"""A planted gain and a planted harm, with an actor and a judge behind a loopback server that read nothing but text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_django import Settings

from evaluation.experiments.measuring import judge_here
from evaluation.experiments.play import play
from evaluation.experiments.report import ExperimentReport, report
from evaluation.experiments.starting import start_experiment
from tests.evaluation.experiments.playing import respond, scenario
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _models(settings: Settings, llm_server: LLMServer) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "plain-model", "judge-model"
    settings.WORKER_THREADS = 1
    llm_server.respond = respond


def reported(*arms: dict[str, Any]) -> ExperimentReport:
    fields = {
        "population": {"size": 20, "about": "people of one street"},
        "environments": 10,
        "agents": 2,
        "steps": [{"says": "What should the street buy together?"}, {"says": "And what not?"}],
        "dimensions": [{"id": "adherence"}, {"id": "fluency"}],
    }
    experiment = play(start_experiment(scenario(arms=list(arms), **fields)))
    judge_here(experiment)
    experiment.refresh_from_db()
    return report(experiment)


def verdicts(shown: ExperimentReport) -> dict[str, str]:
    return {row.measure: row.verdict for row in shown.rows if row.measure in ("adherence", "fluency")}


OTHER = {"overrides": {"model": "other-model"}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arms", "said"),
    [
        (({"name": "north"}, {"name": "south", **OTHER}), {"adherence": "gain", "fluency": "harm"}),
        (({"name": "north"}, {"name": "south"}), {"adherence": "no difference seen", "fluency": "no difference seen"}),
    ],
    ids=["treated", "equal"],
)
def test_gain_and_harm_are_seen_and_no_prompt_names_an_arm(
    arms: tuple[dict[str, Any], ...], said: dict[str, str], llm_server: LLMServer
) -> None:
    shown = reported(*arms)

    assert verdicts(shown) == said
    prompts = json.dumps([[body["system"], body["messages"]] for body in llm_server.bodies])
    assert not [name for name in ("north", "south", "treatment", "experiment") if name in prompts]
