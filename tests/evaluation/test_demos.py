"""Demonstrations of specification 001 on the example data, offline; those of single scorers stand beside the scorers' tests."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from pytest_django import Settings

from agents.models import Agent
from agents.seed import loader
from evaluation.change.choosing import compare_to_baseline
from evaluation.runs.execute import capture
from evaluation.runs.spec import RunSpec
from evaluation.runs.summary import worst_judgement
from tests.evaluation.measuring import by_tag, evaluate_agent

pytestmark = pytest.mark.django_db

OFFLINE = "offline:lexical-1"
EVERYTHING = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")


@pytest.fixture
def office(settings: Settings) -> None:
    """The example data and the shipped propositions."""
    settings.PROPOSITION_DIRS = []
    loader.seed()


@pytest.fixture
def offline(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = OFFLINE, []


# --- S-6.1: persona adherence
def test_demo_s_6_1_michael_without_his_voice_scores_lower_offline(office: None, offline: None) -> None:
    run = evaluate_agent(agent=Agent.objects.get(slug="michael"), dimensions=("adherence",), samples=100).run

    scores = by_tag(run, "build")
    assert scores["41"] <= scores["40"] - 2
    low = worst_judgement(run, "adherence", "michael-self-centered")
    assert low is not None
    assert low.score is not None
    assert low.score <= 2
    assert "himself" in low.claim
    assert low.reasoning, "it says why"


# --- S-6.5: baselines
@pytest.mark.slow
def test_demo_s_6_5_three_baselines_and_a_later_delta(
    office: None, offline: None, capsys: pytest.CaptureFixture[str]
) -> None:

    call_command("capture_baseline", "--agents", "michael,dwight,jim", "--where", "build=40", "--json")

    document = json.loads(capsys.readouterr().out)
    assert [run["agent"] for run in document["runs"]] == ["michael", "dwight", "jim"]
    for run in document["runs"]:
        assert set(run["dimensions"]) == set(EVERYTHING)
        measured = [name for name, found in run["dimensions"].items() if found.get("score") is not None]
        assert set(measured) >= {"adherence", "convergence"}

    dwight = Agent.objects.get(slug="dwight")
    later = capture([RunSpec(agent=dwight, dimensions=("adherence",), where={"build": "41"})])[0].summary.run
    change = compare_to_baseline(later)

    assert change is not None
    adherence = next(found for found in change.dimensions if found.dimension == "adherence")
    assert adherence.delta is not None
    assert adherence.delta < -2
    assert adherence.verdict == "drifted"
