"""Fluency (S-6.3): varied and natural, or formulaic? Judged over the window, persona withheld, n-gram statistics as evidence."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agents.kit.text.ngrams import AMONG, comparable_ngrams, repetition_statistics, typical_recurrence
from agents.models import Message
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


def repetition_value(share: float) -> float:
    """``9 * (1 - share)**2``: 9 where no 3-gram recurs, 0 where all do."""
    return 9 * (1 - share) ** 2


def figures(subject: Subject, propositions: Sequence[Proposition]) -> dict[str, Any]:
    """What comparisons of claims about phrases go by offline: the statistic is exact, so that its interval comes from the messages alone.

    A message's figure is its jackknife pseudo-value (Tukey 1958), within 0 to 9: messages drawn with replacement would be repetition.

    Returns:
        ``phrases``: by proposition its weight, and the figure of each message under the key of its text. Empty for a model as judge,
        and for fewer than five messages.
    """
    by_window: dict[tuple[int, int], dict[str, float]] = {}
    measured = {}
    for proposition in propositions if subject.heuristic else ():
        if proposition.measure != "phrases" or proposition.hard:
            continue
        shown = proposition.first_n, proposition.last_n
        if shown not in by_window:
            by_window[shown] = _by_message([event.text for event in subject.own_window(*shown).events])
        scores = {key: 9 - value if proposition.inverted else value for key, value in by_window[shown].items()}
        if scores:
            measured[proposition.id] = {"weight": proposition.weight, "scores": scores}
    return {"phrases": measured} if measured else {}


def _by_message(texts: Sequence[str]) -> dict[str, float]:
    if len(texts) < AMONG:
        return {}
    share, without = typical_recurrence([comparable_ngrams(text, 3) for text in texts])
    values = [repetition_value(one) for one in without]
    mean = sum(values) / len(values)
    seen: Counter[str] = Counter()
    by_message = {}
    for text, value in zip(texts, values, strict=True):
        key = hashlib.blake2s(text.encode(errors="replace"), digest_size=6).hexdigest()
        seen[key] += 1
        again = f"/{seen[key]}" if seen[key] > 1 else ""  # the same was said before
        figure = repetition_value(share) + (len(texts) - 1) * (mean - value)
        by_message[f"message:{key}{again}"] = round(min(9.0, max(0.0, figure)), 4)
    return by_message


def not_evaluable(subject: Subject) -> str:
    """Why nothing can be judged for this dimension; empty when it can. Repetition needs two messages."""
    count = subject.spoken()[:2].count()
    if count == 0:
        return subject.why_silent()
    return "" if count == 2 else "one message only: fluency is judged across messages"
