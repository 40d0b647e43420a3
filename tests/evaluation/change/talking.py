"""Long conversations, and the stretches of turns they are read by."""

from __future__ import annotations

from datetime import timedelta

from agents.models import Agent, Channel
from tests.factories import MONDAY, make_channel, say

BINS = ((1, 5), (6, 15), (16, 30), (31, None))


def chat(agent: Agent, slug: str, turns: int) -> Channel:
    """A conversation in which the agent answers a visitor `turns` times."""
    channel = make_channel(slug)
    for turn in range(1, turns + 1):
        say(channel, "Visitor", f"and {turn}?", sent_at=MONDAY + timedelta(minutes=2 * turn))
        say(channel, agent, f"line {turn}", sent_at=MONDAY + timedelta(minutes=2 * turn + 1))
    return channel
