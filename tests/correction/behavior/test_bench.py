"""``python -m tests.bench --only behavior``: how well a judge reads labelled messages."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from pytest_django import Settings

from tests.bench.behavior import Case, Judged, figures_of, judge_cases, read_cases, show
from tests.correction.behavior.asking import SHORTER, YES, judge
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _one_thread(settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY = 1  # threads would meet the test's transaction on SQLite


def test_each_labelled_request_is_compared_with_its_trait_and_direction(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    rows: list[tuple[str, str, float | None]] = [
        ("Stop using emoji", "emoji usage", 0.0),
        ("Use emoji sometimes", "emoji usage", 0.3),
        ("be more concise", "concise responses", None),
        ("no more jokes", "jokes", 0.9),
        ("stop swearing", "puns", 0.0),
        ("Every footnote you add sends me scrolling.", "footnotes", 0.0),
    ]

    judged = judge_cases([Case(text=text, request=True, behavior=name, strength=s) for text, name, s in rows])

    assert [case.verdict for case in judged] == ["right", "right", "right", "opposite", "other trait", "no trait"]


def test_what_was_judged_wrongly_is_shown_and_what_could_not_be_judged_is_in_no_figure(llm_server: LLMServer) -> None:
    answers = {"arrr": {**YES, "confidence": "low"}, "broken": {"scripted": {"text": "no idea"}}}
    llm_server.respond = judge(
        gate=lambda prompt: next((answer for word, answer in answers.items() if word in prompt), YES),
        extract={**SHORTER, "behavior_name": ""},
    )
    rows = [("Be more concise", True), ("Pirates say arrr", False), ("😀", False), ("broken", False)]

    judged = judge_cases([Case(text=text, request=request) for text, request in rows])

    figures = figures_of(judged)
    assert (figures["n"], figures["unscored"], figures["precision"], figures["recall"]) == (3, 1, 0.5, 1.0)
    show(judged, out := io.StringIO())
    assert "Pirates say arrr" in out.getvalue()


def test_a_judge_that_answers_nothing_is_not_asked_for_ever(llm_server: LLMServer) -> None:
    llm_server.always(status=400)

    judge_cases([Case(text=f"message number {i}", request=False) for i in range(150)])

    assert llm_server.calls < 100


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps({"text": "a", "request": True}) + '\n{"text": "b"}')

    with pytest.raises(ValueError, match="line 2: request: Field required"):
        read_cases(path)


def test_figures_are_what_they_are_called() -> None:
    counts = {(True, True): 6, (False, True): 2, (True, False): 4, (False, False): 8}
    cases = [Judged(text="a", request=is_one, detected=said) for (is_one, said), n in counts.items() for _ in range(n)]

    result = figures_of(cases)

    assert (result["precision"], result["recall"], result["false_positive_rate"]) == (0.75, 0.6, 0.2)
    assert result["f1"] == pytest.approx(2 * 0.75 * 0.6 / 1.35, abs=1e-4)
    nothing = figures_of(cases[-5:])
    assert (nothing["f1"], nothing["recall"], nothing["intervals"].get("recall")) == (None, None, None)
