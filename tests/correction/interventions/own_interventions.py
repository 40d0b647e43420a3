"""What a team may write: the example of docs/how-to/steer.md is read from there, and mistakes are here."""

from __future__ import annotations

from pydantic import Field

from agents.models import Agent
from correction.interventions import (
    Finding,
    FunctionalPrecondition,
    InterventionBatch,
    InterventionContext,
    Parameters,
    text_effect,
)


class Share(Parameters):
    at_least: float = Field(ge=0, le=1, description="share of the last messages")


def asks_questions(context: InterventionContext, parameters: Share) -> Finding:
    """Share of the last messages that end with a question mark."""
    asked = [message for message in context.messages if message.text.rstrip().endswith("?")]
    share = len(asked) / max(1, len(context.messages))
    return Finding(share >= parameters.at_least, f"{share:.0%} are questions", share)


def long_talk(context: InterventionContext) -> bool:
    """At least three messages."""
    return len(context.messages) >= 3


def silence(context: InterventionContext) -> bool:
    return True


def three_arguments(context: InterventionContext, one: int, two: int) -> bool:
    return True


def batch() -> InterventionBatch:
    return InterventionBatch.create_for_each(
        Agent.objects.filter(slug__in=["ada", "bob"]),
        name="long-talks",
        preconditions=[FunctionalPrecondition(test=long_talk, text="at least three messages")],
        effect=text_effect("{{agent_name}}, come to an end."),
        cooldown_messages=0,
    )


def broken_batch() -> InterventionBatch:
    raise RuntimeError("no such table")


def variety_batch() -> InterventionBatch:
    return InterventionBatch.create_for_each(
        Agent.objects.all(),
        name="variety",
        preconditions=[FunctionalPrecondition(test=long_talk, text="")],
        effect=text_effect("Hi."),
    )


async def later(context: InterventionContext) -> bool:
    return False
