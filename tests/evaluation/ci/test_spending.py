"""What a verdict cost: estimated before anything is asked, counted after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from agents.models import Agent, ModelPrice
from tests.evaluation.ci.building import report, run
from tests.evaluation.judging import answers
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def priced(llm_server: LLMServer) -> LLMServer:
    ModelPrice.objects.create(
        model="test-model", effective_from="2026-01-01", input_usd=1, output_usd=5, cache_write_usd=0, cache_read_usd=0
    )
    llm_server.respond = answers(lambda claim: 8)
    return llm_server


def test_the_estimate_stands_first_and_both_at_the_end(two: Agent, priced: LLMServer, tmp_path: Path) -> None:
    comment = tmp_path / "comment.md"

    code, out, _ = run("--where", "build=41", "--markdown", str(comment))

    text = " ".join(out.split())
    assert code == 0
    assert text.startswith("Estimate: 12 calls, ")
    assert "(if nothing was judged before)" in text
    assert "Judging: estimated 12 calls, " in text
    assert "; used 12 calls, " in text
    (line,) = [line for line in comment.read_text(encoding="utf-8").splitlines() if line.startswith("Judging: ")]
    assert "estimated 12 calls" in line
    assert line.count("$") == 2


def test_json_has_the_estimate_and_what_was_used_and_nothing_else_is_printed(two: Agent, priced: LLMServer) -> None:
    spending = report("--where", "build=41")["spending"]

    assert (spending["estimate"]["calls"], spending["actual"]["calls"]) == (12, 12)
    assert spending["estimate"]["cost_usd"] > 0
    assert spending["actual"]["cost_usd"] > 0
    assert spending["actual"]["unpriced_calls"] == 0


def test_an_offline_judge_costs_nothing_and_is_not_estimated(two: Agent, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"

    _, out, _ = run("--where", "build=41")

    assert "stimate" not in out
    assert "Judging:" not in out
    assert report("--where", "build=41")["spending"]["estimate"] is None
