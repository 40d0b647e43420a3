"""``manage.py evaluate`` where not enough could be judged: neither a pass nor a fall."""

from __future__ import annotations

import pytest

from agents.models import Agent
from evaluation.models import EvaluationScore
from tests.evaluation.ci.building import baseline, half, report, run
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def test_a_judge_that_fails_on_half_the_calls_exits_2_and_not_0_or_1(two: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 8)
    baseline()
    half(llm_server)

    code, out, said = run("--where", "build=41", "--threshold", "5")
    found = report("--where", "build=41", "--threshold", "5")

    assert code == 2
    assert "could not judge enough" in said
    assert "12 of 24 judgements failed" in " ".join(out.split())
    (unjudged,) = found["could_not_judge"]
    assert (unjudged["agent"], unjudged["dimension"], unjudged["share"]) == ("ada", "adherence", 0.5)
    assert "unavailable" in unjudged["why"]
    assert found["summary"]["failed_share"] == 0.5
    assert found["runs"][0]["dimensions"]["adherence"]["unscored_because"]["failed"] == 12
    assert found["below_threshold"], "what was found is still said"


def test_the_same_command_again_asks_only_what_failed(two: Agent, llm_server: LLMServer) -> None:
    half(llm_server)
    assert run("--where", "build=41")[0] == 2
    llm_server.respond = answers(lambda claim: 8)
    asked = llm_server.calls

    assert run("--where", "build=41")[0] == 0
    assert llm_server.calls - asked == 6


def test_a_higher_limit_accepts_what_is_missing(two: Agent, llm_server: LLMServer) -> None:
    half(llm_server)

    assert run("--where", "build=41", "--max-unscored", "50%")[0] == 0


def test_a_judge_that_is_down_exits_2(two: Agent, llm_server: LLMServer) -> None:
    llm_server.always(status=500)

    found = report("--where", "build=41")

    assert found["summary"]["verdict"] == "could not judge enough"
    assert any("the run is failed" in entry["why"] for entry in found["could_not_judge"])


def test_a_typo_in_a_tag_measures_nothing_and_is_no_pass(two: Agent, llm_server: LLMServer) -> None:
    found = report("--where", "biuld=41")

    assert found["summary"]["exit_code"] == 2
    assert found["could_not_judge"][0]["why"] == "nothing was scored for any agent"
    assert llm_server.calls == 0


def test_a_silent_agent_fails_nothing_unless_it_was_named_or_measured_before(two: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 8)
    make_agent("mute")

    assert report()["summary"]["exit_code"] == 0
    named = report("--agents", "ada,mute")
    assert [entry["agent"] for entry in named["could_not_judge"]] == ["mute"]
    baseline("--agents", "ada")
    talk(Agent.objects.get(slug="mute"), [f"line {n} of build 42" for n in range(3)], tags={"build": "42"})
    gone = report("--where", "build=42")
    assert [entry["agent"] for entry in gone["could_not_judge"]] == ["ada"], "it had a baseline and says nothing now"


def test_a_threshold_without_a_score_is_no_pass(
    propositions: PropositionFolder, two: Agent, llm_server: LLMServer
) -> None:
    propositions.claims("consistency/_default.yaml", "same", extra="include_personas: false")
    llm_server.respond = answers(lambda claim: 8)

    talk(two, ["line 1 of build 42"], channel=make_channel("new"), tags={"build": "42"})

    found = report("--where", "build=42", "--threshold", "consistency=5")

    assert found["summary"]["exit_code"] == 2
    assert found["could_not_judge"][0]["dimension"] == "consistency"
    assert report("--where", "build=42", "--threshold", "5")["summary"]["exit_code"] == 0


def test_an_offline_judge_is_not_blamed_for_what_only_an_llm_can_judge(
    two: Agent, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/ada.yaml", "brief", extra="rule: {max_words: 9}")

    found = report("--where", "build=41")

    summary = found["summary"]
    assert (summary["exit_code"], summary["heuristic"]) == (0, True)
    assert summary["judgements"] == {
        "scored": 12,
        "trivial": 0,
        "unscored": 24,
        "failed": 0,
        "needs_llm_judge": 24,
        "not_evaluable": 0,
    }
    assert found["runs"][0]["dimensions"]["adherence"]["unscored"] == 24


def test_an_offline_judge_that_can_judge_nothing_exits_2(two: Agent) -> None:
    assert report()["summary"]["exit_code"] == 2
    assert EvaluationScore.objects.filter(status="unscored").count() == 40
