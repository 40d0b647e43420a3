"""Plain functions that put answers into the rounds of a debate without playing them, and show what a seat would read."""

from __future__ import annotations

from typing import Any

from agents.debates.models import Debate, DebateTurn
from agents.debates.starting import start_debate
from agents.models import Agent, Message
from agents.turn.pipeline import Turn, pipeline
from agents.turn.prompt import Prompt, build_prompt, new_turn
from tests.factories import make_agent, say

TOPIC = "Should the office buy a new printer?"
NONCE = "0123456789ab"
CLERKS = (("ada", "Ada Quill"), ("bob", "Bob Marsh"), ("cyd", "Cyd Rowan"), ("dora", "Dora Finch"))


def clerks(number: int = 3) -> list[Agent]:
    """So many agents with names of two words, none of which their personas hold."""
    return [
        make_agent(
            slug, display_name=name, system_prompt="You are a dry and careful clerk.", sample_lines=["Hm. So be it."]
        )
        for slug, name in CLERKS[:number]
    ]


def debate_of(mode: str, agents: list[Agent] | None = None, **options: Any) -> Debate:
    return start_debate(topic=options.pop("topic", TOPIC), mode=mode, agents=agents or clerks(), **options)


def answered(debate: Debate, round: int, seat: int, text: str = "", **fields: Any) -> Message:
    """What a seat answered in a round."""
    place = debate.seats.select_related("agent").get(number=seat)
    payload = {
        "position": f"Position of seat {seat} in round {round}. More of it.",
        "reasoning": f"Reasons of seat {seat} in round {round}.",
        "stance": "yes",
        "confidence": 0.7,
        "citations": [],
        **fields,
    }
    message = say(debate.channel, place.agent, text or f"Seat {seat} speaks in round {round}.", payload=payload)
    status = DebateTurn.Status.ANSWERED
    DebateTurn.objects.create(debate=debate, round=round, seat=place, message=message, status=status)
    return message


def turn_of(debate: Debate, round: int, seat: int, **overrides: Any) -> Turn:
    """The turn of a seat in a round before its stages, with fixed markers."""
    agent = debate.seats.select_related("agent").get(number=seat).agent
    place = {"debate": {"debate": debate.pk, "round": round, "seat": seat}}
    turn = new_turn(agent=agent, channel=debate.channel, overrides={**place, **overrides})
    turn.nonce = NONCE
    return turn


def read(debate: Debate, round: int, seat: int, **overrides: Any) -> Prompt:
    """What the seat reads at the beginning of its turn."""
    turn = turn_of(debate, round, seat, **overrides)
    pipeline().prepare(turn)
    return build_prompt(turn)


def text_of(prompt: Prompt) -> str:
    return f"{prompt.system_text}\n\n{prompt.user_text}\n"


def section(prompt: Prompt, heading: str) -> str:
    return next(part.body for part in prompt.sections if part.heading == heading)
