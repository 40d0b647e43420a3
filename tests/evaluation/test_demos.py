"""The demonstrations of specification 001, S-6.0 to S-6.6: each scorer moves the right way, offline on example data and with a judge.

The judge here is a server that reads nothing but the prompt it gets: what it needs to tell drift from steadiness must stand there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings

from agents.models import Agent
from agents.seed import loader
from evaluation.change.choosing import compare_to_baseline
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.execute import capture
from evaluation.runs.ideas import distinct_ideas
from evaluation.runs.planning import RunSpec
from evaluation.runs.summary import worst_judgement
from tests.evaluation.brainstorming import lister
from tests.evaluation.conversing import converged, converse, diverse
from tests.evaluation.judging import claims_of, entry, prompt_of
from tests.evaluation.measuring import by_tag, evaluate_agent, evaluate_channel
from tests.evaluation.test_fluency import COPIED, VARIED
from tests.evaluation.test_ideas import MARKED
from tests.factories import MONDAY, make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

OFFLINE = "offline:lexical-1"
EVERYTHING = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
JIM = [
    f"So the {thing} is in the pudding again. I have no idea how that happens to a person."
    for thing in ("stapler", "phone", "calculator", "mug", "badge", "pen", "lamp", "tape", "cable", "stamp")
]
STILL_JIM = [
    f"So the {thing} moved to the annex. I have no idea how that keeps happening."
    for thing in ("desk", "chair", "tray")
]
DWIGHTISH = [
    f"FACT: the {thing} is SECURED. False. Question? Denied! Report to me!!" for thing in ("desk", "chair", "tray")
]


def judging(read: Callable[[str], int]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A judge that scores every claim by what the prompt shows; asked for ideas it lists them."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        prompt = prompt_of(body)
        if "What to list" in prompt or "<<<IDEAS" in prompt:
            return lister(body)
        found = {key: entry(read(prompt)) for key in claims_of(body)}
        return {"json": found if len(found) > 1 else found["p1"]}

    return respond


@pytest.fixture
def office(settings: Settings) -> None:
    """The example data and the shipped propositions."""
    settings.PROPOSITION_DIRS = []
    loader.seed()


@pytest.fixture
def offline(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = OFFLINE, []


# --- S-6.0: the proposition engine
def test_demo_s_6_0_a_judge_scores_michael_and_stores_reasons(
    office: None, llm_server: LLMServer
) -> None:
    llm_server.respond = judging(lambda prompt: 7)

    found = evaluate_agent(agent=Agent.objects.get(slug="michael"), dimensions=("adherence",), samples=1)

    run = EvaluationRun.objects.get()
    assert (run.status, found.overall_score) == ("completed", run.overall_score)
    judged = EvaluationScore.objects.filter(status="scored", judge=run.judge)
    assert judged.count() >= 5
    for score in judged:
        assert 0 <= (score.score or 0) <= 9
        assert (score.reasoning, score.confidence) == ("Two words, no more.", 0.8)
        assert "{{" not in score.claim


# --- S-6.1: persona adherence
def test_demo_s_6_1_michael_without_his_voice_scores_lower_offline(office: None, offline: None) -> None:
    run = evaluate_agent(agent=Agent.objects.get(slug="michael"), dimensions=("adherence",), samples=100).run

    scores = by_tag(run, "build")
    assert scores["41"] <= scores["40"] - 2
    low = worst_judgement(run, "adherence", "michael-self-centered")
    assert low is not None
    assert low.score is not None
    assert low.score <= 2
    assert "himself" in low.claim
    assert low.reasoning, "it says why"


# --- S-6.2: self-consistency
def jim_of_two_periods(lately: list[str], name: str) -> Agent:
    jim = make_agent(name)
    channel = make_channel(f"desk-{name}")
    talk(make_agent(f"beside-{name}"), DWIGHTISH * 2, channel=channel)
    talk(jim, JIM, channel=channel, tags={"period": "then"})
    talk(jim, lately, channel=channel, tags={"period": "now"}, sent_at=MONDAY + timedelta(days=7))
    return jim


def test_demo_s_6_2_jim_like_dwight_scores_lower_offline(offline: None) -> None:
    scores = {
        name: evaluate_agent(
            agent=jim_of_two_periods(lately, name),
            dimensions=("consistency",),
            where={"period": "now"},
            history_where={"period": "then"},
        )
        .dimensions["consistency"]
        .score
        for name, lately in (("steady", STILL_JIM), ("drifted", DWIGHTISH))
    }

    assert scores["steady"] is not None
    assert scores["drifted"] is not None
    assert scores["drifted"] <= scores["steady"] - 3, scores


# --- S-6.3: fluency
def two_sets() -> dict[str, Agent]:
    found = {"varied": make_agent("varied"), "copied": make_agent("copied")}
    talk(found["varied"], VARIED, channel=make_channel("one"))
    talk(found["copied"], COPIED, channel=make_channel("two"))
    return found


def test_demo_s_6_3_copies_score_lower_than_variety_offline(offline: None) -> None:
    scores = {
        n: evaluate_agent(agent=a, dimensions=("fluency",)).dimensions["fluency"].score for n, a in two_sets().items()
    }

    assert scores["varied"] is None, "n-grams do not say that no thought is repeated"
    assert scores["copied"] is not None
    assert scores["copied"] <= 2


# --- S-6.4: convergence
def test_demo_s_6_4_a_converging_channel_scores_lower_offline(offline: None) -> None:
    apart, alike = (
        evaluate_channel(channel=channel, dimensions=("convergence",)).dimensions["convergence"].score
        for channel in (diverse(), converged())
    )

    assert apart is not None
    assert alike is not None
    assert alike <= apart - 3, (apart, alike)


# --- S-6.6: ideas quantity
def test_demo_s_6_6_repeated_ideas_are_collapsed_offline(offline: None) -> None:
    found = evaluate_channel(channel=converse(make_channel("marked"), MARKED), dimensions=("ideas_quantity",))

    assert found.dimensions["ideas_quantity"].count == 5
    assert sum(len(idea.same) for idea in distinct_ideas(found.run)) == 2


# --- S-6.5: baselines
@pytest.mark.slow
@pytest.mark.parametrize("judge", [OFFLINE, "test-model"])
def test_demo_s_6_5_three_baselines_and_a_later_delta(
    office: None, llm_server: LLMServer, settings: Settings, capsys: pytest.CaptureFixture[str], judge: str
) -> None:
    llm_server.respond = judging(lambda prompt: 6)
    settings.JUDGE_MODEL = judge

    call_command("capture_baseline", "--agents", "michael,dwight,jim", "--where", "build=40", "--json")

    document = json.loads(capsys.readouterr().out)
    assert [run["agent"] for run in document["runs"]] == ["michael", "dwight", "jim"]
    for run in document["runs"]:
        assert set(run["dimensions"]) == set(EVERYTHING)
        measured = [name for name, found in run["dimensions"].items() if found.get("score") is not None]
        assert set(measured) >= {"adherence", "convergence"} | ({"fluency"} if judge != OFFLINE else set())

    dwight = Agent.objects.get(slug="dwight")
    llm_server.respond = judging(lambda prompt: 3)
    later = capture([RunSpec(agent=dwight, dimensions=("adherence",), where={"build": "41"})])[0].summary.run
    change = compare_to_baseline(later)

    assert change is not None
    adherence = next(found for found in change.dimensions if found.dimension == "adherence")
    assert adherence.delta is not None
    assert adherence.delta < -2
    assert adherence.verdict == "drifted"
