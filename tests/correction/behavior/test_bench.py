"""``manage.py dev bench_behavior``: how well a judge reads labelled messages."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from correction.behavior.bench import Command, JudgedCase, figures_of
from tests.correction.behavior.asking import SHORTER, YES, judge
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
KEYS = ["n", "precision", "recall", "f1", "false_positive_rate"]


@pytest.fixture(autouse=True)
def _one_thread(settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY = 1  # threads would meet the test's transaction on SQLite


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    return written(
        tmp_path,
        {"text": "Be more concise", "request": True, "kind": "direct", "language": "en"},
        {"message": "Please stop using emoji.", "has_request": True},
        {"text": "Pirates say arrr", "request": False},
        {"text": "😀", "request": False},
    )


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "cases.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def run(*arguments: Any) -> str:
    out = io.StringIO()
    call_command(Command(), *map(str, arguments), stdout=out)
    return out.getvalue()


def refused(*arguments: Any) -> tuple[str, int]:
    with pytest.raises(CommandError) as ended:
        run(*arguments)
    return str(ended.value), ended.value.returncode


def test_offline_figures_come_as_json(cases: Path, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"

    result = json.loads(run(cases, "--json"))

    assert list(result)[:5] == KEYS
    assert [result[key] for key in KEYS] == [4, 1.0, 1.0, 1.0, 0.0]
    assert (result["judge"], result["heuristic"], result["unscored"]) == ("offline:lexical-1", True, 0)
    assert result["intervals"]["recall"][0] < 0.5


def test_wrong_judgements_are_shown_and_failures_enter_no_figure(cases: Path, llm_server: LLMServer) -> None:
    answers = {"arrr": {**YES, "confidence": "low"}, "emoji": {"scripted": {"text": "no idea"}}}
    llm_server.respond = judge(
        gate=lambda prompt: next((answer for word, answer in answers.items() if word in prompt), YES),
        extract={**SHORTER, "behavior_name": ""},
    )
    out = io.StringIO()

    with pytest.raises(CommandError, match="1 of 4 messages could not be judged: gate: malformed") as ended:
        call_command(Command(), str(cases), "--json", stdout=out)

    result = json.loads(out.getvalue())
    assert ended.value.returncode == 2
    assert [result[key] for key in KEYS] == [3, 0.5, 1.0, 0.6667, 0.5]
    assert (result["unscored"], result["cases"][2]["found"], result["cases"][2]["confidence"]) == (1, True, "low")
    with pytest.raises(CommandError):
        call_command(Command(), str(cases), stdout=(shown := io.StringIO()))
    for part in ("4 messages judged by test-model", "false_positive_rate", "0.500", "Pirates say arrr", "unpriced"):
        assert part in shown.getvalue()


def test_each_labelled_request_is_compared_with_its_trait_and_direction(tmp_path: Path, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    rows: list[tuple[str, str, float | None, str]] = [
        ("Stop using emoji", "emoji usage", 0.0, "right"),
        ("Use emoji sometimes", "emoji usage", 0.3, "right"),
        ("be more concise", "concise responses", None, "right"),
        ("no more jokes", "jokes", 0.9, "opposite"),
        ("stop swearing", "puns", 0.0, "other trait"),
        ("use fewer puns", "puns", None, "other strength"),
        ("Every footnote you add sends me scrolling.", "footnotes", 0.0, "no trait"),
    ]
    labelled = [
        {"text": text, "request": True, "behavior": trait, "strength": strength} for text, trait, strength, _ in rows
    ]
    path = written(tmp_path, *labelled)

    result = json.loads(run(path, "--json"))

    assert [case["verdict"] for case in result["cases"]] == [verdict for *_, verdict in rows]
    assert (result["traits"]["n"], result["traits"]["right"], result["traits"]["opposite"]) == (7, 3, 1)
    assert "3 of 7 labelled requests; opposite: 1" in run(path)


def test_a_judge_that_answers_nothing_is_not_asked_for_ever(tmp_path: Path, llm_server: LLMServer) -> None:
    llm_server.always(status=400)
    rows = [{"text": f"message number {i}", "request": False} for i in range(150)]

    assert refused(written(tmp_path, *rows))[1] == 2
    assert llm_server.calls < 100


def test_wrong_lines_are_named(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"text": "a", "request": True},
        "{",
        {"text": "b"},
    )

    said, code = refused(path)

    assert code == 3
    assert "line 1:" not in said
    assert "line 2: answer: Invalid JSON" in said
    assert "line 3: request: Field required" in said


def test_figures_are_what_they_are_called() -> None:
    counts = {(True, True): 6, (False, True): 2, (True, False): 4, (False, False): 8}
    cases = [JudgedCase(text="a", request=is_one, found=said) for (is_one, said), n in counts.items() for _ in range(n)]

    result = figures_of(cases)

    assert (result["precision"], result["recall"], result["false_positive_rate"]) == (0.75, 0.6, 0.2)
    assert result["f1"] == pytest.approx(2 * 0.75 * 0.6 / 1.35, abs=1e-4)
    nothing = figures_of(cases[-5:])
    assert (nothing["f1"], nothing["recall"], nothing["intervals"]["recall"]) == (None, None, None)
