"""The laboratory of drift: forks of a real conversation, repairs on them, and what may be said of these."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from evaluation.experiments.lab import LabRequest, request_lab
from evaluation.experiments.measuring import judge_here
from evaluation.experiments.models import Experiment
from evaluation.experiments.play import play
from evaluation.experiments.repairs import LabReport
from evaluation.experiments.report import report
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.experiments.drifting import DRIFTS_AT, actor, conversation
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _models(settings: Settings, llm_server: LLMServer) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL, settings.WORKER_THREADS = "plain-model", "offline:lexical-1", 1


def asked(**fields: object) -> LabRequest:
    return LabRequest.model_validate({"channel": "street", "arms": "reminder", "ask": "none"} | fields)


def played(request: LabRequest) -> LabReport:
    experiment = play(request_lab(request))
    judge_here(experiment)
    experiment.refresh_from_db()
    made = report(experiment)
    assert made.unfinished == ""
    assert Experiment.objects.get(pk=experiment.pk).report
    assert made.lab is not None
    return made.lab


@pytest.mark.slow
def test_a_drift_and_a_repair_are_found_within_three_turns(
    propositions: PropositionFolder, llm_server: LLMServer
) -> None:
    conversation(propositions, turns=66)
    llm_server.respond = actor(works_for=12)

    lab = played(asked(turns=24, repeats=5))

    print(lab.sentence)
    print(lab.onsets)
    assert lab.onsets[0].turn is not None
    assert abs(lab.onsets[0].turn - DRIFTS_AT) <= 3
    (effect,) = lab.arms[1].effects
    assert effect.verdict == "repairs"
    assert effect.lasting is not None
    assert abs(effect.lasting.turns - 12) <= 3
    assert effect.lasting.low <= 12 <= effect.lasting.high


@pytest.mark.slow
def test_a_reminder_that_does_nothing_gets_no_verdict(propositions: PropositionFolder, llm_server: LLMServer) -> None:
    conversation(propositions, turns=66)
    llm_server.respond = actor(works_for=0)

    lab = played(asked(turns=10, repeats=4))

    print(lab.sentence)
    (effect,) = lab.arms[1].effects
    assert effect.verdict in ("not shown", "no effect")
    assert effect.lasting is None
