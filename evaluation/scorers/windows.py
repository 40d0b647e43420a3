"""Which messages are measured (committed speech of the agent, in a window, with given tags), and positions in conversations."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q, QuerySet, TextField, Window
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, RowNumber
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
    """What was said in a channel, in its order; simulated speech only where the channel was simulated.

    Args:
        window: ``last:N`` are the channel's last N messages.
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


Bin = tuple[int, int | None]  # first and last position, from 1; None = no end

DEFAULT_BINS = "1-5,6-15,16-30,31+"
MOST_BINS = 12
ALLOWED_BINS = f"up to {MOST_BINS} stretches of positions, rising and apart, such as {DEFAULT_BINS}"
_BIN = re.compile(r"(\d{1,6})(?:-(\d{1,6})|(\+))?")


def parse_bins(text: str) -> tuple[Bin, ...]:
    """Read stretches of positions as people write them: ``1-5,6-15,16+``; a single number is a stretch of one position.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    bins: list[Bin] = []
    for part in (piece.strip() for piece in text.split(",")):
        match = _BIN.fullmatch(part)
        if match is None:
            raise ValueError(f"bins {text!r}: {part!r} is not understood; allowed: {ALLOWED_BINS}")
        first, last, open_end = match.groups()
        bins.append((int(first), None if open_end else int(last or first)))
    check_bins(bins)
    return tuple(bins)


def check_bins(bins: Sequence[Bin]) -> None:
    """Refuse stretches that do not rise, overlap, or have no position.

    Raises:
        ValueError: Names the stretch and what is allowed.
    """
    if len(bins) > MOST_BINS:
        raise ValueError(f"{len(bins)} bins; allowed: {ALLOWED_BINS}")
    before: int | None = 0
    for bin_ in bins:
        first, last = bin_
        if before is None or first <= before or (last is not None and last < first):
            raise ValueError(f"bin {bin_name(bin_)} of {', '.join(map(bin_name, bins))}; allowed: {ALLOWED_BINS}")
        before = last


def bin_name(bin_: Bin) -> str:
    """As `parse_bins` reads it."""
    first, last = bin_
    return f"{first}+" if last is None else str(first) if first == last else f"{first}-{last}"


def bin_of(position: int, bins: Sequence[Bin]) -> int | None:
    """The index of the stretch a position lies in; None for one between or after them."""
    within = (i for i, (first, last) in enumerate(bins) if position >= first and (last is None or position <= last))
    return next(within, None)


def numbered(*, agent: Agent, simulated: bool = False) -> Any:
    """Everything the agent said, as messages, each with its position as `own_position`; channel by channel, each in its order."""
    own = Window(RowNumber(), partition_by=F("channel_id"), order_by=F("position").asc())
    said = spoken_by(agent=agent, window=MessageWindow(), simulated=simulated)
    return said.annotate(own_position=own).order_by("channel_id", "position")


def positions_of(messages: Collection[int], *, agent: Agent, simulated: bool = False) -> dict[int, tuple[int, int]]:
    """Channel and position of some of the agent's messages, by primary key; those that are gone are left out."""
    wanted = set(messages)
    channels = Message.objects.filter(pk__in=wanted).values("channel_id")
    rows = numbered(agent=agent, simulated=simulated).filter(channel_id__in=channels)
    positions = rows.values_list("pk", "channel_id", "own_position").iterator()
    return {pk: (channel, position) for pk, channel, position in positions if pk in wanted}


# -- samples
def sample_by_position(
    *,
    agent: Agent,
    eligible: QuerySet[Message],
    bins: Sequence[Bin],
    samples: int,
    seed: int,
    simulated: bool = False,
) -> list[int]:
    """Return the ids of up to `samples` messages, as many from each stretch; what a short one leaves goes to the others.

    Later positions come from long conversations only. So conversations that reach from the first to the last stretch with messages are
    drawn from before the others, and each stretch takes one message after the other from them in the same order: early and late
    positions then stand for the same conversations. Drawn with the seed; two passes over the agent's messages, of which only counts per
    conversation and stretch are kept.

    Args:
        agent: Who spoke.
        eligible: Its messages that may be drawn.
        bins: The stretches.
        samples: Most messages, at least 1.
        seed: Equal seeds draw equal samples.
        simulated: Whether `eligible` is simulated speech.
    """
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    counts = Counter((channel, place) for _, channel, place in _in_bins(agent, eligible, bins, simulated))
    sizes: Counter[int] = Counter()
    for (_, place), count in counts.items():
        sizes[place] += count
    channels = sorted({channel for channel, _ in counts})
    rng.shuffle(channels)
    through = spanning(counts)
    picked: dict[tuple[int, int], list[int]] = {}
    for place, share in sorted(_shares(sizes, samples).items()):
        first = _one_by_one([c for c in channels if c in through], place, counts, share)
        then = _one_by_one([c for c in channels if c not in through], place, counts, share - sum(first.values()))
        for channel, number in {**first, **then}.items():
            picked[channel, place] = sorted(rng.sample(range(counts[channel, place]), number), reverse=True)
    ids: list[int] = []
    seen: Counter[tuple[int, int]] = Counter()
    for pk, channel, place in _in_bins(agent, eligible, bins, simulated):
        left = picked.get((channel, place))
        if left and left[-1] == seen[channel, place]:
            left.pop()
            ids.append(pk)
        seen[channel, place] += 1
    return ids


def spanning(counts: Mapping[tuple[int, int], int]) -> set[int]:
    """Of (conversation, stretch) → messages, the conversations with messages in the first and in the last stretch that has any."""
    places = {place for _, place in counts}
    ends = {min(places), max(places)} if places else set()
    return {channel for channel, _ in counts if all(counts.get((channel, end)) for end in ends)}


def _in_bins(
    agent: Agent, eligible: QuerySet[Message], bins: Sequence[Bin], simulated: bool
) -> Iterator[tuple[int, int, int]]:
    """(message, channel, stretch) of what may be drawn. Positions count everything the agent said there, drawn or not.

    Both are read in the same order and merged: a subquery per message may cost PostgreSQL a scan for each.
    """
    keys = eligible.order_by("channel_id", "position").values_list("channel_id", "position")
    may = keys.iterator(chunk_size=2000)
    next_may = next(may, None)
    rows = numbered(agent=agent, simulated=simulated).values_list("pk", "channel_id", "position", "own_position")
    for pk, channel, position, own_position in rows.iterator(chunk_size=2000):
        while next_may is not None and next_may < (channel, position):
            next_may = next(may, None)
        if next_may is None:
            return
        place = bin_of(own_position, bins) if next_may == (channel, position) else None
        if place is not None:
            yield pk, channel, place


def _shares(sizes: Mapping[int, int], samples: int) -> dict[int, int]:
    """How many to draw from each stretch: equally many, and what one has not goes to the others."""
    shares = dict.fromkeys(sizes, 0)
    while samples and (open_ := [place for place in sorted(sizes) if shares[place] < sizes[place]]):
        each = max(1, samples // len(open_))
        for place in open_[:samples]:
            more = min(each, sizes[place] - shares[place])
            shares[place] += more
            samples -= more
    return shares


def _one_by_one(
    channels: Sequence[int], place: int, counts: Mapping[tuple[int, int], int], share: int
) -> dict[int, int]:
    """How many messages to take from each conversation in a stretch: one from each after the other, until the share is drawn."""
    sizes = {rank: counts[channel, place] for rank, channel in enumerate(channels) if (channel, place) in counts}
    return {channels[rank]: number for rank, number in _shares(sizes, share).items() if number}
