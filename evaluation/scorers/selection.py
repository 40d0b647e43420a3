"""Choose messages: of an agent or a channel, in a window, with tags, and samples spread over positions in a conversation."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db import models
from django.db.models import Count, F, Max, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, RowNumber

from agents.kit.capability import declared_list
from agents.kit.text.wording import day_text
from agents.models import Agent, Channel, Message
from evaluation.windows import MessageWindow

NO_MESSAGE = "no message of the agent in the window"  # why nothing of an agent was measured


def with_tags(messages: QuerySet[Message], where: Mapping[str, str]) -> QuerySet[Message]:
    """Return the messages that carry every one of these tags."""
    for number, (key, value) in enumerate(sorted(where.items())):
        # KeyTextTransform takes the key as it is; a lookup such as tags__KEY would read meaning into underscores. The Cast makes
        # the comparison one of texts: without it SQLite reads the value as JSON and "41" is a number.
        tag = Cast(KeyTextTransform(key, "tags"), TextField())
        messages = messages.alias(**{f"tag_{number}": tag}).filter(**{f"tag_{number}": value})
    return messages


def tag_values(key: str, most: int) -> list[str]:
    """Return the first values, sorted, that a tag has on any message. Reads every message."""
    values = Message.objects.annotate(tag_value=Cast(KeyTextTransform(key, "tags"), TextField())).exclude(
        tag_value=None
    )
    return list(values.order_by("tag_value").values_list("tag_value", flat=True).distinct()[:most])


def in_window(messages: QuerySet[Message], window: MessageWindow) -> QuerySet[Message]:
    """Return the messages inside the window's stretch of time."""
    if window.start is not None:
        messages = messages.filter(sent_at__gte=window.start)
    if window.end is not None:
        messages = messages.filter(sent_at__lte=window.end)
    if window.stored_by is not None:
        messages = messages.filter(created_at__lte=window.stored_by)
    return messages


def why_outside(messages: QuerySet[Message], window: MessageWindow) -> str:
    """Return why a stretch of time holds none of `messages` (all there are, whatever their time), as the end of a sentence.

    E.g. ``; 7d: the newest with a time is from 1 May 2025``. Empty where the window is no stretch of time, or where there is
    no message at all.
    """
    if window.start is None and window.end is None:
        return ""
    counts = messages.order_by().aggregate(all=Count("pk"), dated=Count("sent_at"), newest=Max("sent_at"))
    reasons: list[str] = []
    undated = counts["all"] - counts["dated"]
    if undated:
        reasons.append(f"{undated:,} of {counts['all']:,} messages have no time, which only all and last:N count")
    if counts["newest"]:
        reasons.append(f"the newest with a time is from {day_text(counts['newest'])}")
    if not reasons:
        return ""
    return f"; {window.spec}: {'; '.join(reasons)}"


def synthetic_only(where: Mapping[str, str], simulated: bool) -> dict[str, bool]:
    """Return the filter for real messages, or with `simulated` for synthetic ones; none where a tag names one conversation.

    Debates are synthetic unless they were started as real ones, and are measured only when they are named.
    """
    if _conversation_tags(where):
        return {}
    return {"synthetic": simulated}


def _conversation_tags(where: Mapping[str, str]) -> dict[str, str]:
    """Return those of the tags that name one conversation, as the installed apps declare them (`conversation_tags`)."""
    declared_tags = declared_list("conversation_tags")
    return {key: value for key, value in where.items() if key in declared_tags}


def messages_of_agent(
    *, agent: Agent, window: MessageWindow, where: Mapping[str, str] | None = None, simulated: bool = False
) -> QuerySet[Message]:
    """Return what an agent really said: committed messages with a text, never drafts, never synthetic ones, oldest first (by `said_at`).

    With `simulated`, what it was made to say for a measurement, and nothing else: the two never mix (AC-6.5.2). With the tag of a
    debate, what it said in that debate.
    """
    spoken = Message.objects.filter(agent=agent, text__regex=r"\S", **synthetic_only(where or {}, simulated))
    messages = with_tags(spoken, where or {})
    messages = in_window(messages, window).order_by("said_at", "pk")
    if window.last is None:
        return messages
    newest = messages.order_by("-said_at", "-pk").values_list("pk", flat=True)[: window.last]
    return Message.objects.filter(pk__in=list(newest)).order_by("said_at", "pk")


def messages_in_channel(
    *, channel: Channel, window: MessageWindow, where: Mapping[str, str] | None = None, agents_only: bool = False
) -> QuerySet[Message]:
    """Return what was said in a channel, in its order; simulated speech only where the channel was simulated.

    ``last:N`` are the channel's last N messages.
    """
    messages = Message.objects.filter(channel=channel, synthetic=channel.synthetic, text__regex=r"\S")
    messages = in_window(with_tags(messages, where or {}), window)
    if agents_only:
        messages = messages.filter(agent__isnull=False)
    if window.last is not None:
        newest = list(messages.order_by("-position").values_list("position", flat=True)[: window.last])
        messages = messages.filter(position__gte=min(newest, default=0))
    return messages.order_by("position")


def messages_before(message: Message, *, agent: Agent, where: Mapping[str, str] | None = None) -> QuerySet[Message]:
    """Return what the agent said before a message of its own, in the order of `messages_of_agent`."""
    # Not "earlier, or at the same time and stored earlier": SQLite would look for both, and sort all that it finds.
    messages = messages_of_agent(agent=agent, window=MessageWindow(), where=where).filter(said_at__lte=message.said_at)
    return messages.exclude(said_at=message.said_at, pk__gte=message.pk)


# -- positions in a conversation
Bin = tuple[int, int | None]  # first and last position, from 1; None = no end

DEFAULT_BINS = "1-5,6-15,16-30,31+"
MOST_BINS = 12
ALLOWED_BINS = f"up to {MOST_BINS} stretches of positions, rising and apart, such as {DEFAULT_BINS}"
_BIN = re.compile(r"(?P<first>\d{1,6})(?:-(?P<last>\d{1,6})|(?P<open_end>\+))?")


def parse_bins(text: str) -> tuple[Bin, ...]:
    """Read stretches of positions as people write them: ``1-5,6-15,16+``; a single number is a stretch of one position.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    bins: list[Bin] = []
    for part in text.split(","):
        match = _BIN.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"bins {text!r}: {part.strip()!r} is not understood; allowed: {ALLOWED_BINS}")
        first = int(match["first"])
        if match["open_end"]:
            bins.append((first, None))
        else:
            bins.append((first, int(match["last"] or first)))
    check_bins(bins)
    return tuple(bins)


def check_bins(bins: Sequence[Bin]) -> None:
    """Refuse stretches that do not rise, overlap, or have no position.

    Raises:
        ValueError: Names the stretch and what is allowed.
    """
    if len(bins) > MOST_BINS:
        raise ValueError(f"{len(bins)} bins; allowed: {ALLOWED_BINS}")
    end_before: int | None = 0  # None: the stretch before has no end, so none may follow it
    for bin_ in bins:
        first, last = bin_
        overlaps = end_before is None or first <= end_before
        is_backwards = last is not None and last < first
        if overlaps or is_backwards:
            raise ValueError(f"bin {bin_name(bin_)} of {', '.join(map(bin_name, bins))}; allowed: {ALLOWED_BINS}")
        end_before = last


def bin_name(bin_: Bin) -> str:
    """Write a stretch of positions as `parse_bins` reads it."""
    first, last = bin_
    if last is None:
        return f"{first}+"
    if first == last:
        return str(first)
    return f"{first}-{last}"


def bin_of(position: int, bins: Sequence[Bin]) -> int | None:
    """Return the index of the stretch a position lies in; None for one between or after them."""
    for index, (first, last) in enumerate(bins):
        if first <= position and (last is None or position <= last):
            return index
    return None


def messages_with_positions(*, agent: Agent, simulated: bool = False, where: Mapping[str, str] | None = None) -> Any:
    """Return everything the agent said, as messages, each with its position as `own_position`; channel by channel, each in its order.

    Of `where` only the tag of a debate counts.
    """
    own = models.Window(RowNumber(), partition_by=F("channel_id"), order_by=F("position").asc())
    tags = _conversation_tags(where or {})
    messages = messages_of_agent(agent=agent, window=MessageWindow(), where=tags, simulated=simulated)
    return messages.annotate(own_position=own).order_by("channel_id", "position")


def positions_of(
    messages: Collection[int], *, agent: Agent, simulated: bool = False, where: Mapping[str, str] | None = None
) -> dict[int, tuple[int, int]]:
    """Return channel and position of some of the agent's messages, by primary key; those that are gone are left out."""
    ids = set(messages)
    channels = Message.objects.filter(pk__in=ids).values("channel_id")
    rows = messages_with_positions(agent=agent, simulated=simulated, where=where).filter(channel_id__in=channels)
    positions = rows.values_list("pk", "channel_id", "own_position").iterator()
    return {pk: (channel, position) for pk, channel, position in positions if pk in ids}


# -- samples
def sample_by_position(
    *,
    agent: Agent,
    eligible: QuerySet[Message],
    bins: Sequence[Bin],
    samples: int,
    seed: int,
    simulated: bool = False,
    where: Mapping[str, str] | None = None,
) -> list[int]:
    """Return the ids of up to `samples` messages, in order of channel and position: as many from each stretch as from the others.

    What a short stretch leaves goes to the others. Messages whose position is in no stretch are not drawn.

    Later positions come from long conversations only. So conversations that reach from the first to the last stretch with messages are
    drawn from before the others, and each stretch takes one message after the other from them in the same order: early and late
    positions then stand for the same conversations.

    Args:
        eligible: The agent's messages that may be drawn; positions count everything it said there.
        seed: Equal seeds draw equal samples.
        simulated: Whether `eligible` is simulated speech. `where`: the tags it was chosen by.
    """
    eligible_keys = set(eligible.order_by().values_list("pk", flat=True))
    keys_by_channel_and_bin: dict[tuple[int, int], list[int]] = {}
    messages = messages_with_positions(agent=agent, simulated=simulated, where=where)
    for pk, channel, position in messages.values_list("pk", "channel_id", "own_position").iterator():
        bin_index = bin_of(position, bins)
        if pk in eligible_keys and bin_index is not None:
            keys_by_channel_and_bin.setdefault((channel, bin_index), []).append(pk)
    drawn = _draw_from_bins(keys_by_channel_and_bin, samples=samples, seed=seed)
    order: dict[int, int] = {}
    for keys in keys_by_channel_and_bin.values():
        for pk in keys:
            order[pk] = len(order)
    return sorted(drawn, key=order.__getitem__)


def _draw_from_bins(
    keys_by_channel_and_bin: Mapping[tuple[int, int], Sequence[int]], *, samples: int, seed: int
) -> list[int]:
    """Draw up to `samples` messages, as many from each stretch.

    Conversations that reach from the first to the last stretch are drawn from before the others, in the same order in each stretch, so that
    all stretches stand for the same conversations.

    Args:
        keys_by_channel_and_bin: The messages that may be drawn, by channel and the index of their stretch.
    """
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    counts = {key: len(keys) for key, keys in keys_by_channel_and_bin.items()}
    bin_sizes: Counter[int] = Counter()
    for (_, bin_index), count in counts.items():
        bin_sizes[bin_index] += count
    channels = sorted({channel for channel, _ in counts})
    rng.shuffle(channels)
    spanning_channels = spanning(counts)
    preferred = [channel for channel in channels if channel in spanning_channels]
    others = [channel for channel in channels if channel not in spanning_channels]
    drawn: list[int] = []
    for bin_index, share in sorted(_share_equally(bin_sizes, samples).items()):
        numbers = _numbers_to_draw(preferred, bin_index, counts, share)
        rest = share - sum(numbers.values())
        numbers |= _numbers_to_draw(others, bin_index, counts, rest)
        for channel, number in numbers.items():
            drawn += rng.sample(keys_by_channel_and_bin[channel, bin_index], number)
    return drawn


def spanning(counts: Mapping[tuple[int, int], int]) -> set[int]:
    """Return the conversations with messages in the first and in the last stretch that has any.

    Args:
        counts: Messages by conversation and stretch.
    """
    stretches = {stretch for _, stretch in counts}
    if not stretches:
        return set()
    first, last = min(stretches), max(stretches)
    channels = {channel for channel, _ in counts}
    return {channel for channel in channels if counts.get((channel, first)) and counts.get((channel, last))}


def _share_equally(sizes: Mapping[int, int], samples: int) -> dict[int, int]:
    """Return how many to draw from each group: equally many; what a small one has not goes to the others.

    What is left when there are fewer samples than groups goes to the first of them, one each.

    Args:
        sizes: The size of each group.
    """
    shares = dict.fromkeys(sizes, 0)
    while samples:
        not_exhausted = [group for group in sorted(sizes) if shares[group] < sizes[group]]
        if not not_exhausted:
            break
        each = max(1, samples // len(not_exhausted))
        for group in not_exhausted[:samples]:
            more = min(each, sizes[group] - shares[group])
            shares[group] += more
            samples -= more
    return shares


def _numbers_to_draw(
    channels: Sequence[int], bin_index: int, counts: Mapping[tuple[int, int], int], share: int
) -> dict[int, int]:
    """Return how many messages to take from each conversation in a stretch: one from each after the other, until the share is drawn.

    Conversations that give none are left out.
    """
    size_by_rank: dict[int, int] = {}  # by rank: what cannot be divided goes to the first channels
    for rank, channel in enumerate(channels):
        if (channel, bin_index) in counts:
            size_by_rank[rank] = counts[channel, bin_index]
    return {channels[rank]: number for rank, number in _share_equally(size_by_rank, share).items() if number}
