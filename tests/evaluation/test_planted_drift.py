"""The shipped data and the offline judge: planted drift is found, and nobody else is accused."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.models import Agent
from agents.seed import loader
from evaluation.capture import capture
from evaluation.planning import RunSpec
from evaluation.summary import by_tag
from tests.agents.test_seed import CAST

pytestmark = pytest.mark.django_db
LOSE_THEIR_VOICE = {"michael", "dwight", "angela", "stanley", "kevin"}


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = "offline:lexical-1", []
    loader.seed()


def drop(scores: dict[str, float]) -> float:
    """From build 40 to build 41, in points."""
    return scores["40"] - scores["41"]


def test_adherence_falls_by_two_points_for_those_who_lose_their_voice_and_for_nobody_else() -> None:
    specs = [RunSpec(agent=a, dimensions=("adherence",), samples=100) for a in Agent.objects.order_by("slug")]

    drops = {
        found.summary.run.agent.slug: drop(by_tag(found.summary.run, "build"))
        for found in capture(specs)
        if found.summary.run.agent is not None
    }

    assert set(drops) == set(CAST)
    assert {slug for slug, points in drops.items() if points >= 2} == LOSE_THEIR_VOICE, drops
    assert {slug for slug, points in drops.items() if abs(points) >= 2} == LOSE_THEIR_VOICE, drops


def test_fluency_falls_by_two_points_for_the_one_who_repeats_himself_and_for_nobody_else() -> None:
    scores: dict[str, dict[str, float]] = {slug: {} for slug in CAST}
    for build in ("40", "41"):
        specs = [RunSpec(agent=a, dimensions=("fluency",), where={"build": build}) for a in Agent.objects.all()]
        for found in capture(specs):
            score = found.summary.dimensions["fluency"].score
            assert score is not None
            assert found.summary.run.agent is not None
            scores[found.summary.run.agent.slug][build] = score
    drops = {slug: drop(found) for slug, found in scores.items()}

    assert {slug for slug, points in drops.items() if abs(points) >= 2} == {"jim"}, drops
    assert drops["jim"] >= 2
