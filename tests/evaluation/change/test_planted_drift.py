"""The shipped data and the offline judge: planted drift is found, and nobody else is accused."""

from __future__ import annotations

import random

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel
from agents.seed import loader
from evaluation.change.comparison import compare
from evaluation.change.measurements import measurement_of
from evaluation.runs.execute import capture
from evaluation.runs.planning import RunSpec
from evaluation.runs.summary import RunSummary
from evaluation.windows import parse_window
from tests.agents.test_seed import CAST
from tests.evaluation.conversing import convergence, converse, ideas
from tests.evaluation.measuring import by_tag, evaluate_agent
from tests.factories import make_channel

pytestmark = pytest.mark.django_db
LOSE_THEIR_VOICE = {"michael", "dwight", "angela", "stanley", "kevin"}


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = "offline:lexical-1", []
    loader.seed()


def drop(scores: dict[str, float]) -> float:
    """From build 40 to build 41, in points."""
    return scores["40"] - scores["41"]


@pytest.mark.slow
def test_adherence_falls_by_two_points_where_drift_was_planted_alone() -> None:
    specs = [RunSpec(agent=a, dimensions=("adherence",), samples=100) for a in Agent.objects.order_by("slug")]

    drops = {
        found.summary.run.agent.slug: drop(by_tag(found.summary.run, "build"))
        for found in capture(specs)
        if found.summary.run.agent is not None
    }

    assert set(drops) == set(CAST)
    assert {slug for slug, points in drops.items() if points >= 2} == LOSE_THEIR_VOICE, drops
    assert {slug for slug, points in drops.items() if abs(points) >= 2} == LOSE_THEIR_VOICE, drops


@pytest.mark.slow
def test_fluency_falls_significantly_where_repetition_was_planted_alone() -> None:
    """No score says that thoughts are not repeated; what repeats words is scored, and the fall is sure by the messages alone."""
    measured: dict[str, dict[str, RunSummary]] = {slug: {} for slug in CAST}
    for build in ("40", "41"):
        specs = [RunSpec(agent=a, dimensions=("fluency",), where={"build": build}) for a in Agent.objects.all()]
        for found in capture(specs):
            assert found.summary.run.agent is not None
            measured[found.summary.run.agent.slug][build] = found.summary

    changes = {slug: compare(*(measurement_of(of[b].run) for b in ("40", "41"))) for slug, of in measured.items()}

    scored = {
        (slug, build)
        for slug, of in measured.items()
        for build, one in of.items()
        if one.dimensions["fluency"].measured
    }
    assert scored == {("jim", "41")}
    assert {slug for slug, change in changes.items() if change.worse} == {"jim"}
    (change,) = changes["jim"].dimensions
    assert (change.verdict, change.delta is not None and change.delta < -6) == ("drifted", True)


@pytest.mark.slow
def test_consistency_is_low_where_drift_was_planted_alone() -> None:
    """Build 41 against build 40; and, as the steady window, the last messages of build 40 against those before them, where they are ten."""
    now: dict[str, float] = {}
    steady: dict[str, float] = {}
    for agent in Agent.objects.all():
        for scores, asked in (
            (now, {"where": {"build": "41"}, "history_where": {"build": "40"}}),
            (steady, {"where": {"build": "40"}, "window": parse_window("last:8")}),
        ):
            score = evaluate_agent(agent=agent, dimensions=("consistency",), **asked).dimensions["consistency"].score
            if score is not None:
                scores[agent.slug] = score

    assert set(now) == set(CAST)
    assert {slug for slug, score in now.items() if score < 4.5} == LOSE_THEIR_VOICE, now
    assert all(score < 1.5 for slug, score in now.items() if slug in LOSE_THEIR_VOICE), now
    assert {"angela", "michael"} <= set(steady)
    assert all(score > 4.5 for score in steady.values()), steady


def test_a_conversation_whose_lines_were_dealt_out_at_random_has_no_voices() -> None:
    real = Channel.objects.get(slug="general")
    lines = list(real.messages.filter(agent__isnull=False).order_by("position").values_list("agent__slug", "text"))
    texts = [text for _, text in lines]
    random.Random(1).shuffle(texts)
    dealt = converse(make_channel("dealt"), zip((slug for slug, _ in lines), texts, strict=True))

    apart, alike = (convergence(channel).dimensions["convergence"].score for channel in (real, dealt))

    assert apart is not None
    assert alike is not None
    assert (apart >= 7, alike <= 2) == (True, True), (apart, alike)


def test_office_chat_holds_no_marked_ideas_and_is_not_counted_offline() -> None:
    found = ideas(Channel.objects.get(slug="party-planning")).dimensions["ideas_quantity"]

    assert (found.count, found.unscored) == (None, 1)
