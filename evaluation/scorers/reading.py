"""Read the messages that a window shows: the beginning and the end of a channel, without what lies between."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from django.db.models import QuerySet

from agents.models import Message
from evaluation.scorers.context import Event, Window


class PlainMessage(NamedTuple):
    """A message as far as an event shows it: most of what a run reads is read for that."""

    position: int
    text: str
    agent_id: int | None
    agent_slug: str
    author_name: str
    channel_id: int


_COLUMNS_OF_SAID = (
    *("channel_id", "position", "text", "agent_id", "agent__slug", "agent__display_name", "outsider"),
    *("user__first_name", "user__last_name", "user__username"),
)


def read_plain_messages(messages: QuerySet[Message]) -> list[PlainMessage]:
    """Read messages without making model instances of them, their agents and users."""
    read: list[PlainMessage] = []
    for row in messages.values_list(*_COLUMNS_OF_SAID):
        channel, position, text, agent_id, slug, agent_name, outsider, first_name, last_name, username = row
        full_name = " ".join(part for part in (first_name, last_name) if part)
        author = agent_name or outsider or full_name or username or ""
        read.append(PlainMessage(position, text, agent_id, slug or "", author, channel))
    return read


class ShownWindow(NamedTuple):
    """A window, and the number under which it shows the message it was read for; None where that is not shown."""

    window: Window
    number: int | None


class Ends(NamedTuple):
    """First and last messages of a channel, how many lie between, and the `ends` of a `Window`."""

    first: list[PlainMessage]
    omitted: int
    last: list[PlainMessage]
    ends: tuple[int, ...] = ()

    def window(self, event: Callable[[PlainMessage], Event]) -> Window:
        """Return the window that shows these messages, each as the event that `event` makes of it."""
        return Window(tuple(map(event, self.first)), self.omitted, tuple(map(event, self.last)), self.ends)

    def number_of(self, position: int) -> int | None:
        """Return the number under which the window shows the message at this position; None where it is not shown."""
        for number, message in enumerate(self.first, 1):
            if message.position == position:
                return number
        for number, message in enumerate(self.last, 1 + len(self.first) + self.omitted):
            if message.position == position:
                return number
        return None


def shared_ends(ends: Ends, stretch_ends: Iterable[int]) -> tuple[int, ...]:
    """Return after how many of the messages shown each of the stretches ends, for those that end at the positions `stretch_ends`."""
    positions = [message.position for message in (*ends.first, *ends.last)]
    numbers = [bisect_right(positions, position) for position in stretch_ends]
    return tuple(dict.fromkeys(numbers))


COUNTED_UP_TO = 200  # events left out; of more it is said how many positions they take, which deleted ones take, too


class ChannelBeginning:
    """The first messages of a channel, and where those after them are; read once, when it is asked for.

    Args:
        messages: Of one channel. `first_n`: how many are the first.
    """

    def __init__(self, messages: QuerySet[Message], first_n: int) -> None:
        self._messages = messages
        self._first_n = first_n

    @cached_property
    def first(self) -> list[PlainMessage]:
        return read_plain_messages(self._messages.order_by("position")[: self._first_n])

    def count_up_to(self, end: int) -> int:
        """Count the messages between the first ones and a position, up to a limit; of more, return how many positions they take."""
        last_of_first = self.first[-1].position if self.first else 0
        count = bisect_left(self._positions_after, end)
        return end - last_of_first - 1 if count == COUNTED_UP_TO else count

    @cached_property
    def _positions_after(self) -> list[int]:
        """The positions of the `COUNTED_UP_TO` messages after the first ones."""
        positions = self._messages.order_by("position").values_list("position", flat=True)
        return list(positions[self._first_n : self._first_n + COUNTED_UP_TO])


def read_ends(messages: QuerySet[Message], first_n: int, last_n: int) -> Ends:
    """Read the ends of a channel, without reading what lies between; more than 200 messages there are not counted one by one.

    Args:
        messages: Of one channel.
        first_n: How many from the start. `last_n`: how many from the end.

    Returns:
        Where nothing is left out, all are among the first ones.
    """
    # One more than is shown tells whether anything is left out.
    newest = newest_messages(messages, first_n + last_n + 1)
    return cut_ends(newest, first_n, last_n, beginning=ChannelBeginning(messages, first_n))


def newest_messages(messages: QuerySet[Message], number: int) -> list[PlainMessage]:
    """Read so many messages from the end of a channel, in order."""
    newest = read_plain_messages(messages.order_by("-position")[:number])
    newest.reverse()
    return newest


def cut_ends(
    newest: Sequence[PlainMessage], first_n: int, last_n: int, *, beginning: ChannelBeginning, upto: int | None = None
) -> Ends:
    """Return the ends of a channel: its first messages, and the last ones up to a position with those after it.

    Args:
        newest: Of the channel; up to `upto` one more than are shown, or all.
        first_n: How many from the start. `last_n`: how many from the end, or up to the position `upto`.

    Returns:
        Where nothing is left out, all up to `upto` are among the first ones, and only those after it are the last ones.
    """
    before = list(newest)
    after: list[PlainMessage] = []
    if upto is not None:
        before = [message for message in newest if message.position <= upto]
        after = [message for message in newest if message.position > upto]
    before = before[-(first_n + last_n + 1) :]
    if len(before) <= first_n + last_n:
        return Ends(before, 0, after)
    last = before[len(before) - last_n :]
    omitted_before = last[0].position if last else before[-1].position + 1
    return Ends(beginning.first, beginning.count_up_to(omitted_before), last + after)
