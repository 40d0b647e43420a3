"""Fluency (S-6.3): varied and natural, or formulaic? Judged over the window, persona withheld, n-gram statistics as evidence."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agents.kit.text.ngrams import AMONG, comparable_ngrams, repetition_statistics, typical_recurrence
from agents.models import Message
from evaluation.scorers.context import Context
from evaluation.scorers.subjects import Subject, plan_on_window

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition


plan = plan_on_window


def context(
    subject: Subject, proposition: Proposition, message: Message | None, earlier: Message | None = None
) -> Context:
    """Return what the agent said, with its repetition statistics as data; never the persona (AC-6.3.3 to AC-6.3.5)."""
    window = subject.own_window(proposition.first_n, proposition.last_n)
    return Context(
        agent_name=subject.agent.display_name,
        window=window,
        statistics=asdict(repetition_statistics([event.text for event in window.events])),
        own_messages=True,
    )


def repetition_value(share: float) -> float:
    """Return ``9 * (1 - share)**2``: 9 where no 3-gram recurs, 0 where all do."""
    return 9 * (1 - share) ** 2


def figures(subject: Subject, propositions: Sequence[Proposition]) -> dict[str, Any]:
    """Measure what offline comparisons of claims about phrases go by: the statistic is exact, its interval comes from the messages alone.

    A message's figure is its jackknife pseudo-value (Tukey 1958), within 0 to 9. A bootstrap would draw some messages twice, which is
    repetition itself.

    Returns:
        ``phrases``: by proposition (that has this statistic as its measure and is not hard) its weight, and the figure of each message
        under the key of its text, flipped where it is inverted. Empty for a model as judge, and for fewer than five messages.
    """
    if not subject.heuristic:
        return {}
    measured: dict[str, Any] = {}
    for proposition in propositions:
        if proposition.measure != "phrases" or proposition.hard:
            continue
        window = subject.own_window(proposition.first_n, proposition.last_n)
        by_message = _pseudo_values([event.text for event in window.events])
        if proposition.inverted:
            by_message = {key: 9 - value for key, value in by_message.items()}
        if by_message:
            measured[proposition.id] = {"weight": proposition.weight, "scores": by_message}
    return {"phrases": measured} if measured else {}


def _pseudo_values(texts: Sequence[str]) -> dict[str, float]:
    """Return each message's jackknife pseudo-value of the repetition score, cut to 0 to 9, by a key made of its text.

    Equal texts have keys of their own, ``…/2`` for the second one. Empty for fewer than five messages.
    """
    if len(texts) < AMONG:
        return {}
    share, shares_without = typical_recurrence([comparable_ngrams(text, 3) for text in texts])
    values_without = [repetition_value(share_without) for share_without in shares_without]
    mean = sum(values_without) / len(values_without)
    seen: Counter[str] = Counter()
    by_message: dict[str, float] = {}
    for text, value_without in zip(texts, values_without, strict=True):
        pseudo_value = repetition_value(share) + (len(texts) - 1) * (mean - value_without)
        digest = hashlib.blake2s(text.encode(errors="replace"), digest_size=6).hexdigest()
        seen[digest] += 1
        key = f"message:{digest}"
        if seen[digest] > 1:  # the same was said before
            key += f"/{seen[digest]}"
        by_message[key] = round(min(9.0, max(0.0, pseudo_value)), 4)
    return by_message


def not_evaluable(subject: Subject) -> str:
    """Return why nothing can be judged for this dimension; empty when it can. Repetition needs two messages."""
    count = subject.messages()[:2].count()
    if count == 0:
        return subject.why_silent()
    if count == 1:
        return "one message only: fluency is judged across messages"
    return ""
