"""One page of a channel's messages, ready to be shown.

Pages are cut by position, not by offset: the last page of a channel of 50,000 messages costs what the first one costs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from django.db.models import Count, Max, Min, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from agents.admin import display
from agents.models import Channel, Message

PAGE_SIZE = 100
DEEPEST = 4  # levels of indentation; deeper replies stay there


@dataclass(frozen=True, slots=True)
class Line:
    """One message as it is shown.

    `depth` counts its parents on this page; `reply_to` is set when its parent is not right above it.
    """

    message: Message
    kind: str
    avatar: SafeString
    author: SafeString
    text: SafeString
    depth: int
    day: date | None
    reply_to: SafeString | None
    tags: SafeString
    payload: SafeString
    reactions: tuple[tuple[SafeString, int], ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages in order, and the positions where the pages around them start; None where there are none."""

    lines: tuple[Line, ...]
    older: int | None
    newer: int | None
    total: int


def transcript_url(message: Message) -> str:
    """The place of a message in its channel's transcript."""
    page = reverse("admin:agents_channel_transcript", args=[message.channel_id])
    return f"{page}?at={message.position}#m{message.position}"


def transcript_page(
    *, channel: Channel, at: int | None = None, before: int | None = None, after: int | None = None
) -> Page:
    """A page of at most `PAGE_SIZE` messages; the newest ones when no position is given.

    Args:
        channel: Whose messages.
        at: A position to show with some messages before it.
        before: Show the messages just before this position.
        after: Show the messages just after this position.
    """
    messages = (
        Message.objects.filter(channel=channel)
        .select_related("agent", "user", "parent__agent", "parent__user")
        .prefetch_related("reactions")
    )
    start = None if at is None else _shortly_before(channel, at)
    rows = _cut(messages, start=start, before=before, after=after)
    span = Message.objects.filter(channel=channel).aggregate(
        first=Min("position"), last=Max("position"), total=Count("pk")
    )
    return Page(
        lines=tuple(_lines(rows)),
        older=rows[0].position if rows and rows[0].position > span["first"] else None,
        newer=rows[-1].position if rows and rows[-1].position < span["last"] else None,
        total=span["total"],
    )


def _shortly_before(channel: Channel, at: int) -> int:
    """The position some messages above `at`, so that it is not the first line of its page."""
    above = (
        Message.objects.filter(channel=channel, position__lt=at)
        .order_by("-position")
        .values_list("position", flat=True)
    )
    return min(above[: PAGE_SIZE // 5], default=at)


def _cut(messages: QuerySet[Message], *, start: int | None, before: int | None, after: int | None) -> list[Message]:
    if start is not None:
        return list(messages.filter(position__gte=start).order_by("position")[:PAGE_SIZE])
    if after is not None:
        return list(messages.filter(position__gt=after).order_by("position")[:PAGE_SIZE])
    if before is not None:
        messages = messages.filter(position__lt=before)
    return list(messages.order_by("-position")[:PAGE_SIZE])[::-1]


def _lines(rows: list[Message]) -> list[Line]:
    depths: dict[int, int] = {}
    lines: list[Line] = []
    previous: Message | None = None
    for row in rows:
        depth = min(depths.get(row.parent_id, 0) + 1, DEEPEST) if row.parent_id is not None else 0
        depths[row.pk] = depth
        lines.append(_line(row, depth=depth, previous=previous))
        previous = row
    return lines


def _line(row: Message, *, depth: int, previous: Message | None) -> Line:
    parent = row.parent
    quoted = None
    if parent is not None and (previous is None or parent.pk != previous.pk):
        quoted = display.link(
            transcript_url(parent),
            f"{parent.author_name}: {display.shortened(parent.text, 60)}",
            "the message it answers",
        )
    color = row.agent.avatar_color if row.agent else ""
    return Line(
        message=row,
        kind="agent" if row.agent_id else "user" if row.user_id else "outsider",
        avatar=display.avatar(row.author_name, color),
        author=display.page_of(row.agent, row.author_name) if row.agent else display.isolated(row.author_name),
        text=display.visible(row.text),
        depth=depth,
        day=_new_day(row.sent_at, previous.sent_at if previous else None),
        reply_to=quoted,
        tags=display.tags(row.tags) if row.tags else SafeString(""),
        payload=display.json_block(row.payload) if row.payload else SafeString(""),
        reactions=tuple(Counter(display.visible(reaction.emoji) for reaction in row.reactions.all()).items()),
    )


def _new_day(sent: datetime | None, before: datetime | None) -> date | None:
    """The day of a message when it differs from the day of the one above."""
    day = timezone.localtime(sent).date() if sent else None
    return day if day and day != (timezone.localtime(before).date() if before else None) else None


def position_of(query: Any, name: str) -> int | None:
    """A position from the query string; None when it is missing or not a number."""
    value = query.get(name, "")
    return int(value) if value.isdecimal() and len(value) < 19 else None
