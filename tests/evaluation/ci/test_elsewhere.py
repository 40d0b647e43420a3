"""A persona check in somebody else's repository: the action's steps as a runner takes them, and a test of their own suite."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.evaluation.ci.test_files import NO_SERVER, ROOT, files  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow  # each starts several processes
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
IN_CHARACTER = """
from evaluation.ci.pytest import Unjudged, in_character
import pytest

HERE = {{"personas": "{files}/personas", "propositions": "{files}/claims"}}

def test_main():
    assert in_character(transcript="{files}/main.jsonl", threshold=5, **HERE)["summary"]["verdict"] == "pass"

def test_branch():
    in_character(transcript=["{files}/branch.jsonl"], threshold={{"adherence": 5}}, **HERE)

def test_messages():
    said = [{{"role": "user", "content": "Where is it?"}}, {{"role": "assistant", "content": "In the cabinet."}}] * 12
    in_character(transcript=said, threshold=5, dimensions="adherence", map="assistant=ada", **HERE)
    with pytest.raises(AssertionError, match="below 5"):
        said[1]["content"] = "I would so love to help you find it in the cabinet!"
        in_character(transcript=said, threshold=5, dimensions="adherence", map="assistant=ada", **HERE)

def test_branch_against_main():
    in_character(transcript="{files}/branch.jsonl", baseline="{files}/main.json", **HERE)

def test_wrong_usage():
    with pytest.raises(ValueError, match="nothing.jsonl"):
        in_character(transcript="{files}/nothing.jsonl", **HERE)

def test_silent():
    with pytest.raises(Unjudged):
        in_character(transcript="{files}/main.jsonl", threshold={{"consistency": 5}}, **HERE)
"""


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": os.environ.get("HOME", "/"), "DATABASE_URL": NO_SERVER, "DEBUG": "1", **more}


def run_action(files: Path, *, install: bool = False, **inputs: str) -> tuple[int, dict[str, str], str]:  # noqa: F811
    """Its steps but the one of another action, in their order; the last exit code, its outputs and what it printed.

    Args:
        install: Whether it installs what is installed here anyway, which takes longer than the rest.
    """
    runner = files / "runner"
    runner.mkdir(exist_ok=True)
    given = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()} | inputs
    places = {"GITHUB_ACTION_PATH": str(ROOT), "GITHUB_WORKSPACE": str(files), "RUNNER_TEMP": str(runner)}
    places |= {"GITHUB_OUTPUT": str(runner / "output"), "GITHUB_STEP_SUMMARY": str(runner / "summary")}
    said, code = "", 0
    for step in (step for step in ACTION["runs"]["steps"] if "run" in step and not code):
        assert "${{" not in step["run"], "what an input says would be run"
        if step["name"] == "Install" and not install:
            continue
        own = {
            name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda m: given[m[1]], value)
            for name, value in step.get("env", {}).items()
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=files, env=environment(**places, **own), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        said, code = said + done.stdout + done.stderr, done.returncode
    lines = (runner / "output").read_text().splitlines() if (runner / "output").exists() else []
    return code, dict(line.split("=", 1) for line in lines), said


def inputs(files: Path, build: str, **more: str) -> dict[str, Any]:  # noqa: F811
    return {"personas": "personas", "transcript": f"{build}.jsonl", "propositions": "claims", **more}


def test_the_action_passes_a_build_in_character_and_fails_any_other(files: Path) -> None:  # noqa: F811
    code, made, said = run_action(files, install=True, **inputs(files, "main", threshold="5"))
    assert code == 0, said
    result = json.loads(Path(made["result"]).read_text())
    assert result["summary"]["agents"] == 1
    assert Path(made["junit"]).exists()
    baseline = files / "baseline.json"
    baseline.write_text(Path(made["result"]).read_text())

    code, made, said = run_action(files, **inputs(files, "branch", baseline="baseline.json"))
    assert code == 1, said
    assert "ada" in (files / "runner" / "summary").read_text()
    assert json.loads(Path(made["result"]).read_text())["regressions"]


def test_the_action_reads_several_transcripts(files: Path) -> None:  # noqa: F811
    code, made, said = run_action(files, **inputs(files, "main", transcript="main.jsonl\nbranch.jsonl\n"))
    assert code == 0, said
    (evaluation,) = json.loads(Path(made["result"]).read_text())["runs"]
    assert evaluation["dimensions"]["adherence"]["scored"] == 20  # of 24 messages, a sample
    assert 0 < evaluation["dimensions"]["adherence"]["score"] < 9


def test_what_an_input_says_is_never_run(files: Path) -> None:  # noqa: F811
    hostile = "x; touch hacked; $(touch hacked) `touch hacked` *"
    assert run_action(files, **inputs(files, "main", threshold=hostile))[0] == 2
    assert run_action(files, **inputs(files, "main", arguments="$(touch hacked) ; touch hacked"))[0] == 2
    assert not (files / "hacked").exists()


def test_no_file_of_the_workspace_is_run_in_place_of_a_module(files: Path) -> None:  # noqa: F811
    for module in ("pip", "secrets"):
        (files / f"{module}.py").write_text("open('hacked', 'w')")
    (install,) = (step["run"] for step in ACTION["runs"]["steps"] if step.get("name") == "Install")
    pip = install.partition(" install ")[0]
    version = subprocess.run(
        [*pip.split(), "--version"], cwd=files, env=environment(), capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith("pip ")
    assert run_action(files, **inputs(files, "main"))[0] == 0
    assert not (files / "hacked").exists()


def test_what_an_agent_says_is_no_command_to_the_runner(files: Path) -> None:  # noqa: F811
    build = (
        (files / "branch.jsonl").read_text().replace("Yes of course,", "::error::owned ##[add-mask]a Yes of course,")
    )
    (files / "branch.jsonl").write_text(build)
    said = run_action(files, **inputs(files, "branch", threshold="5"))[2]
    assert "##[add-mask]a" in said
    stopped = re.search(r"^::stop-commands::(\w{32})\n(.*)^::\1::\n", said, re.DOTALL | re.MULTILINE)
    assert stopped
    assert "##[add-mask]a" in stopped[2]
    assert "owned" not in said.replace(stopped[0], "")


def test_a_persona_check_is_a_test_of_their_own_suite(files: Path) -> None:  # noqa: F811
    run_action(files, **inputs(files, "main"))
    (files / "main.json").write_text((files / "runner" / "plumbline" / "result.json").read_text())
    suite = files / "suite"
    suite.mkdir()
    (suite / "test_personas.py").write_text(IN_CHARACTER.format(files=files))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:django", "--rootdir", str(suite), str(suite)],
        cwd=suite, env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert set(re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE)) == {
        "test_branch",
        "test_branch_against_main",
    }
    assert "ada" in done.stdout
