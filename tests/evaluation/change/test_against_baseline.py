"""A run against its agent's current baselines (AC-6.5.4, AC-6.5.8)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pytest_django import Settings

from agents.models import Agent
from evaluation.change.choosing import compare_to_baseline
from evaluation.change.comparison import Comparison
from evaluation.change.measurements import measurement_of
from evaluation.models import EvaluationRun
from tests.evaluation.change.measured import judge, run_of
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import make_run
from tests.factories import MONDAY, make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(propositions: PropositionFolder) -> Agent:
    """Eight messages of build 1, eight of build 2 a day later."""
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    propositions.claims("fluency/_default.yaml", "varied", extra="include_personas: false")
    agent = make_agent("ada")
    for build in ("1", "2"):
        said = {"sent_at": MONDAY + timedelta(days=int(build)), "tags": {"build": build}}
        talk(agent, [f"Line {n} of {build}." for n in range(8)], channel=make_channel(build), **said)
    return agent


def against_baseline(run: EvaluationRun) -> Comparison:
    found = compare_to_baseline(run)
    assert found is not None
    return found


def test_a_run_is_compared_with_its_baseline_ac_6_5_4(llm_server: LLMServer, ada: Agent) -> None:
    judge(llm_server, voice=8)
    run_of(ada, "1", is_baseline=True)
    judge(llm_server, voice=2, varied=9)

    found = against_baseline(run_of(ada, "2"))

    assert {c.dimension: (c.baseline, c.candidate, c.delta) for c in found.dimensions} == {
        "adherence": (7.0, 4.0, -3.0),
        "fluency": (5.0, 9.0, 4.0),
    }
    assert [(c.proposition, c.delta, c.verdict) for c in found.propositions["adherence"]] == [
        ("voice", -6.0, "drifted"),
        ("mood", 0.0, "not enough data"),  # all equal, but a handful: another message may score otherwise
    ]
    assert [(c.dimension, c.proposition) for c in found.worse] == [("adherence", ""), ("adherence", "voice")]
    assert found.baseline.name.startswith("baseline of ")


def test_each_dimension_is_compared_with_its_own_baseline_ac_6_5_4(llm_server: LLMServer, ada: Agent) -> None:
    judge(llm_server, voice=8, varied=5)
    run_of(ada, "1", is_baseline=True)
    judge(llm_server, voice=1, varied=8)
    run_of(ada, "1", is_baseline=True, dimensions=("fluency",))

    found = against_baseline(run_of(ada, "2"))

    assert {c.dimension: c.baseline for c in found.dimensions} == {"adherence": 7.0, "fluency": 8.0}
    assert found.baseline.evaluation_run is None, "it comes from two runs"
    assert [c.dimension for c in against_baseline(run_of(ada, "2", dimensions=("fluency",))).dimensions] == ["fluency"]


def test_a_rule_that_changed_is_seen_though_its_claim_did_not(ada: Agent, propositions: PropositionFolder) -> None:
    for words in (3, 30):
        propositions.claims("adherence/_default.yaml", "terse", extra=f"rule: {{max_words: {words}}}")
        run = run_of(ada, "1", dimensions=("adherence",), is_baseline=words == 3)

    assert against_baseline(run).changed == ("adherence/terse",)


def test_only_a_baseline_of_the_same_judge_and_procedure_compares(
    llm_server: LLMServer, settings: Settings, ada: Agent
) -> None:
    judge(llm_server, voice=8)
    baseline = run_of(ada, "1", is_baseline=True)

    assert compare_to_baseline(baseline) is None, "not with itself"
    assert compare_to_baseline(run_of(ada, "2", hard=True)) is None
    settings.JUDGE_MODEL = "another-model"
    assert compare_to_baseline(run_of(ada, "2")) is None
    assert compare_to_baseline(make_run()) is None, "a channel has no baseline"


def test_the_same_words_said_twice_are_two_messages(llm_server: LLMServer, ada: Agent) -> None:
    talk(ada, ["yawns"] * 6, channel=make_channel("sofa"), tags={"build": "3"})
    judge(llm_server, voice=8)

    observed = measurement_of(run_of(ada, "3")).dimensions["adherence"].propositions["voice"].observations

    assert len({one.cluster for one in observed}) == 6
