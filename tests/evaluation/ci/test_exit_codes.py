"""The exit codes of docs/how-to/fail-a-build.md, as the shell sees them, whatever ends a command."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError, call_command

from agents.models import Agent
from tests import zygote
from tests.evaluation.ci.building import run
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.processes import ROOT, environment, rows
from tests.evaluation.test_resume import (
    ANSWERED,
    MESSAGES,
    database,
    run_in_the_middle,
    scored,
    server,
    started,
    template,
)
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer


def shell(
    command: str, stdout: Any = subprocess.PIPE, stderr: Any = subprocess.PIPE, **env: str
) -> subprocess.CompletedProcess[str]:
    return zygote.run(
        [sys.executable, "manage.py", *command.split()],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": "sqlite:///:memory:", "ANTHROPIC_API_KEY": "", **env},
        stdout=stdout,
        stderr=stderr,
        text=True,
        timeout=120,
    )


# -- what stands in the way before anything is asked
@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"JUDGE_MODEL": "claude-haiku-5-5"}, "no key is set: set ANTHROPIC_API_KEY"),
        ({"JUDGE_MODEL": "m", "JUDGE_BASE_URL": "localhost:11434"}, "must start with http:// or https://"),
        ({"JUDGE_MODEL": "offline:nothing"}, "there is no such offline model"),
        ({"PROPOSITION_DIRS": "{tmp}/nowhere"}, "PROPOSITION_DIRS: there is no such folder"),
    ],
)
def test_settings_that_cannot_be_used_are_3_and_a_sentence(env: dict[str, str], said: str, tmp_path: Path) -> None:
    done = shell("evaluate", **{name: value.format(tmp=tmp_path) for name, value in env.items()})

    assert (done.returncode, done.stdout) == (3, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_judge_without_a_key_is_3_and_a_senseless_option_2_for_the_shell() -> None:
    assert shell("compare --a build=40 --b build=41", JUDGE_MODEL="claude-haiku-5-5").returncode == 3
    done = shell("evaluate --threshold ten")
    assert (done.returncode, done.stdout) == (2, "")
    assert "threshold" in done.stderr


def test_a_shell_reads_the_verdict_once(tmp_path: Path) -> None:
    personas = tmp_path / "ada.yaml"
    personas.write_text("slug: ada\ndisplay_name: Ada\nsystem_prompt: You are Ada.\n")
    propositions = tmp_path / "rules" / "adherence" / "_default.yaml"
    propositions.parent.mkdir(parents=True)
    propositions.write_text("propositions: [{id: short, claim: is short, rule: {max_words: 2}}]\n")
    talk = tmp_path / "talk.txt"
    talk.write_text("".join(f"Ada: This is far too long {n}\n" for n in range(9)))
    command = f"evaluate --personas {personas} --transcript {talk} --propositions {tmp_path}/rules --dimensions adherence --threshold 5"

    shown, as_json = shell(command), shell(f"{command} --json")

    assert (shown.returncode, as_json.returncode) == (1, 1), shown.stderr
    assert (shown.stdout.count("1 score below threshold"), shown.stderr) == (1, "")
    assert "1 score below threshold" in as_json.stderr  # standard output is for programs
    assert json.loads(as_json.stdout)["summary"]["exit_code"] == 1

    for stderr in (subprocess.PIPE, subprocess.STDOUT):
        with (tmp_path / "report.txt").open("w+") as report:
            redirected = shell(command, stdout=report, stderr=stderr)
            assert redirected.returncode == 1
            report.seek(0)
            assert report.read().count("1 score below threshold") == 1
        if stderr == subprocess.PIPE:
            # A person who sends the report into a file sees the verdict, too.
            assert redirected.stderr.count("1 score below threshold") == 1


# -- a judge that refuses what it is asked with
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "invalid x-api-key"), (400, "Invalid model name passed in model=nope")],
)
def test_a_judge_that_refuses_key_or_model_is_3(two: Agent, llm_server: LLMServer, status: int, words: str) -> None:
    llm_server.always(status=status, message=words)
    others = []
    for command in (("capture_baseline", "--no-simulate"), ("compare", "--a", "build=40", "--b", "build=41")):
        with pytest.raises(CommandError) as ended:
            call_command(*command, stdout=io.StringIO(), stderr=io.StringIO())
        others.append((ended.value.returncode, f"HTTP {status}" in str(ended.value)))

    code, _, said = run()
    assert (code, others) == (3, [(3, True), (3, True)])
    assert f"HTTP {status}" in said


# -- no score under the name of a judge that answered nothing
@pytest.mark.django_db
def test_a_judge_that_answered_nothing_has_no_score(
    propositions: PropositionFolder, llm_server: LLMServer, tmp_path: Path
) -> None:
    propositions.write(
        "adherence/_default.yaml",
        """
        propositions:
          - {id: short, claim: "{{agent_name}} is short", rule: {max_words: 9}}
          - {id: dry, claim: "{{agent_name}} is dry"}
        """,
    )
    talk(make_agent("ada"), [f"line {n}" for n in range(12)], channel=make_channel("c"))
    llm_server.always(status=500)
    files = {name: tmp_path / name for name in ("junit", "markdown", "out")}
    code, table, _ = run("--dimensions", "adherence", *(f"--{name}={path}" for name, path in files.items()))

    assert code == 2
    assert "9.0" not in table
    assert next(line for line in table.splitlines() if "ada" in line).split()[:2] == ["ada", "–"]
    assert "9.0" not in files["markdown"].read_text()
    (measured,) = json.loads(files["out"].read_text())["runs"]
    assert (measured["overall_score"], measured["dimensions"]["adherence"]["score"]) == (None, None)
    assert "unavailable" in json.dumps(json.loads(files["out"].read_text())["could_not_judge"])
    case = ElementTree.fromstring(files["junit"].read_text()).find(".//testcase")  # noqa: S314 (ours)
    assert case is not None
    assert case.find("error") is not None
    assert "9.0" not in files["junit"].read_text()
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("capture_baseline", "--dimensions", "adherence", "--no-simulate", "--json", stdout=out)
    assert json.loads(out.getvalue())["runs"][0]["dimensions"]["adherence"]["score"] is None


# -- a reader that leaves early
@pytest.mark.parametrize(
    ("threshold", "agents", "code", "lines"),
    [("9", "ada", 1, 1), ("5", "ada,bob", 2, 1)],
)
def test_a_closed_pipe_keeps_the_verdicts_code(
    threshold: str, agents: str, code: int, lines: int, tmp_path: Path
) -> None:
    (tmp_path / "personas").mkdir()
    (tmp_path / "claims" / "adherence").mkdir(parents=True)
    for slug in ("ada", "bob"):
        (tmp_path / "personas" / f"{slug}.md").write_text(f"You are {slug}, a terse clerk.")
    (tmp_path / "claims" / "adherence" / "ada.yaml").write_text(
        "propositions:\n  - {id: ada-short, claim: '{{agent_name}} is short', rule: {max_words: 3}}\n"
    )
    rows = [
        {"channel": "c", "agent": "ada", "role": "agent", "text": t} for t in ["Filed it.", "A b c d."] + ["No."] * 10
    ]
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with zygote.Popen(
        [
            *(sys.executable, "manage.py", "evaluate", "--personas", str(tmp_path / "personas"), "--agents", agents),
            *("--transcript", str(tmp_path / "chat.jsonl"), "--propositions", str(tmp_path / "claims")),
            *("--dimensions", "adherence", "--threshold", threshold),
        ],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": "sqlite:///:memory:", "JUDGE_MODEL": "offline:lexical-1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
        ended = process.wait(timeout=120)

    assert ended == code, said
    assert "Traceback" not in said
    assert "BrokenPipe" not in said


# -- An evaluation that ends in the middle loses nothing: the same command takes it up. Real processes, o
__all__ = ["database", "server", "template"]  # fixtures

EVALUATE = (sys.executable, "manage.py", "evaluate", "--agents", "ada", "--dimensions", "adherence", "--json")


@pytest.mark.slow
def test_ctrl_c_says_how_to_resume_and_resuming_asks_only_the_rest(database: Path, server: LLMServer) -> None:
    with started(EVALUATE, database, server) as process:
        run_in_the_middle(server, database)
        process.send_signal(signal.SIGINT)
        out, complaint = process.communicate(timeout=120)

    assert (process.returncode, out) == (130, "")
    assert "run the same command again to go on with the rest" in complaint
    assert scored(database) == ANSWERED

    server.release()
    again = zygote.run(
        EVALUATE,
        cwd=ROOT,
        env=environment(database, server),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["summary"]["judgements"]["scored"] == 3 * MESSAGES
    assert rows(database, "select count(*) from llm_calls where status = 'ok'") == [(MESSAGES,)], (
        "nothing is judged twice"
    )
    assert rows(database, "select status, attempt from evaluation_runs") == [("completed", 2)]
