"""What an agent said before and says now, and the pairs a judge was shown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from agents.models import Agent, Channel, Message
from evaluation.models import EvaluationScore
from evaluation.runs.numbers import DimensionSummary
from tests.evaluation.measuring import evaluate_agent
from tests.factories import MONDAY, make_channel, say, talk


def before_and_now(
    agent: Agent, before: Sequence[str], now: Sequence[str], channel: Channel | None = None
) -> tuple[list[Message], list[Message]]:
    """What an agent said in build 40, and a day later in build 41."""
    channel = channel or make_channel()
    old = talk(agent, before, channel=channel, tags={"build": "40"})
    day = timedelta(days=1)
    new = [
        say(channel, agent, text, sent_at=MONDAY + day + timedelta(minutes=n), tags={"build": "41"})
        for n, text in enumerate(now)
    ]
    return old, new


def consistency(agent: Agent, **fields: Any) -> DimensionSummary:
    asked = {"where": {"build": "41"}, **fields}
    return evaluate_agent(agent=agent, dimensions=("consistency",), **asked).dimensions["consistency"]


def pairs() -> list[tuple[str, str]]:
    """(now, before) of every stored pair."""
    rows = EvaluationScore.objects.filter(dimension="consistency", message__isnull=False).order_by("pk")
    return [(row.message.text, row.compared_with.text) for row in rows if row.message and row.compared_with]
