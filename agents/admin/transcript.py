"""One page of a channel's messages, ready to be shown.

Pages are cut by position, not by offset: the last page of a channel of 50,000 messages costs what the first one costs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.db.models import Max, Min
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.columns import VALUE_DISPLAYS
from agents.kit.console.extensions import extensions
from agents.kit.templatetags.display import register as templates
from agents.models import Channel, Message

PAGE_SIZE = 50
DEEPEST = 4  # levels of indentation; deeper replies stay there
MOST_COUNTED = 10_000  # messages of a channel; beyond, it has "more than" that


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages in order, and the positions where the pages around them start; None where there are none.

    `total` counts no further than `MOST_COUNTED`; then there are `more`.
    """

    lines: list[dict[str, Any]]
    older: int | None
    newer: int | None
    total: int
    more: bool


def transcript_url(message: Message) -> str:
    """Return the place of a message in its channel's transcript."""
    return position_url(channel_url(message.channel_id), message.position)


def channel_url(channel: int) -> str:
    """Return the transcript of a channel (primary key)."""
    return reverse("admin:agents_channel_transcript", args=[channel])


def position_url(transcript: str, position: int) -> str:
    """Return the place of a message in the transcript of this address."""
    return f"{transcript}?at={position}#m{position}"


def channel_link(channel: Channel) -> SafeString:
    """A channel's name, linked to what was said in it."""
    return display.link(reverse("admin:agents_channel_transcript", args=[channel.pk]), channel)


def message_link(message: Message) -> SafeString:
    """The beginning of a message, linked to its place in its conversation."""
    return display.link(
        transcript_url(message), display.shortened(message.text, 80) or "(empty)", "in its conversation"
    )


VALUE_DISPLAYS.update({Channel: channel_link, Message: message_link})
templates.filter("place", transcript_url)
templates.filter("channel_link", channel_link)


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
    said = Message.objects.filter(channel=channel)
    rows = said.select_related("agent", "user", "parent__agent", "parent__user").prefetch_related("reactions")
    if at is not None:  # some messages above it, so that it is not the first line of its page
        above = said.filter(position__lt=at).order_by("-position").values_list("position", flat=True)
        rows = rows.filter(position__gte=min(above[: PAGE_SIZE // 5], default=at)).order_by("position")
    elif after is not None:
        rows = rows.filter(position__gt=after).order_by("position")
    else:
        rows = (rows.filter(position__lt=before) if before is not None else rows).order_by("-position")
    shown = sorted(rows[:PAGE_SIZE], key=lambda message: message.position)
    span = said.aggregate(first=Min("position"), last=Max("position"))
    total = said.order_by().values("pk")[: MOST_COUNTED + 1].count()
    return Page(
        lines=lines_of(shown),
        older=shown[0].position if shown and shown[0].position > span["first"] else None,
        newer=shown[-1].position if shown and shown[-1].position < span["last"] else None,
        total=min(total, MOST_COUNTED),
        more=total > MOST_COUNTED,
    )


def add_notes(request: HttpRequest, lines: list[dict[str, Any]]) -> None:
    """Add to each line of a page its ``notes``: what the apps know of the message, see `Extension.notes`."""
    messages = [line["message"] for line in lines]
    notes = [note(request, messages) for extension in extensions(Message, request) for note in extension.notes]
    for line, message in zip(lines, messages, strict=True):
        line["notes"] = [by_id[message.pk] for by_id in notes if message.pk in by_id]


def lines_of(rows: list[Message]) -> list[dict[str, Any]]:
    """Messages of one channel, in their order, as the template shows them.

    `depth` counts a message's parents on this page; `reply_to` is its parent where that is not right above it.
    """
    depths: dict[int, int] = {}
    lines: list[dict[str, Any]] = []
    previous: Message | None = None
    for row in rows:
        depths[row.pk] = min(depths.get(row.parent_id, 0) + 1, DEEPEST) if row.parent_id is not None else 0
        days = [timezone.localtime(one.sent_at).date() if one and one.sent_at else None for one in (previous, row)]
        lines.append(
            {
                "message": row,
                "kind": "agent" if row.agent_id else "user" if row.user_id else "outsider",
                "avatar": display.avatar(row.author_name, row.agent.avatar_color if row.agent else ""),
                "depth": depths[row.pk],
                "day": days[1] if days[1] != days[0] else None,
                "reply_to": row.parent if previous is None or row.parent_id != previous.pk else None,
                "reactions": list(Counter(display.visible(one.emoji) for one in row.reactions.all()).items()),
            }
        )
        previous = row
    return lines
