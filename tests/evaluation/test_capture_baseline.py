"""``manage.py capture_baseline``: what it prints, what it stores, and how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.models import Agent, LLMCall
from evaluation.models import Baseline, EvaluationRun, EvaluationScore
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, claims_of, tail_of
from tests.factories import MONDAY, make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def cast(settings: Settings, propositions: PropositionFolder) -> dict[str, Agent]:
    """Two agents: ada said four things in two builds, bob two."""
    settings.LLM_EVALUATION_RETRIES = 0
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    propositions.claims("adherence/ada.yaml", "brief", extra="rule: {max_words: 1}")
    propositions.claims("fluency/_default.yaml", "varied", extra="include_personas: false")
    ada, bob = make_agent("ada"), make_agent("bob")
    talk(ada, ["No.", "Not now."], channel=make_channel("one"), tags={"build": "40"})
    talk(ada, ["Yes!", "Sure thing!"], channel=make_channel("two"), tags={"build": "41"})
    talk(bob, ["Hello.", "Goodbye."], channel=make_channel("three"))
    return {"ada": ada, "bob": bob}


def command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("capture_baseline", "--no-play", *arguments, stdout=out)
    return out.getvalue()


def captured(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("--json", *arguments))
    return found


def refused(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        command(*arguments)
    return caught.value.returncode, str(caught.value)


# -- --json
def test_json_is_one_object_with_the_documented_keys(llm_server: LLMServer, capfd: pytest.CaptureFixture[str]) -> None:
    llm_server.respond = answers(lambda claim: 8 if "voice" in claim else 6 if "mood" in claim else 3)

    call_command("capture_baseline", "--no-play", "--json")

    out, _ = capfd.readouterr()
    document = json.loads(out)
    assert list(document) == ["judge", "runs", "estimate", "actual"]
    assert document["judge"] == "test-model"
    assert [run["agent"] for run in document["runs"]] == ["ada", "bob"]
    for run in document["runs"]:
        assert list(run) == [
            *(
                "agent",
                "evaluation_run",
                "status",
                "error",
                "persona_digest",
                "overall_score",
                "dimensions",
                "calls",
                "tokens",
                "cost_usd",
                "unpriced_calls",
                "cache_read_share",
                "observations",
            ),
        ]
        assert list(run["dimensions"]) == ["adherence", "fluency"]
        for dimension in run["dimensions"].values():
            assert list(dimension) == ["score", "scored", "trivial", "unscored", "propositions", "calibration"]
    ada = document["runs"][0]
    assert ada["dimensions"]["adherence"] == {
        "score": pytest.approx((4 * 8 + 4 * 6 + 9 + 0 + 9 + 0) / 12, abs=1e-4),
        "scored": 12,
        "trivial": 0,
        "unscored": 0,
        "propositions": {"brief": 4.5, "mood": 6.0, "voice": 8.0},
        "calibration": None,
    }
    assert ada["dimensions"]["fluency"]["score"] == 3.0
    assert (ada["calls"], ada["tokens"], ada["cost_usd"]) == (4 + 1, 5 * 110, None)
    assert ada["overall_score"] == EvaluationRun.objects.get(pk=ada["evaluation_run"]).overall_score


def test_json_can_be_written_to_a_file_too(llm_server: LLMServer, tmp_path: Path) -> None:
    path = tmp_path / "result.json"

    document = captured("--agents", "bob", "--out", str(path))

    assert json.loads(path.read_text()) == document


def test_scores_by_tag_come_from_the_same_judgements(llm_server: LLMServer) -> None:
    llm_server.respond = lambda body: answers(lambda claim: 2 if "!" in tail_of(body) else 8)(body)

    (run,) = captured("--agents", "ada", "--dimensions", "adherence", "--by-tag", "build")["runs"]

    assert run["by_tag"] == {
        "build": {"40": pytest.approx((8 * 4 + 9 + 0) / 6, abs=1e-4), "41": pytest.approx(17 / 6, abs=1e-4)}
    }
    assert llm_server.calls == 4


# -- for people
def test_the_table_shows_scores_counts_judge_cost_and_the_weakest_proposition(llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 2 if "mood" in claim else 8)

    out = command("--by-tag", "build")

    assert "Baseline by test-model, 0 to 9, higher is better" in out
    for heading in (
        "Agent",
        "Overall",
        "Adherence",
        "Fluency",
        "build 40",
        "build 41",
        "Scored",
        "Trivial",
        "Unscored",
        "Cost",
    ):
        assert heading in out
    assert "unpriced" in out
    assert "bob" in out
    weakest = out[out.index("Weakest proposition") :]
    assert "mood" in weakest
    assert "No." in weakest
    assert "heuristic" not in out


def test_an_offline_judge_wears_its_badge(settings: Settings, propositions: PropositionFolder) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    propositions.claims("adherence/bob.yaml", "greets", extra="cues: {supports: [hello, goodbye]}")

    out = command("--agents", "bob", "--dimensions", "adherence")

    assert "Baseline by offline:lexical-1 (heuristic)" in out
    assert "never guessed" in out
    assert "ANTHROPIC_API_KEY" in out
    assert Baseline.objects.get().score == 8.0


# -- which agents, dimensions, messages (AC-6.5.6)
def test_all_active_agents_or_those_named_are_captured_ac_6_5_6(llm_server: LLMServer, cast: dict[str, Agent]) -> None:
    captured()
    assert set(Baseline.objects.values_list("agent__slug", flat=True)) == {"ada", "bob"}
    Baseline.objects.all().delete()

    captured("--agents", "bob")

    assert set(Baseline.objects.values_list("agent__slug", flat=True)) == {"bob"}
    assert EvaluationRun.objects.filter(is_baseline=True).count() == 3


def test_only_the_dimensions_named_are_captured(llm_server: LLMServer) -> None:
    (run,) = captured("--agents", "bob", "--dimensions", "fluency, fluency")["runs"]

    assert list(run["dimensions"]) == ["fluency"]
    assert run["calls"] == 1


def test_only_messages_with_the_tag_are_measured(llm_server: LLMServer) -> None:
    captured("--agents", "ada", "--dimensions", "adherence", "--where", "build=41")

    run = EvaluationRun.objects.get()
    texts = set(EvaluationScore.objects.values_list("message__text", flat=True))
    assert texts == {"Yes!", "Sure thing!"}
    assert (run.where, run.sample_size) == ({"build": "41"}, 2)


def test_a_tag_nobody_has_leaves_nothing_to_measure(llm_server: LLMServer) -> None:
    code, words = refused("--agents", "ada", "--where", "build=42")

    assert code == 2
    assert "ada: completed: nothing scored: no message of the agent in the window" in words
    assert llm_server.calls == 0


def test_window_samples_and_seed_are_kept_with_the_run(llm_server: LLMServer) -> None:
    captured("--agents", "ada", "--dimensions", "adherence", "--window", "last:3", "--samples", "2", "--seed", "7")

    run = EvaluationRun.objects.get()
    assert (run.window, run.samples, run.sample_size, run.seed) == ("last:3", 2, 2, 7)


def test_a_duration_reaches_back_from_now(llm_server: LLMServer, time_machine: Any) -> None:
    time_machine.move_to(MONDAY.replace(hour=10), tick=False)

    captured("--agents", "ada", "--dimensions", "adherence", "--window", "1h")

    run = EvaluationRun.objects.get()
    assert (run.window_start, run.window_end) == (MONDAY, MONDAY.replace(hour=10))
    assert run.sample_size == 4


@pytest.mark.parametrize(("per_call", "sizes"), [("1", [1, 1, 1, 1]), ("10", [2, 2])])
def test_how_many_claims_share_a_call(llm_server: LLMServer, per_call: str, sizes: list[int]) -> None:
    captured("--agents", "bob", "--dimensions", "adherence", "--per-call", per_call)

    assert [len(claims_of(body)) for body in llm_server.bodies] == sizes
    assert EvaluationRun.objects.get().per_call == int(per_call)


# -- --dry-run
def test_a_dry_run_asks_nothing_and_stores_nothing(llm_server: LLMServer) -> None:
    out = command("--dry-run")

    assert "Dry run, judge test-model: nothing was asked" in out
    assert llm_server.calls == 0
    for model in (EvaluationRun, EvaluationScore, Baseline, LLMCall):
        assert not model.objects.exists()


@pytest.mark.parametrize("per_call", ["1", "2", "10"])
def test_a_dry_run_names_the_calls_that_are_then_made(llm_server: LLMServer, per_call: str) -> None:
    estimate = captured("--dry-run", "--per-call", per_call)
    document = captured("--per-call", per_call)

    assert estimate["dry_run"] is True
    assert [a["agent"] for a in estimate["agents"]] == ["ada", "bob"]
    for planned, done in zip(estimate["agents"], document["runs"], strict=True):
        assert planned["calls"] == done["calls"]
        assert planned["judgements"] == sum(d["scored"] for d in done["dimensions"].values())
        assert planned["without_a_call"] == (4 if planned["agent"] == "ada" else 0)
        assert planned["input_tokens"] > 100 * planned["calls"]
        assert planned["cost_usd"] is None, "this model has no price"


def test_a_dry_run_of_a_priced_model_names_the_cost(settings: Settings, llm_server: LLMServer) -> None:
    call_command("migrate", verbosity=0)  # puts the shipped prices in
    settings.JUDGE_MODEL = "claude-haiku-4-5"

    (bob,) = captured("--dry-run", "--agents", "bob")["agents"]

    assert bob["cost_usd"] == pytest.approx((bob["input_tokens"] * 1 + bob["output_tokens"] * 5) / 1e6, rel=1e-6)


# -- how it ends
def test_an_agent_without_a_score_ends_it_with_2_and_the_reason(llm_server: LLMServer) -> None:
    llm_server.always(status=401)

    code, words = refused("--agents", "bob")

    assert code == 2
    assert "no score for:\n  bob: failed: the judge scored nothing; for example rejected: HTTP 401" in words
    assert "Run the same command again" in words


def test_the_others_are_captured_all_the_same(llm_server: LLMServer) -> None:
    make_agent("silent")

    code, words = refused()

    assert code == 2
    assert "silent: completed: nothing scored" in words
    assert "ada" not in words
    assert set(Baseline.objects.values_list("agent__slug", flat=True)) == {"ada", "bob"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--agents", "zed"], "no agent 'zed'; agents: ada, bob"),
        (["--dimensions", "vibes"], "dimensions vibes: allowed: adherence, fluency"),
        (["--dimensions", ","], "dimensions none: allowed"),
        (["--window", "soon"], "window 'soon' is not understood; allowed: all, last:N"),
        (["--samples", "0"], "samples 0: at least 1"),
        (["--per-call", "11"], "per_call 11: 1 to 10"),
        (["--where", "build"], "--where 'build': write tag=value"),
        (["--where", "=41"], "write tag=value"),
    ],
)
def test_wrong_usage_ends_it_with_3_and_what_is_allowed(
    llm_server: LLMServer, arguments: list[str], words: str
) -> None:
    code, found = refused(*arguments)

    assert code == 3
    assert words in found
    assert llm_server.calls == 0


def test_broken_proposition_files_end_it_with_3_before_anything_is_asked(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.write("adherence/zed.yaml", "propositions: 3\n")

    code, words = refused()

    assert code == 3
    assert "zed.yaml:1: propositions" in words
    assert (llm_server.calls, EvaluationRun.objects.count()) == (0, 0)


def test_without_agents_it_says_how_to_get_some(llm_server: LLMServer) -> None:
    Agent.objects.update(is_active=False)

    code, words = refused()

    assert code == 3
    assert "manage.py seed" in words
    assert "manage.py import_agents" in words
