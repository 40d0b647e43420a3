"""``manage.py capture_baseline``: which agents, dimensions and messages, and what it would cost."""

from __future__ import annotations

import io
import os
import pty

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.kit.text.wording import day_text
from agents.models import Agent, Message
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun, EvaluationSchedule, EvaluationScore
from tests.evaluation.capturing import captured, command, refused, two_agents
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import claims_of
from tests.factories import MONDAY
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def cast(settings: Settings, propositions: PropositionFolder) -> dict[str, Agent]:
    return two_agents(settings, propositions)


# -- which agents, dimensions, messages (AC-6.5.6)
def test_all_active_agents_or_those_named_are_captured_ac_6_5_6(llm_server: LLMServer, cast: dict[str, Agent]) -> None:
    captured()
    assert set(Baseline.objects.values_list("agent__slug", flat=True)) == {"ada", "bob"}
    Baseline.objects.all().delete()

    captured("--agents", "bob")

    assert set(Baseline.objects.values_list("agent__slug", flat=True)) == {"bob"}
    assert EvaluationRun.objects.count() == 3


def test_window_samples_and_seed_are_kept_with_the_run(llm_server: LLMServer) -> None:
    captured("--agents", "ada", "--dimensions", "adherence", "--window", "last:3", "--samples", "2", "--seed", "7")

    run = EvaluationRun.objects.get()
    assert (run.window, run.samples, run.sample_size, run.seed) == ("last:3", 2, 2, 7)


@pytest.mark.parametrize("dimension", ["adherence", "convergence"])
def test_a_window_without_messages_says_whether_they_have_no_time(llm_server: LLMServer, dimension: str) -> None:
    Message.objects.filter(agent__slug="ada").update(sent_at=None)

    code, undated = refused("--agents", "ada", "--dimensions", dimension, "--window", "7d")
    _, older = refused("--agents", "bob", "--dimensions", dimension, "--window", "7d")

    assert code == 2
    assert "7d: 4 of 4 messages have no time, which only all and last:N count" in undated
    assert f"7d: the newest with a time is from {day_text(MONDAY)}" in older
    assert "same command again" not in older, "it would find no messages, either"
    assert not llm_server.bodies


# -- --dry-run


def test_a_dry_run_stores_nothing_and_names_the_calls_made_then(llm_server: LLMServer) -> None:
    estimate = captured("--dry-run", "--per-call", "1")
    assert "Dry run, judge test-model: nothing was asked" in command("--dry-run")
    assert llm_server.calls == 0
    for model in (EvaluationRun, EvaluationScore, Baseline, LLMCall):
        assert not model.objects.exists()
    document = captured("--per-call", "1")

    assert estimate["dry_run"] is True
    assert [a["agent"] for a in estimate["agents"]] == ["ada", "bob"]
    for planned, done in zip(estimate["agents"], document["runs"], strict=True):
        assert planned["calls"] == done["calls"]
        assert planned["judgements"] == sum(d["scored"] for d in done["dimensions"].values())
        assert planned["without_a_call"] == (4 if planned["agent"] == "ada" else 0)
        assert planned["input_tokens"] > 100 * planned["calls"]
        assert planned["cost_usd"] is None, "this model has no price"
    assert {len(claims_of(body)) for body in llm_server.bodies} == {1}
    assert set(EvaluationRun.objects.values_list("per_call", flat=True)) == {1}


def test_a_dry_run_says_how_ideas_are_estimated_only_where_ideas_are_counted(propositions: PropositionFolder) -> None:
    counted = "target_type: environment\npropositions: [{id: count, claim: They propose}]\n"
    propositions.write("ideas_quantity/_default.yaml", counted)

    assert "ideas" in command("--dry-run")
    assert "ideas" not in command("--dry-run", "--dimensions", "adherence")


# -- what a new baseline replaces
def test_a_tag_that_no_message_has_is_named_before_a_baseline_is_replaced(llm_server: LLMServer) -> None:
    captured("--agents", "ada", "--dimensions", "adherence", "--where", "build=40")

    said = io.StringIO()
    with pytest.raises(CommandError, match="ada: build=40"):
        call_command("capture_baseline", "--agents", "ada", "--where", "Build=41", stderr=said)

    assert "none has a tag Build" in said.getvalue()


def test_only_when_told_does_a_baseline_of_all_replace_a_tagged_one(llm_server: LLMServer) -> None:
    captured("--agents", "ada", "--dimensions", "adherence", "--where", "build=40")

    code, words = refused("--agents", "all", "--dimensions", "adherence")
    kept = Baseline.objects.get().evaluation_run.where
    captured("--agents", "ada", "--dimensions", "adherence", "--where", "build=41")
    captured("--agents", "all", "--dimensions", "adherence", "--yes")

    assert (code, "ada: build=40" in words, "--yes" in words) == (2, True, True)
    assert kept == {"build": "40"}
    assert Baseline.objects.get(agent__slug="ada").evaluation_run.where == {}


def test_a_person_at_a_terminal_is_asked(llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    captured("--agents", "ada", "--dimensions", "adherence", "--where", "build=40")
    main, terminal = pty.openpty()
    with os.fdopen(terminal) as stdin, os.fdopen(main, "wb", buffering=0) as keyboard:
        monkeypatch.setattr("sys.stdin", stdin)
        keyboard.write(b"n\n")
        code, _ = refused("--agents", "ada", "--dimensions", "adherence")
        keyboard.write(b"y\n")
        command("--agents", "ada", "--dimensions", "adherence")

    assert code == 2
    assert Baseline.objects.get().evaluation_run.where == {}


@pytest.mark.parametrize("asked", [("capture_baseline", "--batch"), ("schedule", "add", "nightly", "--batch")])
def test_batches_are_refused_where_the_judge_takes_none(settings: Settings, asked: tuple[str, ...]) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"

    with pytest.raises(CommandError, match="--batch: the judge offline:lexical-1 takes no batches") as caught:
        call_command(*asked, stdout=io.StringIO())

    assert caught.value.returncode == 3
    assert "allowed: a model of anthropic" in str(caught.value), "the providers that have batches, by their names"
    assert not EvaluationRun.objects.exists()
    assert not EvaluationSchedule.objects.exists()
