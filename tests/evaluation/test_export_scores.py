"""Scores as rows: one per message and proposition, with everything needed to trace a number back."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.models import Agent
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.execute import capture
from evaluation.runs.export import COLUMNS
from evaluation.runs.spec import RunSpec
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, entry
from tests.factories import speaking
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(settings: Settings, llm_server: LLMServer, propositions: PropositionFolder) -> Agent:
    """An agent with two messages, measured twice: the baseline, and an earlier one of another seed."""
    settings.LLM_EVALUATION_RETRIES = 0
    propositions.write(
        "adherence/_default.yaml",
        """
        propositions:
          - {id: strict, claim: strict, hard: true}
          - {id: flipped, claim: flipped, inverted: true, weight: 2.0}
          - {id: brief, claim: brief, rule: {max_words: 2}}
          - {id: broken, claim: broken}
        """,
    )
    judged = {"strict": entry(9, flaws=["a", "b"]), "flipped": entry(2, flaws=[]), "broken": entry("7")}
    llm_server.respond = answers(judged.__getitem__)
    agent = speaking("ada", ["=1+1", "Never, “ever”,\nagain"])
    for seed in (1, 2):
        capture([RunSpec(agent=agent, dimensions=("adherence",), is_baseline=True, seed=seed)])
    return agent


def exported(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    call_command("export_scores", *arguments)
    return capsys.readouterr().out


def as_rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_row_holds_the_score_and_all_it_came_from(ada: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    rows = as_rows(exported("--format", "jsonl", capsys=capsys))
    run = EvaluationRun.objects.latest("pk")

    assert len(rows) == 2 * 4
    assert all(tuple(row) == COLUMNS for row in rows)
    strict = next(r for r in rows if r["proposition_id"] == "strict")
    assert (strict["score"], strict["raw_score"], strict["flaws"], strict["status"]) == (5, 9, ["a", "b"], "scored")
    assert (strict["agent"], strict["channel"], strict["text"], strict["sent_at"]) == (
        *("ada", "office", "=1+1", "2026-11-02T09:00:00+00:00"),
    )
    assert (strict["judge"], strict["served_model"], strict["seed"], strict["window"]) == (
        "test-model",
        "test-model",
        2,
        "all",
    )
    assert (strict["persona_digest"], strict["proposition_digest"]) == (run.persona_digest, run.proposition_digest)
    assert strict["reasoning"]
    flipped = next(r for r in rows if r["proposition_id"] == "flipped")
    assert (flipped["score"], flipped["raw_score"], flipped["inverted"], flipped["weight"]) == (7, 2, True, 2.0)
    brief = next(r for r in rows if r["proposition_id"] == "brief")
    assert (brief["judge"], brief["score"]) == ("rule", 9)
    broken = next(r for r in rows if r["proposition_id"] == "broken")
    assert (broken["status"], broken["score"], broken["judge"]) == ("unscored", None, "test-model")
    assert broken["reason"].startswith("malformed: ")


def test_csv_and_jsonl_say_the_same(ada: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    table = list(csv.DictReader(io.StringIO(exported("--format", "csv", capsys=capsys))))
    rows = as_rows(exported("--format", "jsonl", capsys=capsys))

    assert [r["proposition_id"] for r in table] == [r["proposition_id"] for r in rows]
    assert [r["score"] for r in table] == ["" if r["score"] is None else str(r["score"]) for r in rows]
    assert (table[0]["text"], rows[0]["text"]) == ("'=1+1", "=1+1"), "no cell is run as a formula"
    assert table[-1]["text"] == rows[-1]["text"] == "Never, “ever”,\nagain"
    assert json.loads(next(r["flaws"] for r in table if r["proposition_id"] == "strict")) == ["a", "b"]


def test_by_default_the_current_baselines_are_exported(ada: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = EvaluationRun.objects.order_by("pk")

    assert {r["evaluation_run"] for r in as_rows(exported("--format", "jsonl", capsys=capsys))} == {second.pk}
    everything = as_rows(exported("--format", "jsonl", "--all", capsys=capsys))
    assert {r["evaluation_run"] for r in everything} == {first.pk, second.pk}
    assert len(everything) == 16
    one = as_rows(exported("--format", "jsonl", "--run", str(first.pk), capsys=capsys))
    assert {r["evaluation_run"] for r in one} == {first.pk}


def test_judgements_still_to_be_made_are_not_exported(ada: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    EvaluationScore.objects.filter(proposition_id="broken").update(status="pending", reason="")

    rows = as_rows(exported("--format", "jsonl", capsys=capsys))

    assert {r["proposition_id"] for r in rows} == {"strict", "flipped", "brief"}


def test_a_deleted_message_leaves_its_score(ada: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    ada.messages.all().delete()

    rows = as_rows(exported("--format", "jsonl", capsys=capsys))

    assert len(rows) == 8
    assert {(r["text"], r["channel"], r["message"]) for r in rows} == {(None, None, None)}


def test_it_writes_to_a_file_and_says_how_much(ada: Agent, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scores.csv"

    call_command("export_scores", "--out", str(path))

    assert len(list(csv.DictReader(path.open(encoding="utf-8", newline="")))) == 8
    assert capsys.readouterr().err == f"8 rows written to {path}.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--run", "987654"], "--run 987654: there is no such evaluation run"),
        (["--agents", "zed"], "no agent 'zed'; agents: ada"),
        (["--agents", "ada,adda"], "no agent 'adda'; did you mean ada?"),
        (["--out", "/nowhere/scores.csv"], "--out /nowhere/scores.csv: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_said(ada: Agent, arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        call_command("export_scores", *arguments)
