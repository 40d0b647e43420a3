"""``evaluate --simulate``: a team's own situations are simulated and held against an earlier simulation of the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.kit.models import LLMCall
from agents.models import Agent, Channel, Message
from evaluation.models import EvaluationRun
from tests.evaluation.ci.building import report, run
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, tail_of
from tests.evaluation.simulation.acting import acts
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
SITUATIONS = [f"situation-{n}" for n in range(6)]


@pytest.fixture
def situations(tmp_path: Path) -> Path:
    rows = "\n".join(f"  - {{id: {name}, lines: ['What of {name}?']}}" for name in SITUATIONS)
    path = tmp_path / "situations.yaml"
    path.write_text(f"situations:\n{rows}\n")
    return path


@pytest.fixture
def actor(propositions: PropositionFolder, llm_server: LLMServer) -> Agent:
    """An agent whose model answers in its own name: what `good-model` says scores 8, what `bad-model` says 2."""
    propositions.claims("adherence/_default.yaml", "voice")

    def respond(body: dict[str, object]) -> dict[str, object] | None:
        if "tools" in body:
            return acts(lambda asked: f"{asked['model']} speaks.")(body)
        return answers(lambda claim: 2 if "bad-model speaks" in tail_of(body) else 8)(body)

    llm_server.respond = respond
    return make_agent("ada")


def test_a_worse_model_is_found_before_release_paired_by_situation(
    actor: Agent, situations: Path, tmp_path: Path
) -> None:
    baseline = tmp_path / "good.json"
    code, out, _ = run("--simulate", str(situations), "--actor-model", "good-model", "--out", str(baseline))
    assert code == 0
    assert "Simulated conversations" in out

    document = report("--simulate", str(situations), "--actor-model", "bad-model", "--baseline", str(baseline))

    assert document["summary"]["exit_code"] == 1
    assert [entry["proposition"] for entry in document["regressions"]] == ["voice"]
    assert document["regressions"][0]["worst_message"]["text"] == "bad-model speaks."
    dimension = document["runs"][0]["dimensions"]["adherence"]
    assert (dimension["paired"], dimension["unit"], dimension["n"]) == (True, "situations", len(SITUATIONS))
    assert document["summary"]["procedure"] == "plumbline+simulated"
    assert Channel.objects.filter(synthetic=False).count() == 0


def test_simulates_of_other_situations_are_not_compared(actor: Agent, situations: Path, tmp_path: Path) -> None:
    baseline, other = tmp_path / "good.json", tmp_path / "other.yaml"
    other.write_text("situations:\n  - {id: elsewhere, lines: ['Hello?']}\n  - {id: nowhere, lines: ['Who?']}\n")
    run("--simulate", str(situations), "--actor-model", "good-model", "--out", str(baseline))

    document = report("--simulate", str(other), "--actor-model", "bad-model", "--baseline", str(baseline))

    assert (document["regressions"], document["summary"]["without_baseline"]) == ([], ["ada"])
    assert "other situations" in document["runs"][0]["baseline_notes"][0]


def test_an_actor_that_is_down_exits_2(actor: Agent, situations: Path, llm_server: LLMServer) -> None:
    llm_server.respond = lambda body: {"status": 500}

    code, out, said = run("--simulate", str(situations))

    assert code == 2
    assert "simulation:" in out
    assert "could not judge enough" in said


def test_personas_alone_are_simulated_without_a_database(actor: Agent, situations: Path, tmp_path: Path) -> None:
    personas = tmp_path / "personas"
    personas.mkdir()
    (personas / "eve.md").write_text("You are Eve.")

    document = report("--personas", str(personas), "--simulate", str(situations), "--actor-model", "good-model")

    assert [entry["agent"] for entry in document["runs"]] == ["eve"]
    assert document["summary"]["judgements"]["scored"] == len(SITUATIONS)
    assert not Message.objects.exists()


def test_a_dry_run_estimates_turns_and_judgements_and_asks_and_stores_nothing(
    actor: Agent, situations: Path, llm_server: LLMServer
) -> None:
    command = ("--simulate", str(situations), "--actor-model", "good-model", "--repeats", "2")
    code, out, _ = run(*command, "--dry-run", "--json")

    document = json.loads(out)
    (simulation,), (judging,) = document["simulations"], document["agents"]
    lines = 2 * len(SITUATIONS)
    assert code == 0
    assert (simulation["agent"], simulation["actor_model"], simulation["lines"], simulation["calls"]) == (
        "ada",
        "good-model",
        lines,
        2 * lines,
    )
    assert (judging["judgements"], judging["calls"]) == (lines, lines)
    assert llm_server.calls == 0
    assert [model.objects.count() for model in (Message, Channel, EvaluationRun)] == [0, 0, 0]

    report(*command)
    real = {purpose: LLMCall.objects.filter(purpose=purpose) for purpose in ("turn", "evaluation")}
    assert (real["turn"].count(), real["evaluation"].count()) == (simulation["calls"], judging["calls"])
