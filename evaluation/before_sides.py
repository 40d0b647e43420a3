"""Which messages of an agent belong before a change of its persona, and which after it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, QuerySet

from agents.models import Agent, Message

SPARE = 3  # messages read for each that is wanted: some are blank, some belong to the other side


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """When a persona was changed.

    Attributes:
        at: The change.
        since: When what it changed was changed the time before; None: never.
        until: When that was changed again, or taken back; None: it holds.
        version: Number of the persona version that the change made; None where nobody kept it.
    """

    at: datetime
    since: datetime | None = None
    until: datetime | None = None
    version: int | None = None


def sides(agent: Agent, moments: Moments, n: int) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The last `n` messages before and the first `n` after, oldest first.

    A message belongs to the persona it was spoken with: the answer of a turn that began before the change belongs before it, also
    where it was sent later. Imported messages have no version and go by their time; those without a time are on neither side.
    """
    earlier, later = _spoken(agent), _spoken(agent).filter(sent_at__gt=moments.at)
    earlier = earlier.filter(sent_at__lte=moments.at)
    if moments.since is not None:
        earlier = earlier.filter(sent_at__gt=moments.since)
    if moments.until is not None:
        later = later.filter(sent_at__lte=moments.until)
    next_ones = _worded(later.order_by("sent_at", "pk")[: SPARE * n])
    overtaken = [message for message in next_ones if _is_older(message, moments.version)]
    after = [message for message in next_ones if not _is_older(message, moments.version)]
    before = [*reversed(_worded(earlier.order_by("-sent_at", "-pk")[: SPARE * n])), *overtaken]
    return tuple(before[-n:]), tuple(after[:n])


def _spoken(agent: Agent) -> QuerySet[Message]:
    """Along the index of agent and time, however much the agent said."""
    return (
        Message.objects.filter(agent=agent, synthetic=False)
        .exclude(text="")
        .select_related("channel", "agent")
        .annotate(spoken_with=F("persona_version__number"))
    )


def _worded(rows: QuerySet[Message]) -> list[Message]:
    return [message for message in rows if message.text.strip()]


def _is_older(message: Message, version: int | None) -> bool:
    number: int | None = message.spoken_with  # type: ignore[attr-defined]  # an annotation
    return version is not None and number is not None and number < version
