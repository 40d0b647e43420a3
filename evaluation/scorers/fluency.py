"""Fluency (S-6.3): varied and natural, or formulaic? Judged over the window, persona withheld, n-gram statistics as evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from agents.models import Message
from agents.text.ngrams import repetition_statistics
from evaluation.scorers.subjects import Context, Item, Subject

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition


def plan(subject: Subject, propositions: Sequence[Proposition]) -> list[Item]:
    """Every proposition once, on the full window."""
    return [Item(proposition) for proposition in propositions] if subject.spoken().exists() else []


def context(
    subject: Subject, proposition: Proposition, message: Message | None, earlier: Message | None = None
) -> Context:
    """What the agent said, with its repetition statistics as data; never the persona (AC-6.3.3 to AC-6.3.5)."""
    window = subject.own_window(proposition.first_n, proposition.last_n)
    return Context(
        agent_name=subject.agent.display_name,
        window=window,
        statistics=asdict(repetition_statistics([event.text for event in window.events])),
        own_messages=True,
    )


def not_evaluable(subject: Subject) -> str:
    """Why nothing can be judged for this dimension; empty when it can. Repetition needs two messages."""
    count = subject.spoken()[:2].count()
    if count == 0:
        return subject.why_silent()
    return "" if count == 2 else "one message only: fluency is judged across messages"
