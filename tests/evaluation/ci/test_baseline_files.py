"""A baseline that an earlier build kept as a file: what it may be, and what it may not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import call_command

from agents.models import Agent
from evaluation.models import Baseline
from tests.evaluation.ci.building import planted, refused, report, run
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def kept(two: Agent, llm_server: LLMServer, tmp_path: Path) -> Path:
    """What `evaluate --out` wrote of build 40."""
    planted(llm_server, mood=3)
    path = tmp_path / "baseline.json"
    assert run("--where", "build=40", "--out", str(path))[0] == 0
    assert not Baseline.objects.exists()
    return path


def test_a_regression_is_found_against_the_file_of_an_earlier_evaluate(kept: Path) -> None:
    found = report("--where", "build=41", "--baseline", str(kept))

    assert found["summary"]["exit_code"] == 1
    assert [entry["proposition"] for entry in found["regressions"]] == ["mood"]
    assert found["runs"][0]["baseline"] == str(kept)
    assert found["runs"][0]["dimensions"]["adherence"]["interval"] is not None


def test_what_capture_baseline_printed_serves_too(two: Agent, llm_server: LLMServer, tmp_path: Path) -> None:
    planted(llm_server, mood=3)
    path = tmp_path / "captured.json"
    with path.open("w") as out:
        call_command("capture_baseline", "--no-simulate", "--json", "--where", "build=40", stdout=out)

    assert run("--where", "build=41", "--baseline", str(path))[0] == 1
    assert run("--where", "build=40", "--baseline", str(path))[0] == 0


def test_an_agent_the_file_does_not_hold_is_measured_and_not_compared(kept: Path) -> None:
    talk(make_agent("bob"), ["line 1 of build 41"], tags={"build": "41"})

    found = report("--where", "build=41", "--baseline", str(kept))

    assert found["summary"]["without_baseline"] == ["bob"]
    assert [entry["agent"] for entry in found["regressions"]] == ["ada"]


def test_another_judge_or_procedure_is_refused_before_anything_is_asked(
    kept: Path, llm_server: LLMServer, settings: object
) -> None:
    asked = llm_server.calls

    said = refused("--baseline", str(kept), "--hard")

    assert "ada was judged as plumbline, this evaluation would be judged as plumbline+hard" in said
    document = json.loads(kept.read_text())
    kept.write_text(json.dumps({**document, "judge": "other-model"}))
    assert "ada was judged by other-model, this evaluation would be judged by test-model" in refused(
        "--baseline", str(kept)
    )
    assert llm_server.calls == asked


def test_a_file_of_other_agents_is_refused(kept: Path) -> None:
    make_agent("bob")

    assert "holds none of bob; it holds ada" in refused("--agents", "bob", "--baseline", str(kept))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"judge": "x", "runs": [{"agent": "ada"}]}', "\x00"])
def test_a_file_that_is_no_baseline_is_refused(two: Agent, tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(text)

    assert "b.json" in refused("--baseline", str(path))
