"""The shipped data and the offline judge: planted drift is found, and nobody else is accused."""

from __future__ import annotations

import random

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel
from agents.seed import loader
from evaluation.windows import parse_window
from tests.agents.test_seed import CAST
from tests.evaluation.conversing import convergence, converse
from tests.evaluation.measuring import evaluate_agent
from tests.factories import make_channel

pytestmark = pytest.mark.django_db
LOSE_THEIR_VOICE = {"michael", "dwight", "angela", "stanley", "kevin"}


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.PROPOSITION_DIRS = "offline:lexical-1", []
    loader.seed()


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
