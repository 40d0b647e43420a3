"""Two conversations side by side: their messages aligned by position, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from agents.admin.transcript import PAGE_SIZE, add_notes, lines_of
from agents.models import Channel, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedRow:
    """What was said at a position of both conversations, as `lines_of` has it; None where nothing was."""

    position: int
    left: dict[str, Any] | None
    right: dict[str, Any] | None

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return what was said, left before right."""
        return [line for line in (self.left, self.right) if line is not None]

    @property
    def is_same(self) -> bool:
        """Return whether one of the two stands for both: the same author said the same, and there is no note on either."""
        if self.left is None or self.right is None:
            return False
        if self.left["notes"] or self.right["notes"]:
            return False
        left, right = self.left["message"], self.right["message"]
        return bool(left.author_name == right.author_name and left.text == right.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedPage:
    """Some positions of two conversations.

    Attributes:
        older, newer: The position after which the page before and the page behind begin; None where there is none.
    """

    rows: list[AlignedRow]
    older: int | None
    newer: int | None


def aligned_page(request: HttpRequest, *, left: Channel, right: Channel, after: int = 0) -> AlignedPage:
    """Return the messages of two channels at the `PAGE_SIZE` positions after one, with what the apps know of each message."""
    end = after + PAGE_SIZE
    at_positions = Message.objects.filter(channel__in=(left, right), position__gt=after, position__lte=end)
    with_people = at_positions.select_related("agent", "user", "parent__agent", "parent__user")
    messages = list(with_people.prefetch_related("reactions").order_by("position"))
    left_lines = _by_position(messages, left)
    right_lines = _by_position(messages, right)
    rows = []
    for position in sorted(left_lines.keys() | right_lines.keys()):
        rows.append(AlignedRow(position=position, left=left_lines.get(position), right=right_lines.get(position)))
    add_notes(request, [line for row in rows for line in row.lines])
    last = max(left.next_position, right.next_position) - 1
    return AlignedPage(
        rows=rows,
        older=max(after - PAGE_SIZE, 0) if after else None,
        newer=end if end < last else None,
    )


def _by_position(messages: list[Message], channel: Channel) -> dict[int, dict[str, Any]]:
    lines = lines_of([message for message in messages if message.channel_id == channel.pk])
    return {line["message"].position: line for line in lines}
