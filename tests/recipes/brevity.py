"""Brevity: is each message as short as the persona? Judged message by message, the persona withheld."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agents.models import Message
from evaluation.scorers.context import Context, Event
from evaluation.scorers.subjects import Item, Subject

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition


def plan(subject: Subject, propositions: Sequence[Proposition]) -> list[Item]:
    """Every proposition on every sampled message."""
    return [Item(proposition, message_id) for message_id in subject.sample() for proposition in propositions]


def context(
    subject: Subject, proposition: Proposition, message: Message | None, earlier: Message | None = None
) -> Context:
    """The message judged, after what was said before it."""
    if message is None:
        raise ValueError(f"{proposition.id} is judged message by message")
    name = subject.agent.display_name
    window, number = subject.window_around(message, proposition.first_n, proposition.last_n)
    return Context(agent_name=name, window=window, message_number=number, message=Event("action", name, message.text))


def not_evaluable(subject: Subject) -> str:
    """Why nothing can be judged for this dimension; empty when it can."""
    return subject.why_silent()
