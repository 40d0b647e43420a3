"""One page of a channel's messages, ready to be shown.

Pages are cut by position, not by offset: the last page of a channel of 50,000 messages costs what the first one costs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.db.models import Max, Min
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.columns import QUOTING_DISPLAYS, VALUE_DISPLAYS
from agents.kit.console.extensions import extensions_for_user
from agents.kit.templatetags.display import register as templates
from agents.models import Channel, Message

PAGE_SIZE = 50
SHOWN_ABOVE = (
    PAGE_SIZE // 5
)  # messages above the one that the address names, so that it is not the first line of its page
DEEPEST = 4  # levels of indentation; deeper replies stay there
MOST_COUNTED = 10_000  # messages of a channel; beyond, it has "more than" that


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages in order, and where the pages around them are.

    `older` is the position before which the older page ends, `newer` that after which the newer one begins; None where there is none.
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
    """Return a channel's name, linked to what was said in it."""
    return display.link(reverse("admin:agents_channel_transcript", args=[channel.pk]), channel)


def message_link(message: Message) -> SafeString:
    """Return the beginning of a message, linked to its place in its conversation."""
    text = display.shortened(message.text, 80) or "(empty)"
    return display.link(transcript_url(message), text, "in its conversation")


def message_number(message: Message) -> SafeString:
    """Return the number of a message, linked to its place in its conversation, for users who may not read its text."""
    return display.link(transcript_url(message), f"message {message.position}", "in its conversation")


VALUE_DISPLAYS.update({Channel: channel_link, Message: message_number})
QUOTING_DISPLAYS[Message] = message_link
templates.filter("place", transcript_url)
templates.filter("channel_link", channel_link)


def transcript_page(
    *, channel: Channel, at: int | None = None, before: int | None = None, after: int | None = None
) -> Page:
    """Return a page of at most `PAGE_SIZE` messages, in order; the newest ones when none of the three positions is given.

    Args:
        channel: Whose messages.
        at: A position to show with some messages before it.
        before: Show the messages just before this position.
        after: Show the messages just after this position.
    """
    messages = Message.objects.filter(channel=channel)
    rows = messages.select_related("agent", "user", "parent__agent", "parent__user").prefetch_related("reactions")
    if at is not None:
        above = messages.filter(position__lt=at).order_by("-position").values_list("position", flat=True)
        first = min(above[:SHOWN_ABOVE], default=at)
        rows = rows.filter(position__gte=first).order_by("position")
    elif after is not None:
        rows = rows.filter(position__gt=after).order_by("position")
    elif before is not None:
        rows = rows.filter(position__lt=before).order_by("-position")
    else:
        rows = rows.order_by("-position")
    on_page = sorted(rows[:PAGE_SIZE], key=lambda message: message.position)
    ends = messages.aggregate(first=Min("position"), last=Max("position"))
    older = newer = None
    if on_page and on_page[0].position > ends["first"]:
        older = on_page[0].position
    if on_page and on_page[-1].position < ends["last"]:
        newer = on_page[-1].position
    total = messages.order_by().values("pk")[: MOST_COUNTED + 1].count()
    return Page(
        lines=lines_of(on_page),
        older=older,
        newer=newer,
        total=min(total, MOST_COUNTED),
        more=total > MOST_COUNTED,
    )


def add_notes(request: HttpRequest, lines: list[dict[str, Any]]) -> None:
    """Add to each line of a page its ``notes``: what the apps know of the message, see `Extension.notes`."""
    messages = [line["message"] for line in lines]
    notes_by_message: dict[int, list[SafeString]] = defaultdict(list)
    for extension in extensions_for_user(Message, request):
        for notes_of in extension.notes:
            for key, html in notes_of(request, messages).items():
                notes_by_message[key].append(html)
    for line in lines:
        line["notes"] = notes_by_message[line["message"].pk]


def lines_of(rows: list[Message]) -> list[dict[str, Any]]:
    """Return messages of one channel, in their order, as the template shows them.

    `depth` counts a message's parents on this page; `day` is set where another day begins; `reply_to` is its parent where that is not
    right above it.
    """
    depths: dict[int, int] = {}
    lines: list[dict[str, Any]] = []
    previous: Message | None = None
    for message in rows:
        depth = 0
        if message.parent_id is not None:
            depth = min(depths.get(message.parent_id, 0) + 1, DEEPEST)
        depths[message.pk] = depth
        day = _day_of(message)
        is_reply_to_previous = previous is not None and message.parent_id == previous.pk
        reactions = Counter(display.visible(reaction.emoji) for reaction in message.reactions.all())
        lines.append(
            {
                "message": message,
                "kind": _kind_of_author(message),
                "avatar": display.avatar(message.author_name, message.agent.avatar_color if message.agent else ""),
                "depth": depth,
                "day": day if previous is None or day != _day_of(previous) else None,
                "reply_to": None if is_reply_to_previous else message.parent,
                "reactions": list(reactions.items()),
            }
        )
        previous = message
    return lines


def _day_of(message: Message) -> date | None:
    """Return the day on which a message was sent, in the console's time zone; None where no time is known."""
    return timezone.localtime(message.sent_at).date() if message.sent_at else None


def _kind_of_author(message: Message) -> str:
    if message.agent_id is not None:
        return "agent"
    return "user" if message.user_id is not None else "outsider"
