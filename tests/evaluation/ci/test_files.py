"""Measuring a team's files: no server, no key, no database of ours, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.kit.running import stopping_on_sigterm
from agents.models import Agent, Channel
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from tests import zygote
from tests.evaluation.ci.building import planted, refused, report, run
from tests.evaluation.judging import answers
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer

ROOT = Path(__file__).resolve().parents[3]
NO_SERVER = "postgres://nobody:x@127.0.0.1:9/none"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A persona who is to be brief, a claim with a rule, and two builds of what she said."""
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas" / "ada.md").write_text("You are Ada, a dry clerk. You never say more than six words.")
    (tmp_path / "claims" / "adherence").mkdir(parents=True)
    (tmp_path / "claims" / "adherence" / "ada.yaml").write_text(
        "dimension: adherence\nagent_id: ada\npropositions:\n"
        '  - {id: ada-brief, claim: "{{agent_name}} is brief", rule: {max_words: 6}}\n'
    )
    said(tmp_path / "main.jsonl", [f"No, number {n}." for n in range(12)])
    said(tmp_path / "branch.jsonl", [f"Yes of course, I would love to help with number {n}!" for n in range(12)])
    return tmp_path


def said(path: Path, texts: Sequence[str], speaker: str = "ada") -> None:
    lines = [{"channel": "chat", "agent": speaker, "role": "agent", "text": text} for text in texts]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def arguments(files: Path, transcript: str, *more: str) -> list[str]:
    named = {"--transcript": transcript, "--personas": "personas", "--propositions": "claims"}
    return [*(part for option, name in named.items() for part in (option, str(files / name))), *more]


def environment(**changes: str) -> dict[str, str]:
    """As on a fresh machine: no key, and a database that is not there."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "JUDGE", "ACTOR"))
    }
    inherited.pop("WORKER_THREADS")  # several, as by default
    return {**inherited, "DATABASE_URL": NO_SERVER, "PROPOSITION_DIRS": "", "SENTRY_DSN": "", **changes}


def evaluate(options: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return zygote.run(
        [sys.executable, "manage.py", "evaluate", *options],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.mark.slow
def test_files_alone_gate_a_build_without_the_configured_database(files: Path) -> None:
    baseline = files / "baseline.json"

    before = evaluate(arguments(files, "main.jsonl", "--json", "--out", str(baseline)))
    after = evaluate(arguments(files, "branch.jsonl", "--json", "--baseline", str(baseline)))

    assert before.returncode == 0, before.stderr
    assert json.loads(before.stdout)["summary"]["without_baseline"] == ["ada"]
    assert after.returncode == 1, after.stderr
    document: dict[str, Any] = json.loads(after.stdout)
    (entry,) = (e for e in document["regressions"] if e["dimension"] == "adherence")
    assert (entry["agent"], entry["proposition"], entry["baseline"], entry["candidate"]) == (
        "ada",
        "ada-brief",
        9.0,
        0.0,
    )
    assert entry["worst_message"]["text"].startswith("Yes of course")
    assert document["summary"]["heuristic"] is True


@pytest.mark.django_db
def test_the_configured_database_is_neither_read_nor_written(files: Path) -> None:
    Agent.objects.create(slug="stored-before", display_name="Before", system_prompt="x")

    code, out, _ = run(*arguments(files, "main.jsonl"))

    assert code == 0
    assert "stored-before" not in out
    assert list(Agent.objects.values_list("slug", flat=True)) == ["stored-before"]
    assert (Channel.objects.count(), EvaluationRun.objects.count()) == (0, 0)


@pytest.mark.django_db
def test_speakers_under_another_name_are_told_who_they_are(files: Path) -> None:
    said(files / "roles.jsonl", ["No.", "Never."], speaker="assistant")

    complaint = refused(*arguments(files, "roles.jsonl"))

    assert "none of ada speaks in the transcript; its speakers: assistant" in complaint
    assert run(*arguments(files, "roles.jsonl", "--map", "assistant=ada"))[0] == 0


@pytest.mark.django_db
def test_a_log_with_keys_of_its_own_is_evaluated_once_they_are_named(files: Path) -> None:
    (files / "own.jsonl").write_text('{"who": "ada", "body": "No."}\n{"who": "ada", "body": "Never."}\n')

    assert "--columns text=KEY,speaker=KEY" in refused(*arguments(files, "own.jsonl"))
    assert run(*arguments(files, "own.jsonl", "--columns", "text=body,speaker=who"))[0] == 0


@pytest.mark.django_db
def test_what_had_to_be_assumed_about_a_transcript_is_said_beside_the_json(files: Path) -> None:
    (files / "chat.txt").write_text("01/02/2026, 10:00 - ada: No.\n03/04/2026, 10:00 - ada: Never.\n")

    code, out, complaint = run(*arguments(files, "chat.txt", "--json"))

    assert (code, json.loads(out)["summary"]["exit_code"]) == (0, 0)
    assert "chat.txt: Dates are read" in complaint
    assert "Dates are read" not in run(*arguments(files, "chat.txt", "--dates", "month-first"))[2]


@pytest.mark.django_db
def test_files_that_cannot_be_used_are_named(files: Path) -> None:
    (files / "bad.jsonl").write_text('{"channel": "chat"}\n')

    assert "bad.jsonl" in refused(*arguments(files, "bad.jsonl"))
    assert refused(*arguments(files, "no-such.jsonl")).count("no-such.jsonl") == 1
    twice = arguments(files, "main.jsonl", "--transcript", str(files / "main.jsonl"))
    assert "another one is called main" in refused(*twice)


@contextmanager
def waiting(server: LLMServer, files: Path) -> Iterator[subprocess.Popen[str]]:
    """The command in the middle of asking a judge that does not answer."""
    server.respond = lambda body: {**answers(lambda claim: 5)(body), "hold": True}
    process = zygote.Popen(
        [sys.executable, "manage.py", "evaluate", *arguments(files, "main.jsonl")],
        cwd=ROOT,
        env=environment(JUDGE_BASE_URL=server.url, JUDGE_MODEL="test-model", TMPDIR=str(files / "tmp")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.wait_until(lambda: server.inflight > 0, timeout=120)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.slow
def test_stopped_in_the_middle_it_leaves_nothing_behind(files: Path) -> None:
    (files / "tmp").mkdir()
    with LLMServer() as server, waiting(server, files) as process:
        process.send_signal(signal.SIGTERM)
        _, complaint = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "Files are measured in memory, so nothing was stored." in complaint
    assert list((files / "tmp").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_in_mid_statement_is_no_error_of_the_database(number: signal.Signals) -> None:
    database = sqlite3.connect(":memory:")
    database.create_function("interrupted", 0, lambda: signal.raise_signal(number))

    with pytest.raises(KeyboardInterrupt), stopping_on_sigterm():
        database.execute("SELECT interrupted()")


# -- A baseline that an earlier build kept as a file: what it may be, and what it may not
pytestmark = pytest.mark.django_db


@pytest.fixture
def baseline(two: Agent, llm_server: LLMServer, tmp_path: Path) -> Path:
    """What `evaluate --out` wrote of build 40."""
    planted(llm_server, mood=3)
    path = tmp_path / "baseline.json"
    assert run("--where", "build=40", "--out", str(path))[0] == 0
    assert not Baseline.objects.exists()
    return path


def test_a_regression_is_found_against_the_file_of_an_earlier_evaluate(baseline: Path) -> None:
    document = report("--where", "build=41", "--baseline", str(baseline))

    assert document["summary"]["exit_code"] == 1
    assert [entry["proposition"] for entry in document["regressions"]] == ["mood"]
    assert document["runs"][0]["baseline"] == str(baseline)
    assert document["runs"][0]["dimensions"]["adherence"]["interval"] is not None


def test_an_agent_the_file_does_not_hold_is_measured_and_not_compared(baseline: Path) -> None:
    talk(make_agent("bob"), ["line 1 of build 41"], tags={"build": "41"})

    document = report("--where", "build=41", "--baseline", str(baseline))

    assert document["summary"]["without_baseline"] == ["bob"]
    assert [entry["agent"] for entry in document["regressions"]] == ["ada"]


def test_another_judge_or_procedure_is_refused_before_anything_is_asked(
    baseline: Path, llm_server: LLMServer, settings: object
) -> None:
    asked = llm_server.calls

    said = refused("--baseline", str(baseline), "--hard")

    assert "ada was judged as plumbline, this evaluation would be judged as plumbline+hard" in said
    document = json.loads(baseline.read_text())
    baseline.write_text(json.dumps({**document, "judge": "other-model"}))
    assert "ada was judged by other-model, this evaluation would be judged by test-model" in refused(
        "--baseline", str(baseline)
    )
    assert llm_server.calls == asked
