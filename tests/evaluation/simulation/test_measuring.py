"""What is measured of simulated speech, and that real speech never mixes with it (AC-6.5.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent
from correction.gate.statistics import get_gate_statistics
from correction.models import AgentEvaluationConfig, CorrectionLog
from evaluation.change.evidence import get_baseline
from evaluation.change.measurement_files import as_json
from evaluation.models import EvaluationScore
from evaluation.runs.execute import capture
from evaluation.runs.numbers import RunSummary
from evaluation.runs.simulating import simulation_spec
from evaluation.runs.spec import RunSpec
from evaluation.simulation.conversations import Simulation
from evaluation.windows import parse_window
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, prompt_of
from tests.evaluation.simulation.acting import simulated
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db(transaction=True)

EVERYTHING = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")


@pytest.fixture
def ada(settings: Settings, propositions: PropositionFolder) -> Agent:
    settings.ACTOR_MODEL = "offline:scripted-1"
    propositions.claims("adherence/_default.yaml", "voice")
    for dimension in ("consistency", "fluency"):
        propositions.claims(f"{dimension}/_default.yaml", f"{dimension}-a", extra="include_personas: false")
    for dimension, extra in (("convergence", "include_personas: true"), ("ideas_quantity", "include_personas: false")):
        row = f"propositions: [{{id: {dimension[:5]}-a, claim: 'a claim', {extra}}}]"
        propositions.write(f"{dimension}/_default.yaml", f"dimension: {dimension}\ntarget_type: environment\n{row}\n")
    return make_agent("ada", sample_lines=["Simulated one.", "Simulated two.", "Simulated three."])


def measured(spec: RunSpec) -> RunSummary:
    return capture([spec])[0].summary


def spec_of(agent: Agent, simulation: Simulation, **fields: Any) -> RunSpec:
    return simulation_spec(RunSpec(agent=agent, **{"dimensions": EVERYTHING, **fields}), simulation)


def test_every_dimension_of_an_agent_is_judged_on_what_was_simulated(llm_server: LLMServer, ada: Agent) -> None:
    talk(ada, [f"real {n}" for n in range(5)])
    simulation = simulated(ada)
    llm_server.respond = answers(lambda claim: 7)

    summary = measured(spec_of(ada, simulation, window=parse_window("7d"), where={"build": "41"}, is_baseline=True))

    assert summary.run.status == "completed"
    assert (summary.run.simulated, summary.run.actor_model, summary.run.procedure) == (
        True,
        "offline:scripted-1",
        "plumbline+simulated",
    )
    assert {name: d.score for name, d in summary.dimensions.items() if d.measured} == {"adherence": 7.0, "fluency": 7.0}
    assert summary.dimensions["adherence"].scored == simulation.messages == 3
    read = "\n".join(map(prompt_of, llm_server.bodies))
    assert "Simulated one." in read
    assert "real" not in read
    assert set(get_baseline(agent=ada, judge="test-model", procedure="plumbline+simulated")) == {"adherence", "fluency"}
    assert get_baseline(agent=ada, judge="test-model") == {}


def test_what_cannot_be_measured_of_simulated_speech_says_why(llm_server: LLMServer, ada: Agent) -> None:
    simulation = simulated(ada)
    llm_server.respond = answers(lambda claim: 7)

    results = capture([spec_of(ada, simulation)])

    run = as_json("test-model", results)["runs"][0]
    assert (run["simulated"], run["actor_model"], run["procedure"]) == (
        True,
        "offline:scripted-1",
        "plumbline+simulated",
    )
    assert "one agent at a time" in run["dimensions"]["convergence"]["reason"]
    assert "one agent at a time" in run["dimensions"]["ideas_quantity"]["reason"]
    (unscored,) = EvaluationScore.objects.filter(dimension="consistency")
    assert "what was simulated has no past" in unscored.reason


def test_a_simulation_of_another_agent_is_refused(ada: Agent) -> None:
    bob = make_agent("bob", sample_lines=["x"])
    simulation = simulated(ada)

    with pytest.raises(ValueError, match="'bob' is not in this simulation; allowed: 'ada'"):
        simulation_spec(RunSpec(agent=bob), simulation)


# -- real speech
def test_real_speech_is_measured_without_what_was_simulated_ac_6_5_2(llm_server: LLMServer, ada: Agent) -> None:
    talk(ada, [f"real {n}" for n in range(8)])
    simulated(ada, repeats=3)
    llm_server.respond = answers(lambda claim: 7)

    summary = measured(RunSpec(agent=ada, dimensions=EVERYTHING[:4]))

    read = "\n".join(json.dumps(body) for body in llm_server.bodies)
    assert "real 7" in read
    assert "Simulated" not in read
    assert "-talk-" not in read
    shares = summary.run.channel_shares.values_list("channel_run__channel__slug", flat=True)
    assert list(shares) == ["office"]


def test_the_gates_figures_hold_no_simulated_line_ac_6_5_2(ada: Agent) -> None:
    talk(ada, [f"real {n}" for n in range(8)])
    AgentEvaluationConfig.objects.create(agent=ada, gate_mode="enforce", gate_adherence_enabled=True)
    simulated(ada)

    assert not CorrectionLog.objects.exists()
    for synthetic in (False, True):
        assert get_gate_statistics(ada, synthetic=synthetic).total_actions == 0
