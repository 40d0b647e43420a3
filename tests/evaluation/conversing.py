"""Conversations of several agents, and short ways to measure them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from agents.models import Agent, Channel
from evaluation.runs.numbers import RunSummary
from tests.evaluation.measuring import evaluate_channel
from tests.factories import MONDAY, make_agent, make_channel, say

Line = tuple[str, str]  # speaker's slug (or "Name of an outsider"), text

DRY = ["No.", "I have counted it. It is short.", "File it.", "I was told. I did not ask.", "Noted. Nobody move."]
LOUD = [
    "OH MY GOSH you guys this is AMAZING!!!",
    "Wait, wait, can we PLEASE talk about the party??",
    "I am SO ready!! I brought glitter, like, so much glitter!",
    "You are all my FAVOURITE people!!!",
    "Ooh, what if we had a fountain, like, a chocolate one??",
]
LEARNED = [
    "Strictly speaking, a fountain is a structure; what you describe, if I may, is an appliance.",
    "There is, in the archive, a precedent from the spring, which the committee, regrettably, ignored.",
    "One might object, as others have, that glitter, being aluminium, never quite leaves a carpet.",
    "The figure, to be exact, is forty-one, of which, as far as anyone knows, three were borrowed.",
    "I would suggest, with respect, that we read the contract, all of it, before we sign.",
]
CONVERGED = [
    "Totally agree, great point, let's align on that and circle back.",
    "Great point, totally agree, let's circle back and align on that.",
    "Let's align on that, great point, and then circle back, totally.",
    "Totally, great point, let's circle back and align.",
    "Agree, let's align on that great point and circle back, totally.",
]
NAMES = ("ada", "bea", "cyd")


def converse(channel: Channel, lines: Iterable[Line], **fields: Any) -> Channel:
    """Say the lines in order, a minute apart; a speaker in lower case is an agent, made when it first speaks."""
    agents = {agent.slug: agent for agent in Agent.objects.all()}
    for minute, (speaker, text) in enumerate(lines):
        if speaker.islower() and speaker not in agents:
            agents[speaker] = make_agent(speaker)
        say(channel, agents.get(speaker, speaker), text, **{"sent_at": MONDAY + timedelta(minutes=minute), **fields})
    return channel


def in_turn(*voices: Sequence[str]) -> list[Line]:
    """The voices' lines, one of each speaker after the other."""
    return [(name, text) for texts in zip(*voices, strict=True) for name, text in zip(NAMES, texts, strict=False)]


def diverse(slug: str = "diverse") -> Channel:
    return converse(make_channel(slug), in_turn(DRY, LOUD, LEARNED))


def converged(slug: str = "converged") -> Channel:
    turned = [CONVERGED[n:] + CONVERGED[:n] for n in range(3)]
    return converse(make_channel(slug), in_turn(*turned))


def convergence(channel: Channel, **fields: Any) -> RunSummary:
    return evaluate_channel(channel=channel, dimensions=("convergence",), **fields)


def ideas(channel: Channel, **fields: Any) -> RunSummary:
    return evaluate_channel(channel=channel, dimensions=("ideas_quantity",), **fields)
