"""Choose what a measurement is about: windows and positions of messages, an agent or a channel, and the context that the judge is shown."""

from __future__ import annotations

import random
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from django.db import models
from django.db.models import Count, F, Max, Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, RowNumber
from django.utils.module_loading import import_string

from agents.kit.capability import declared_list, declared_one
from agents.kit.text.fences import one_line
from agents.kit.text.wording import day_text
from agents.models import Agent, Channel, Message
from agents.personas.persona import render_persona
from evaluation.windows import BEFORE, MessageWindow

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition
    from evaluation.scorers.consistency import Voices

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
    named = _conversation_tags(where or {})
    messages = messages_of_agent(agent=agent, window=MessageWindow(), where=named, simulated=simulated)
    return messages.annotate(own_position=own).order_by("channel_id", "position")


def positions_of(
    messages: Collection[int], *, agent: Agent, simulated: bool = False, where: Mapping[str, str] | None = None
) -> dict[int, tuple[int, int]]:
    """Return channel and position of some of the agent's messages, by primary key; those that are gone are left out."""
    wanted = set(messages)
    channels = Message.objects.filter(pk__in=wanted).values("channel_id")
    rows = messages_with_positions(agent=agent, simulated=simulated, where=where).filter(channel_id__in=channels)
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


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: an action of `name`, the agent judged, or a stimulus that reached it, said by `speaker` (empty: unknown)."""

    kind: Literal["action", "stimulus"]
    name: str
    text: str
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """The events shown: the first ones, how many were left out, and the last ones. No event stands in both.

    Attributes:
        ends: Where windows that begin with the same events end, this one last, as numbers of events shown; see `Subject.window_around`.
    """

    first: tuple[Event, ...]
    omitted: int
    last: tuple[Event, ...]
    ends: tuple[int, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        return self.first + self.last

    def with_event(self, number: int, event: Event) -> Window:
        """Return the window with another event under a number that is shown, from 1; the events left out are numbered, too."""
        if number <= len(self.first):
            first = list(self.first)
            first[number - 1] = event
            return replace(self, first=tuple(first))
        last = list(self.last)
        last[number - 1 - len(self.first) - self.omitted] = event
        return replace(self, last=tuple(last))


def cut_window(events: Sequence[Event], *, first_n: int, last_n: int) -> Window:
    """Return the first `first_n` and last `last_n` events, in order. Where the two would overlap everything is shown, once."""
    if first_n + last_n >= len(events):
        return Window(tuple(events), 0, ())
    last_start = len(events) - last_n
    return Window(tuple(events[:first_n]), last_start - first_n, tuple(events[last_start:]))


EMPTY_WINDOW = Window((), 0, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything the judge is shown beside the claims. Immutable, without ORM objects.

    Attributes:
        agent_name: Whom the claims are about; the channel's name for an environment.
        persona: The rendered persona; None withholds it (AC-6.0.9).
        message: The one message judged, entry `message_number` of the window (None: not there); None judges the window.
        action: A draft that has not been sent (the gate); excludes `message`.
        growing: Whether that draft is still being written.
        environment: Whether a conversation is judged (AC-6.0.10).
        own_messages: Whether the window holds only the agent's own messages.
        pair: Two moments to compare, the earlier and the later one; the last event of each is the agent's message.
        additional: `RunSpec.additional_context`.
        measured: Figures for the offline judge alone; a model is not shown them.
    """

    agent_name: str
    persona: str | None = None
    window: Window = EMPTY_WINDOW
    message: Event | None = None
    message_number: int | None = None
    action: str | None = None
    growing: bool = False
    channel_name: str = ""
    statistics: Mapping[str, Any] | None = None
    environment: bool = False
    own_messages: bool = False
    pair: tuple[Window, Window] | None = None
    additional: Mapping[str, Any] | None = None
    measured: Mapping[str, Any] | None = None

    def variables(self) -> dict[str, str]:
        """Return the values of the variables that claims may use here, each on one line: no name can add a claim."""
        values = {"agent_name": one_line(self.agent_name)}
        if self.channel_name:
            values["channel_name"] = one_line(self.channel_name)
        if self.action is not None:
            values["action"] = "the message that is about to be sent"
        return values

    def judged_texts(self) -> list[str]:
        """Return the texts the claims are about: the draft, the one message, or everything said in the window."""
        if self.action is not None:
            return [self.action]
        if self.message is not None:
            return [self.message.text]
        if self.pair is not None:
            return [self.pair[1].events[-1].text]
        return [event.text for event in self.window.events if event.kind == "action"]

    def history(self) -> list[str] | None:
        """Return what the agent said before the draft; None where no draft is judged."""
        if self.action is None:
            return None
        return [event.text for event in self.window.events if event.kind == "action"]


@dataclass(frozen=True, slots=True)
class Halves:
    """Ids of an agent's messages now and in its history, each oldest first, and the channel of each. No message stands in both."""

    current: tuple[int, ...]
    history: tuple[int, ...]
    channel_of: Mapping[int, int]


MOST_HISTORY = 1_000  # earlier messages that are looked at from each end: the oldest and the newest
STRETCH = 20  # most consecutive events of a channel whose messages are shown the same window
READ_AHEAD = 50  # messages around which windows are read in one query
READ_BACK = 160  # positions before each of them; by default a window ends with up to 151 messages
STRETCHES = 3  # most neighbouring stretches whose windows begin with the same events, for the prompt cache
SEEN_BEFORE = 10  # events shown before each judged message, where the channel and `last_n` have them


@dataclass(frozen=True, slots=True)
class Item:
    """One judgement to make: a proposition on a message, on a pair of them, or on the full window (`message_id` None)."""

    proposition: Proposition
    message_id: int | None = None
    compared_with_id: int | None = None
    repeat: int = 1


@dataclass(slots=True)
class Subject:
    """An agent as one run looks at it: persona, window, tags. Caches what several items need.

    Attributes:
        simulated: Whether what was simulated for a measurement is looked at, instead of real speech.
        heuristic: Whether the offline judge asks: only then are figures measured for it.
        voices: How the agent and the others spoke before the window, once that was measured.
        before: What was said just before a message, by its id, where that was read ahead.
        read: What was read of channels; agents that are measured together share it.
        swapped: Texts of others that stand in for those of its messages, by id, in a test of the judge; None where one was deleted.
    """

    agent: Agent
    persona: str
    window: MessageWindow
    where: dict[str, str]
    samples: int
    seed: int
    history: MessageWindow = field(default_factory=lambda: MessageWindow(BEFORE))
    history_where: dict[str, str] = field(default_factory=dict)
    simulated: bool = False
    position_bins: tuple[tuple[int, int | None], ...] = ()
    heuristic: bool = False
    voices: Voices | None = None
    before: dict[int, tuple[Event, ...]] = field(default_factory=dict)
    read: dict[tuple[object, ...], Ends] = field(default_factory=dict)
    swapped: Mapping[int, str | None] = field(default_factory=dict)
    _near: dict[tuple[int, bool], dict[int, PlainMessage | None]] = field(default_factory=dict)
    _beginnings: dict[tuple[object, ...], ChannelBeginning] = field(default_factory=dict)
    _windows: dict[tuple[object, ...], Window] = field(default_factory=dict)
    _halves: Halves | None = None
    _manner: Callable[[Message], str] | None = None

    def persona_in(self, message: Message) -> str:
        """Return the persona, followed by what people had asked of the agent where the message was said."""
        if self._manner is None:
            self._manner = manners_of(self.agent)
        return "\n\n".join(part for part in (self.persona, self._manner(message)) if part)

    def messages(self) -> QuerySet[Message]:
        """Return what the agent said in the window, oldest first."""
        return messages_of_agent(agent=self.agent, window=self.window, where=self.where, simulated=self.simulated)

    def why_silent(self) -> str:
        """Return why there is no message of the agent to measure; empty when there is one."""
        if self.messages().exists():
            return ""
        return NO_MESSAGE + self.why_outside()

    def why_outside(self) -> str:
        """Return why the window's stretch of time holds nothing of what the agent said, as the end of a sentence; or empty."""
        everything = messages_of_agent(
            agent=self.agent, window=MessageWindow(), where=self.where, simulated=self.simulated
        )
        return why_outside(everything, self.window)

    def sample(self) -> list[int]:
        """Draw up to `samples` messages at random with the seed (AC-6.1.2), with `position_bins` evenly from these; return their ids.

        Oldest first; with `position_bins` in order of channel and position.
        """
        if self.position_bins:
            return sample_by_position(
                agent=self.agent,
                eligible=self.messages(),
                bins=self.position_bins,
                samples=self.samples,
                seed=self.seed,
                simulated=self.simulated,
                where=self.where,
            )
        keys = list(self.messages().values_list("pk", flat=True))
        if len(keys) <= self.samples:
            return keys
        # Sampling needs to be repeatable, not unpredictable.
        chosen = random.Random(self.seed).sample(range(len(keys)), self.samples)  # noqa: S311
        return [keys[index] for index in sorted(chosen)]

    def halves(self) -> Halves:
        """Return what the agent says now, and the past that self-consistency compares it with; simulated speech has none.

        ``before`` is everything before the first message of the window; where the window has no beginning (``all``, no tags) the newer
        half of what the agent said is compared with the older one. The history has tags of its own (`history_where`, default none).
        Of a long history the two ends are looked at: a window costs the same after a million messages.
        """
        if self._halves is None:
            self._halves = self._read_halves()
        return self._halves

    def _read_halves(self) -> Halves:
        """Read what `halves` returns. The history is empty where nothing is said now.

        Up to 1,000 messages from each end of the past are read, and so many more as are said now, because those may be among them.
        """
        current = list(self.messages().values_list("pk", "channel_id"))
        if self._is_split():
            current = current[len(current) // 2 :]
        past = Message.objects.none()
        if current:
            past = self._past(first_now=current[0][0])
        channel_now = dict(current)
        most = MOST_HISTORY + len(channel_now)  # `past` may hold what is said now
        rows = past.values_list("pk", "channel_id")
        oldest = list(rows.order_by("said_at", "pk")[:most])
        newest = list(rows.order_by("-said_at", "-pk")[:most])
        newest.reverse()
        channel_then = dict([*oldest, *newest])
        history = tuple(pk for pk in channel_then if pk not in channel_now)
        return Halves(tuple(channel_now), history, {**channel_then, **channel_now})

    def _is_split(self) -> bool:
        """Return whether the newer half of the window is compared with its older half."""
        return not self.simulated and self.history.spec == BEFORE and self.window.spec == "all" and not self.where

    def _past(self, *, first_now: int) -> QuerySet[Message]:
        """Return the messages of the history: of the history's own window, else what was said before the first message of now.

        Where the window is compared with itself, they are all of it: they may include what is said now. None for simulated speech.

        Args:
            first_now: Primary key of the first message that is said now.
        """
        if self.simulated:
            return Message.objects.none()
        if self.history.spec != BEFORE:
            return messages_of_agent(agent=self.agent, window=self.history, where=self.history_where)
        if self._is_split():
            return messages_of_agent(agent=self.agent, window=self.window, where=self.history_where)
        first_message = Message.objects.get(pk=first_now)
        return messages_before(first_message, agent=self.agent, where=self.history_where)

    def window_around(self, message: Message, first_n: int, last_n: int) -> ShownWindow:
        """Return the events around a message: the first ones of its channel and the last ones up to the end of its stretch (AC-6.0.12).

        Neighbouring stretches begin with the same events: `last_n` counts back from the end of the first of them. What was said
        before the evaluation's window belongs to it, what was said after does not. Only the events shown are read. They are the same for
        all messages of a stretch, but for the text that stands in for the message in a swap test.

        Returns:
            The events, and the number of the message among them; None where it is not shown.
        """
        end = stretch_end(message.position, last_n)
        ends = self._read_ends(message, end, first_n, last_n)
        key = (message.channel_id, end, first_n, last_n)
        if key not in self._windows:
            self._windows[key] = ends.window(self.event)
        window = self._windows[key]
        number = ends.number_of(message.position)
        if number is not None and message.pk in self.swapped:  # of all messages only the one that is judged
            window = window.with_event(number, self.event(message))
        return ShownWindow(window, number)

    def _read_ends(self, message: Message, end: int, first_n: int, last_n: int) -> Ends:
        """Read what the messages of the stretch that ends at the position `end` are shown, once for all who speak in the channel.

        Nothing that was said after the window's end is among it. Where neighbouring stretches begin with the same events, it says after how
        many events each of them up to this one ends.
        """
        key = (message.channel_id, end, first_n, last_n, self.window.end, self.window.stored_by, message.synthetic)
        if key in self.read:
            return self.read[key]
        messages = self._until_window_end(channel_id=message.channel_id, synthetic=message.synthetic)
        first_end = first_stretch_end(end, last_n)
        shown_before = last_n
        if 0 < last_n <= SEEN_BEFORE:  # `last_n` is then what is shown before the message, which comes on top
            shown_before += 1
        begins = (message.channel_id, first_n, message.synthetic)
        # All stretches of a channel begin with the same messages, which are read with the first stretch that leaves some out.
        if begins not in self._beginnings:
            self._beginnings[begins] = ChannelBeginning(messages, first_n)
        beginning = self._beginnings[begins]
        further = end - first_end
        newest = self._read_before(message, end, first_n + shown_before + further + 1)
        if newest is None:
            newest = newest_messages(messages.filter(position__lte=end), first_n + shown_before + further + 1)
        ends = cut_ends(newest, first_n, shown_before, upto=first_end, beginning=beginning)
        if stretches_together(last_n) > 1:
            ends = ends._replace(ends=_shared_ends(ends, range(first_end, end + 1, stretch_length(last_n))))
        self.read[key] = ends
        return ends

    def _until_window_end(self, **chosen: Any) -> QuerySet[Message]:
        """Return the chosen messages without what was said after the window's end."""
        messages = in_window(Message.objects.filter(**chosen), MessageWindow(stored_by=self.window.stored_by))
        if self.window.end is not None:
            messages = messages.exclude(sent_at__gt=self.window.end)  # one without a time is shown
        return messages

    def read_ahead(self, messages: Iterable[Message]) -> None:
        """Read what the windows around up to 50 messages end with in one query, where `window_around` would ask for each stretch.

        Windows that reach further back, and those in which much was deleted, are left to `window_around`.
        """
        wanted = list(messages)[:READ_AHEAD]
        wanted = [message for message in wanted if message.synthetic == wanted[0].synthetic]
        self._near = {}
        chosen = Q()
        for message in wanted:
            positions = range(message.position - READ_BACK, message.position + STRETCH)
            self._near.setdefault((message.channel_id, message.synthetic), {}).update(dict.fromkeys(positions))
            chosen |= Q(channel_id=message.channel_id, position__range=(positions.start, positions.stop - 1))
        if not wanted:
            return
        near = self._until_window_end(synthetic=wanted[0].synthetic).filter(chosen)
        for read in read_plain_messages(near):
            self._near[read.channel_id, wanted[0].synthetic][read.position] = read

    def _read_before(self, message: Message, end: int, number: int) -> list[PlainMessage] | None:
        """Return the newest `number` messages up to the position `end` of a message's channel, in order, of what was read ahead.

        None where more would have to be read.
        """
        near = self._near.get((message.channel_id, message.synthetic), {})
        newest: list[PlainMessage] = []
        for position in range(end, -1, -1):  # what a simulated user was instructed has the position 0
            if position not in near:
                return None
            read = near[position]
            if read is not None:  # else no message has this position
                newest.append(read)
            if len(newest) == number:
                break
        newest.reverse()
        return newest

    def own_window(self, first_n: int, last_n: int) -> Window:
        """Return what the agent said in the window, over all channels, in order of time: the first and the last so many messages.

        All of it where there are no more than `first_n` + `last_n`.
        """
        cache_key = ("own", first_n, last_n)
        if cache_key not in self._windows:
            keys = list(self.messages().values_list("pk", flat=True))
            omitted = max(0, len(keys) - first_n - last_n)
            first_keys, last_keys = keys, []
            if omitted:
                first_keys, last_keys = keys[:first_n], keys[first_n + omitted :]
            messages = Message.objects.filter(pk__in=[*first_keys, *last_keys])
            texts = dict(messages.values_list("pk", "text"))
            name = self.agent.display_name
            first = tuple(Event("action", name, texts[pk]) for pk in first_keys)
            last = tuple(Event("action", name, texts[pk]) for pk in last_keys)
            self._windows[cache_key] = Window(first, omitted, last)
        return self._windows[cache_key]

    def swap(self, message: Message) -> bool:
        """Give a message that is judged the text that stands in for its own, if there is one; return False where that was deleted."""
        text = self.swapped.get(message.pk, message.text)
        message.text = text or ""
        return text is not None

    def event(self, message: Message | PlainMessage) -> Event:
        return event_of(self.agent, message)


def manners_of(agent: Agent) -> Callable[[Message], str]:
    """Return a function of a message of the agent: what people had asked of it there, as its prompt said it; empty for nothing.

    An app above may know that (`manners_of` in its `apps.py`).
    """
    path = declared_one("manners_of")
    if not path:
        return lambda message: ""
    manner: Callable[[Message], str] = import_string(path)(agent)
    return manner


def event_of(agent: Agent, message: Message | PlainMessage) -> Event:
    """Return a message as the agent experiences it: what it says itself is an action, everything else a stimulus."""
    if message.agent_id == agent.pk:
        return Event("action", agent.display_name, message.text)
    return Event("stimulus", agent.display_name, message.text, speaker=message.author_name)


def stretch_length(last_n: int) -> int:
    """Return how many consecutive events are shown the same window.

    Fewer than usual where `last_n` leaves no room for a full stretch after the events that every message has before it.
    """
    return max(1, min(STRETCH, last_n - SEEN_BEFORE))


def stretch_end(position: int, last_n: int) -> int:
    """Return the last position of the stretch that a message is in.

    Stretches are cut by position alone, so that every sample and agent has the same ones.
    """
    return position + -position % stretch_length(last_n)


def stretches_together(last_n: int) -> int:
    """Return how many neighbouring stretches begin with the same events: fewer where that would show far more than `last_n` events."""
    return min(STRETCHES, max(1, last_n // 30))


def first_stretch_end(position: int, last_n: int) -> int:
    """Return the last position of the first of the neighbouring stretches whose windows begin with the same events."""
    length = stretch_length(last_n)
    together = length * stretches_together(last_n)
    return (position - 1) // together * together + length


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


def _shared_ends(ends: Ends, stretch_ends: Iterable[int]) -> tuple[int, ...]:
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


EVERYBODY = "everybody"


@dataclass(slots=True)
class ChannelSubject:
    """A channel: window and tags of what is measured. Caches what several items need."""

    channel: Channel
    window: MessageWindow
    where: dict[str, str]
    seed: int
    _shown: dict[tuple[int, int], tuple[Window, tuple[PlainMessage, ...]]] = field(default_factory=dict)
    _names: dict[int, str] | None = None

    @property
    def name(self) -> str:
        return str(self.channel)

    def messages(self, *, agents_only: bool = False) -> QuerySet[Message]:
        """Return what was said in the window, in the order of the channel."""
        return messages_in_channel(channel=self.channel, window=self.window, where=self.where, agents_only=agents_only)

    def speakers(self) -> dict[int, str]:
        """Return the names of the agents that speak in the window, by id; agents of one name get their slugs."""
        if self._names is None:
            ids = self.messages(agents_only=True).order_by().values_list("agent_id", flat=True).distinct()
            agents = list(Agent.objects.filter(pk__in=list(ids)).order_by("slug"))
            agents_of_name = Counter(agent.display_name for agent in agents)
            self._names = {}
            for agent in agents:
                name = agent.display_name
                self._names[agent.pk] = name if agents_of_name[name] == 1 else f"{name} ({agent.slug})"
        return self._names

    def personas(self) -> str:
        """Return the personas of all agents that speak in the window, each under its name."""
        agents = Agent.objects.filter(pk__in=self.speakers()).prefetch_related("traits").in_bulk()
        parts: list[str] = []
        for pk, name in self.speakers().items():
            agent = agents[pk]
            persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
            parts.append(f"# {name}\n\n{persona}")
        return "\n\n".join(parts)

    def conversation(self, first_n: int, last_n: int) -> tuple[Window, tuple[PlainMessage, ...]]:
        """Return the events shown, and their messages. Only these are read, so that a channel of any length costs the same."""
        key = (first_n, last_n)
        if key not in self._shown:
            ends = read_ends(self.messages(), first_n, last_n)
            self._shown[key] = ends.window(self.event), (*ends.first, *ends.last)
        return self._shown[key]

    def event(self, message: Message | PlainMessage) -> Event:
        """Return a message as an event: an agent acts; what users and outsiders say reaches all."""
        if message.agent_id is None:
            return Event("stimulus", EVERYBODY, message.text, speaker=message.author_name)
        name = self.speakers().get(message.agent_id, message.author_name)
        return Event("action", name, message.text)

    def why_silent(self) -> str:
        """Return why there is no conversation of agents to measure; empty when there is one."""
        if self.speakers():
            return ""
        if self.messages().exists():
            return "no agent speaks in the window, only people"
        everything = messages_in_channel(channel=self.channel, window=MessageWindow(), where=self.where)
        return f"no message of the channel in the window{why_outside(everything, self.window)}"
