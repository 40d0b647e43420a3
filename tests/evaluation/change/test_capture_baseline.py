"""``manage.py capture_baseline``: what it prints, what it stores, and how it ends."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from pytest_django import Settings

from agents.models import Agent
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from evaluation.runs.planning import prepare_run
from evaluation.runs.spec import RunSpec
from tests.evaluation.capturing import command, refused, two_agents
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def cast(settings: Settings, propositions: PropositionFolder) -> dict[str, Agent]:
    return two_agents(settings, propositions)


# -- --json
def test_json_is_one_object_with_the_scores_of_each_dimension(
    llm_server: LLMServer, capfd: pytest.CaptureFixture[str]
) -> None:
    llm_server.respond = answers(lambda claim: 8 if "voice" in claim else 6 if "mood" in claim else 3)

    call_command("capture_baseline", "--no-simulate", "--json")

    out, _ = capfd.readouterr()
    document = json.loads(out)
    assert document["judge"] == "test-model"
    assert [run["agent"] for run in document["runs"]] == ["ada", "bob"]
    ada = document["runs"][0]
    passport = ada["dimensions"]["adherence"].pop("passport")
    assert (passport["verdict"], passport["decided_by"]) == ("not shown", ["agreement", "swap test"])
    assert ada["dimensions"]["adherence"] == {
        "score": pytest.approx((4 * 8 + 4 * 6 + 9 + 0 + 9 + 0) / 12, abs=1e-4),
        "scored": 12,
        "trivial": 0,
        "unscored": 0,
        "coverage": 1.0,
        "propositions": {"brief": 4.5, "mood": 6.0, "voice": 8.0},
    }
    assert ada["dimensions"]["fluency"]["score"] == 3.0
    assert (ada["calls"], ada["tokens"], ada["cost_usd"]) == (4 + 1, 5 * 110, None)
    assert ada["overall_score"] == EvaluationRun.objects.get(pk=ada["evaluation_run"]).overall_score


# -- for people
def test_the_table_names_judge_cost_and_the_weakest_proposition(llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 2 if "mood" in claim else 8)

    out = command()

    for word in ("test-model", "Adherence", "Fluency", "unpriced", "bob"):
        assert word in out
    weakest = out.partition("Weakest proposition")[2]
    assert "mood" in weakest
    assert "No." in weakest
    assert "heuristic" not in out


def test_a_proposition_that_holds_is_not_called_weak(llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda _claim: 8)

    out = command("--dimensions", "adherence")

    table, _, others = out.partition("Weakest proposition")[2].partition("No proposition scored below 7")
    assert ("brief" in table, "bob" in table, "bob" in others) == (True, False, True)  # the rule is broken by ada alone


def test_a_rule_that_holds_as_often_as_it_should_is_not_the_weakest(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.write(
        "adherence/ada.yaml",
        "propositions: [{id: brief, claim: Ada is brief, of_ten: 5, rule: {max_words: 1}}]",  # it holds in 2 of 4: 4.5, counts 9
    )
    llm_server.respond = answers(lambda claim: 6 if "varied" in claim else 9)

    assert "varied" in command("--agents", "ada").partition("Weakest proposition")[2]


# -- how it ends
def test_an_agent_without_a_score_ends_it_with_2_and_the_reason(llm_server: LLMServer) -> None:
    llm_server.always(status=500)

    code, words = refused("--agents", "bob")

    assert code == 2
    assert "no score for:\n  bob: failed: the judge scored nothing; for example unavailable: HTTP 500" in words
    assert "Run the same command again" in words


def test_one_that_said_nothing_is_a_note_unless_it_was_named(
    llm_server: LLMServer, capsys: pytest.CaptureFixture[str]
) -> None:
    make_agent("silent")

    command()
    assert "Not measured, for they said nothing there: silent." in capsys.readouterr().err

    code, words = refused("--agents", "ada,silent")
    assert code == 2
    assert "no score for:\n  silent: nothing scored: no message of the agent in the window" in words
    assert "ada" not in words

    code, words = refused("--where", "build=99")
    assert (code, "ada" in words) == (2, True), "nothing at all was measured"
    assert set(Baseline.objects.values_list("agent__slug", flat=True)) == {"ada", "bob"}


def test_one_agents_broken_file_is_named_and_the_others_are_measured(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    llm_server.respond = answers(lambda claim: 8)
    propositions.write("adherence/bob.yaml", "propositions:\n  - {id: odd, claim: odd, wieght: 2}\n")

    code, words = refused("--no-simulate")

    assert code == 3
    assert "proposition files of bob cannot be used" in words
    assert "bob.yaml:2: propositions[0].wieght (odd): unknown field" in words
    assert [run.agent and run.agent.slug for run in EvaluationRun.objects.all()] == ["ada"]
    assert Baseline.objects.filter(agent__slug="ada").exists()


def test_a_run_that_another_process_judges_is_left_to_it_and_ends_with_2(
    llm_server: LLMServer, cast: dict[str, Agent]
) -> None:
    run, _ = prepare_run(RunSpec(agent=cast["bob"], dimensions=("adherence",), is_baseline=True))
    assert run.acquire(owner="elsewhere:1:abc", lease=timedelta(minutes=5))

    code, words = refused("--agents", "bob", "--dimensions", "adherence")

    assert (code, "is being judged by another process (elsewhere:1:abc)" in words) == (2, True)
    assert (llm_server.calls, EvaluationRun.objects.count()) == (0, 1)


def test_without_agents_it_says_how_to_get_some(llm_server: LLMServer) -> None:
    Agent.objects.update(is_active=False)

    code, words = refused()

    assert code == 3
    assert "manage.py seed" in words
    assert "manage.py import_agents" in words


def test_a_broken_file_about_everybody_exits_3_before_anything_is_asked(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.write("adherence/_default.yaml", "propositions: 3\n")

    code, words = refused()

    assert code == 3
    assert "_default.yaml:1: propositions" in words
    assert (llm_server.calls, EvaluationRun.objects.count()) == (0, 0)
