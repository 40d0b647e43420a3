"""Persona adherence (S-6.1): does each sampled message match the persona? The judge sees it, with what was asked for where it was said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from agents.models import Message
from evaluation.scorers.context import Context, Event
from evaluation.scorers.subjects import Item, Subject

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition


def plan(subject: Subject, propositions: Sequence[Proposition]) -> list[Item]:
    """Plan every proposition on every sampled message (AC-6.1.2, AC-6.1.4); those about the full window once, after these."""
    sampled = subject.sample()
    items: list[Item] = []
    for message_id in sampled:
        for proposition in propositions:
            if not proposition.over_window:
                items.append(Item(proposition, message_id))
    if sampled:
        items += [Item(proposition) for proposition in propositions if proposition.over_window]
    return items


def context(
    subject: Subject, proposition: Proposition, message: Message | None, earlier: Message | None = None
) -> Context:
    """Return the message judged, amid what happened in its channel; for a proposition about the full window all that the agent said in it.

    All messages of a stretch have the same trajectory, so that the prompt up to there can be cached.

    Raises:
        ValueError: There is no message, and the proposition is about one.
    """
    if proposition.over_window:
        return Context(
            agent_name=subject.agent.display_name,
            persona=subject.persona if proposition.include_personas else None,
            window=subject.own_window(proposition.first_n, proposition.last_n),
            own_messages=True,
        )
    if message is None:
        raise ValueError(f"{proposition.id} is judged message by message")
    window, number = subject.window_around(message, proposition.first_n, proposition.last_n)
    return Context(
        agent_name=subject.agent.display_name,
        persona=subject.persona_in(message) if proposition.include_personas else None,
        window=window,
        message_number=number,
        message=Event("action", subject.agent.display_name, message.text),
        channel_name=str(message.channel),
    )


def read_ahead(subject: Subject, messages: Iterable[Message]) -> None:
    """Read what `context` shows of these messages, windows and what was asked of the agent, in few queries for all of them."""
    subject.read_ahead(messages)
    subject.read_manners(messages)


def not_evaluable(subject: Subject) -> str:
    """Return why nothing can be judged for this dimension; empty when it can."""
    return subject.why_silent()
