"""Estimate before, actual after: as many calls as were estimated are made, and what they used is said (specification 001, cost)."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.models import Agent
from correction.costs import GROUPINGS, get_cost_summary
from evaluation.runs.estimate import estimate, estimate_before, estimated
from evaluation.runs.execute import capture
from evaluation.runs.planning import AnswerLength
from evaluation.runs.spec import RunSpec
from evaluation.runs.summary import spent_on
from tests.evaluation.conversing import diverse
from tests.evaluation.judging import prompt_of
from tests.llm_server import LLMServer
from tests.prompt_cache import PromptCache

pytestmark = pytest.mark.django_db

EVERYTHING = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")


@pytest.fixture
def judge(llm_server: LLMServer, settings: Settings) -> LLMServer:
    """Has a price and answers everything; every part of a conversation holds two ideas of its own."""
    settings.JUDGE_MODEL = "claude-haiku-5-5"
    cache = PromptCache()

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        usage = cache.usage(body)
        prompt = prompt_of(body)
        if "What to list" not in prompt:
            return {"usage": usage}
        part = prompt.partition("Part ")[2][:2]
        ideas = [{"idea": f"idea {part}{n}", "description": "", "entries": [1]} for n in "ab"]
        return {"json": {"ideas": ideas}, "usage": usage}

    llm_server.respond = respond
    return llm_server


def specs(**options: Any) -> list[RunSpec]:
    diverse()
    return [RunSpec(agent=a, dimensions=EVERYTHING, **options) for a in Agent.objects.order_by("slug")]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "tinytroupe"},
        {"repeats": 2, "double_check": True, "hard": True, "per_call": 3},
    ],
    ids=str,
)
def test_as_many_calls_are_made_as_were_estimated(judge: LLMServer, options: dict[str, Any]) -> None:
    wanted = specs(**options)
    before = estimate_before(wanted)
    assert before is not None
    assert judge.calls == 0, "an estimate asks nothing"

    results = capture(wanted)

    assert spent_on(result.summary for result in results).calls == judge.calls == estimated(before).calls
    assert not LLMCall.objects.exclude(status="ok").exists()


def test_a_conversation_in_parts_is_estimated_with_each_part_and_the_collapse(
    judge: LLMServer, settings: Settings
) -> None:
    settings.IDEAS_PART_CHARACTERS = 200
    channel = diverse()
    spec = RunSpec(channel=channel, dimensions=("ideas_quantity",))
    before = estimate(spec)

    capture([spec])

    assert before.calls == judge.calls
    assert before.calls > 3, "several parts, and one collapse"


def test_estimated_tokens_are_those_of_the_prompts(judge: LLMServer) -> None:
    """The stub counts a quarter of the characters, as the estimate does, which also counts the schema of the answer."""
    (spec, *_) = specs(double_check=True)
    spec = replace(spec, dimensions=("adherence", "fluency"))
    before = estimate(spec)

    (result,) = capture([spec])

    assert 0.5 * before.input_tokens < result.summary.input_tokens <= before.input_tokens


def test_a_judge_that_was_asked_often_is_estimated_by_its_own_answers(
    judge: LLMServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """It writes 60 tokens a claim where 160 are assumed."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        return {
            "usage": {"input_tokens": len(prompt_of(body)) // 4, "output_tokens": 60 * prompt_of(body).count("Claim")}
        }

    judge.respond = respond
    (spec, *_) = specs(per_call=1, repeats=2)
    spec = replace(spec, dimensions=("adherence",))
    first = estimate(spec)
    (result,) = capture([spec])
    assert first.output_tokens_per_claim == AnswerLength(tokens=160, measured_calls=0)
    assert first.calls == result.summary.calls >= 20, "enough to go by"

    again = estimate(spec)
    assert again.calls == first.calls
    assert again.output_tokens == result.summary.output_tokens < first.output_tokens
    assert again.cost_usd == pytest.approx(result.summary.cost_usd, rel=Decimal("0.3"))

    assert spec.agent is not None
    call_command(
        "capture_baseline",
        "--agents",
        spec.agent.slug,
        "--dimensions",
        "adherence,fluency",
        "--no-simulate",
        "--dry-run",
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert f"60 for an answered claim (the mean of this judge's last {first.calls} calls)" in printed


def test_an_offline_judge_is_not_estimated_its_calls_cost_nothing() -> None:
    diverse()
    wanted = [RunSpec(agent=Agent.objects.get(slug="ada"), judge="offline:lexical-1")]

    assert estimate_before(wanted) is None


def test_a_capture_says_estimate_and_actual_in_its_json(judge: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    diverse()

    call_command("capture_baseline", "--dimensions", ",".join(EVERYTHING), "--no-simulate", "--json")

    document = json.loads(capsys.readouterr().out)
    before, after = document["estimate"], document["actual"]
    assert before["calls"] == after["calls"] == judge.calls
    assert before["cost_usd"] > 0
    assert after["cost_usd"] > 0
    assert 0 < after["cache_read_share"] < 1
    assert after["unpriced_calls"] == 0
    runs = [*document["runs"], *document["channels"]]
    assert sum(run["calls"] for run in runs) == after["calls"]
    assert sum(run["cost_usd"] for run in runs) == pytest.approx(after["cost_usd"])
    assert all(0 <= run["cache_read_share"] <= 1 for run in runs)


# --- what the prompt cache is given to hold ------------------------------------------------------------------------------
def marked(body: dict[str, Any]) -> list[str]:
    """The start of each block that ends at a breakpoint."""
    blocks = [*body["system"], *(part for turn in body["messages"] for part in turn["content"])]
    return [block["text"][:30] for block in blocks if "cache_control" in block]


def test_calls_of_a_run_share_instructions_and_repeats_share_everything(judge: LLMServer) -> None:
    """Pairs share nothing but the rubric, a conversation is shown once: only repeats make them worth a breakpoint."""
    diverse()
    agent = Agent.objects.get(slug="ada")

    (once,) = capture([RunSpec(agent=agent, dimensions=("consistency",))])
    (thrice,) = capture([RunSpec(agent=agent, dimensions=("consistency",), repeats=3)])

    assert once.summary.cache_read_share is not None
    assert thrice.summary.cache_read_share is not None
    assert thrice.summary.cache_read_share > 0.6, "two of three repeats read what the first one wrote"
    assert thrice.summary.cache_read_share > once.summary.cache_read_share


def test_a_conversation_shown_once_is_not_written_into_the_cache(judge: LLMServer) -> None:
    capture([RunSpec(channel=diverse(), dimensions=("convergence", "ideas_quantity"))])

    assert {len(marked(body)) for body in judge.bodies} == {1}, "the instructions alone"


# --- the ledger ----------------------------------------------------------------------------------------------------------
def test_costs_show_calls_about_channels_as_nobodys_and_sum_to_the_ledger(
    judge: LLMServer, capsys: pytest.CaptureFixture[str]
) -> None:
    results = capture(specs())

    summary = get_cost_summary(window="all")
    actual = spent_on(result.summary for result in results)
    assert (summary.total.calls, summary.total.cost_usd) == (LLMCall.objects.count(), actual.cost_usd)
    for grouping in GROUPINGS:
        rows = summary.by[grouping]
        assert sum(row.calls for row in rows) == summary.total.calls
        assert sum(row.cost_usd for row in rows) == summary.total.cost_usd
        assert sum(row.cache_read_tokens for row in rows) == summary.total.cache_read_tokens
    nobody = next(row for row in summary.by["agent"] if row.key == "")
    about_channels = LLMCall.objects.filter(dimension__in=("convergence", "ideas_quantity"))
    assert nobody.calls == about_channels.count() > 0

    call_command("costs", "--by", "agent,dimension", "--window", "all")

    printed = capsys.readouterr().out
    assert "no agent (channels)" in printed
    assert "convergence" in printed
