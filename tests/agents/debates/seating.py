"""Plain functions that seat a debate, put answers into its rounds, and show what a seat would read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.debates.modes import mode_of
from agents.models import Agent, Debate, DebateSeat, DebateTurn, Message
from agents.turn.pipeline import Turn, pipeline
from agents.turn.prompt import Prompt, build_prompt, new_turn
from tests.agents.turn.playing import join
from tests.factories import make_channel, say

TOPIC = "Should the office buy a new printer?"
NONCE = "0123456789ab"


def seated(mode: str, agents: Sequence[Agent], *, topic: str = TOPIC, **config: Any) -> Debate:
    """A debate of these agents that waits for its first round; `config` is the mode's own."""
    rules = mode_of(mode)
    channel = make_channel("debate-printer-1", kind="debate")
    join(channel, *agents)
    debate = Debate.objects.create(channel=channel, mode=mode, topic=topic, settings={"config": config})
    for number, (agent, perspective) in enumerate(zip(agents, rules.perspectives(len(agents), config), strict=True), 1):
        DebateSeat.objects.create(
            debate=debate,
            number=number,
            agent=agent,
            role=rules.get_agent_role(number, len(agents)),
            perspective=perspective,
            label=f"Participant {number}",
        )
    return debate


def answers(debate: Debate, round: int, seat: int, text: str = "", **fields: Any) -> Message:
    """What a seat answered in a round."""
    place = debate.seats.select_related("agent").get(number=seat)
    payload = {
        "position": f"Position of seat {seat} in round {round}. It is short.",
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


def turn_of(debate: Debate, round: int, seat: int) -> Turn:
    """The turn of a seat in a round, as it begins, with fixed markers."""
    agent = debate.seats.select_related("agent").get(number=seat).agent
    overrides = {"debate": {"debate": debate.pk, "round": round, "seat": seat}}
    turn = new_turn(agent=agent, channel=debate.channel, overrides=overrides)
    turn.nonce = NONCE
    return turn


def read(debate: Debate, round: int, seat: int) -> Prompt:
    """What the seat reads at the beginning of its turn."""
    turn = turn_of(debate, round, seat)
    pipeline().prepare(turn)
    return build_prompt(turn)


def text_of(prompt: Prompt) -> str:
    return f"{prompt.system_text}\n\n{prompt.user_text}\n"


def section(prompt: Prompt, heading: str) -> str:
    return next(part.body for part in prompt.sections if part.heading == heading)
