"""Positions in a conversation: stretches of them, and a sample drawn evenly over the stretches.

A position is where a message stands in its conversation: its rank among the agent's own messages there, from 1.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from django.db.models import F, QuerySet, Window
from django.db.models.functions import RowNumber

from agents.models import Agent, Message
from evaluation.scorers.windows import MessageWindow, spoken_by

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
    found = rows.values_list("pk", "channel_id", "own_position").iterator()
    return {pk: (channel, position) for pk, channel, position in found if pk in wanted}


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
    """Ids of up to `samples` messages, as many from each stretch; what a short one leaves goes to the others.

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
    whole = spanning(counts)
    picked: dict[tuple[int, int], list[int]] = {}
    for place, share in sorted(_shares(sizes, samples).items()):
        first = _one_by_one([c for c in channels if c in whole], place, counts, share)
        then = _one_by_one([c for c in channels if c not in whole], place, counts, share - sum(first.values()))
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
