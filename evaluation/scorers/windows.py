"""Which messages are measured: committed speech of the agent, in a window, with given tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone

from agents.models import Agent, Channel, Message

_DURATION = re.compile(r"(\d{1,5})([hdw])")
_LAST = re.compile(r"last:(\d{1,6})")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
NO_MESSAGE = "no message of the agent in the window"  # why nothing of an agent was measured
BEFORE = "before"
ALLOWED = "all, last:N (the agent's last N messages) or a duration such as 24h, 7d, 4w"


@dataclass(frozen=True, slots=True)
class MessageWindow:
    """A window, made concrete: an open or closed stretch of time, or a number of last messages.

    A message without a time is in no stretch of time, only in ``all`` and ``last:N``. `stored_by` leaves out what was stored later: the
    window as it was then.
    """

    spec: str = "all"
    start: datetime | None = None
    end: datetime | None = None
    last: int | None = None
    stored_by: datetime | None = None


def parse_window(spec: str, *, now: datetime | None = None) -> MessageWindow:
    """Read a window as people write it.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    spec = spec.strip().lower()
    if spec == "all":
        return MessageWindow()
    if match := _LAST.fullmatch(spec):
        if int(match[1]) < 1:
            raise ValueError(f"window {spec!r}: at least 1 message; allowed: {ALLOWED}")
        return MessageWindow(spec, last=int(match[1]))
    if match := _DURATION.fullmatch(spec):
        if int(match[1]) < 1:
            raise ValueError(f"window {spec!r} is empty; allowed: {ALLOWED}")
        end = now or timezone.now()
        return MessageWindow(spec, start=end - timedelta(**{_UNITS[match[2]]: int(match[1])}), end=end)
    raise ValueError(f"window {spec!r} is not understood; allowed: {ALLOWED}")


def parse_history(spec: str, *, now: datetime | None = None) -> MessageWindow:
    """Read what a window is compared with: ``before`` (all that was said before it), or a window as `parse_window` reads it.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    if spec.strip().lower() == BEFORE:
        return MessageWindow(BEFORE)
    try:
        return parse_window(spec, now=now)
    except ValueError as error:
        raise ValueError(f"history {str(error).removeprefix('window ')}, {BEFORE}") from None


def with_tags(messages: QuerySet[Message], where: Mapping[str, str]) -> QuerySet[Message]:
    """The messages that carry every one of these tags."""
    for number, (key, value) in enumerate(sorted(where.items())):
        # KeyTextTransform takes the key as it is; a lookup such as tags__KEY would read meaning into underscores. The Cast makes
        # the comparison one of texts: without it SQLite reads the value as JSON and "41" is a number.
        tag = Cast(KeyTextTransform(key, "tags"), TextField())
        messages = messages.alias(**{f"tag_{number}": tag}).filter(**{f"tag_{number}": value})
    return messages


def in_window(messages: QuerySet[Message], window: MessageWindow) -> QuerySet[Message]:
    """The messages inside the window's stretch of time."""
    if window.start is not None:
        messages = messages.filter(sent_at__gte=window.start)
    if window.end is not None:
        messages = messages.filter(sent_at__lte=window.end)
    if window.stored_by is not None:
        messages = messages.filter(created_at__lte=window.stored_by)
    return messages


def spoken_by(
    *, agent: Agent, window: MessageWindow, where: Mapping[str, str] | None = None, simulated: bool = False
) -> QuerySet[Message]:
    """What an agent really said: committed messages with a text, never drafts, never synthetic ones, oldest first.

    With `simulated`, what it was made to say for a measurement, and nothing else: the two never mix (AC-6.5.2). Messages without
    a time stand before those with one, in the order they were stored.
    """
    messages = with_tags(Message.objects.filter(agent=agent, synthetic=simulated, text__regex=r"\S"), where or {})
    messages = in_window(messages, window).order_by(F("sent_at").asc(nulls_first=True), "pk")
    if window.last is None:
        return messages
    newest = messages.order_by(F("sent_at").desc(nulls_last=True), "-pk").values_list("pk", flat=True)[: window.last]
    return Message.objects.filter(pk__in=list(newest)).order_by(F("sent_at").asc(nulls_first=True), "pk")


def said_in(
    *, channel: Channel, window: MessageWindow, where: Mapping[str, str] | None = None, agents_only: bool = False
) -> QuerySet[Message]:
    """What was said in a channel by anybody, in its order; simulated speech only where the whole channel was simulated.

    Args:
        channel: Whose messages.
        window: ``last:N`` are the channel's last N messages.
        where: Tags the messages must have.
        agents_only: Leave out users and outsiders.
    """
    messages = Message.objects.filter(channel=channel, synthetic=channel.synthetic, text__regex=r"\S")
    messages = in_window(with_tags(messages, where or {}), window)
    if agents_only:
        messages = messages.filter(agent__isnull=False)
    if window.last is not None:
        newest = list(messages.order_by("-position").values_list("position", flat=True)[: window.last])
        messages = messages.filter(position__gte=min(newest, default=0))
    return messages.order_by("position")


def said_before(message: Message, *, agent: Agent, where: Mapping[str, str] | None = None) -> QuerySet[Message]:
    """What the agent said before a message of its own, in the order of `spoken_by`."""
    earlier = Q(sent_at__isnull=True, pk__lt=message.pk)
    if message.sent_at is not None:
        earlier = (
            Q(sent_at__isnull=True) | Q(sent_at__lt=message.sent_at) | Q(sent_at=message.sent_at, pk__lt=message.pk)
        )
    return spoken_by(agent=agent, window=MessageWindow(), where=where).filter(earlier)
