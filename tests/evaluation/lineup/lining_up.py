"""Channels of agents with a voice of their own each, or all with the same: for the voice line-up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from agents.models import Agent, Channel
from evaluation.lineup.measuring import LineUp
from tests.factories import make_agent, say

# Three ways to speak about the same things.
THINGS = [
    "the report",
    "lunch",
    "the printer",
    "the meeting",
    "the weather",
    "the invoice",
    "my desk",
    "the new client",
]


VOICES = {
    "formal": "I should be much obliged if somebody were to look after {}, at your earliest convenience.",
    "shouty": "OMG {}!!! NO WAY!!! I CAN'T EVEN!!!",
    "mumbly": "dunno... {} i guess... whatever",
}


SHARED = ["I think {} can wait.", "Somebody has to see to {}.", "What about {} now?", "There is nothing new on {}."]


def voices(*slugs: str) -> list[Agent]:
    return [make_agent(slug) for slug in slugs]


def chat(
    channel: Channel, agents: Sequence[Agent], lines: int, *, seed: int = 0, distinct: bool = True, **fields: Any
) -> None:
    """Agents take turns in no fixed order, each in the voice of its slug (or all in the same)."""
    rng = random.Random(seed)
    for number in range(lines):
        speakers = list(agents)
        rng.shuffle(speakers)
        for agent in speakers:
            phrase = VOICES[agent.slug] if distinct else rng.choice(SHARED)
            say(channel, agent, phrase.format(rng.choice(THINGS)) + f" {number}", **fields)


def left_out(result: LineUp) -> dict[str, str]:
    return {speaker.speaker: speaker.reason for speaker in result.left_out}
