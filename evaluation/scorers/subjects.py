"""What a measurement is about: windows and positions of messages, an agent or a channel as a run sees it, and what the judge is shown."""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from django.db import models
from django.db.models import Count, F, Max, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, RowNumber
from django.utils import timezone

from agents.kit.capability import declared_list
from agents.kit.text.fences import one_line
from agents.models import Agent, Channel, Message
from agents.personas.persona import render_persona
from evaluation.windows import BEFORE, MessageWindow

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition
    from evaluation.scorers.consistency import Voices

NO_MESSAGE = "no message of the agent in the window"  # why nothing of an agent was measured


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


def why_outside(messages: QuerySet[Message], window: MessageWindow) -> str:
    """Why a stretch of time holds none of `messages` (all there are, whatever their time), as the end of a sentence.

    Empty where the window is no stretch of time, or where there are no messages at all.
    """
    if window.start is None and window.end is None:
        return ""
    counts = messages.order_by().aggregate(all=Count("pk"), dated=Count("sent_at"), newest=Max("sent_at"))
    reasons = []
    if undated := counts["all"] - counts["dated"]:
        reasons.append(f"{undated:,} of {counts['all']:,} messages have no time, which only all and last:N count")
    if counts["newest"]:
        reasons.append(f"the newest with a time is from {timezone.localtime(counts['newest']):%Y-%m-%d}")
    return f"; {window.spec}: {'; '.join(reasons)}" if reasons else ""


def synthetic_only(where: Mapping[str, str], simulated: bool) -> dict[str, bool]:
    """The filter for real messages, or with `simulated` for synthetic ones; none where a tag names one conversation, such as a debate.

    Debates are synthetic unless they were started as real ones, and are measured only when they are named.
    """
    return {} if _conversation_tags(where) else {"synthetic": simulated}


def _conversation_tags(where: Mapping[str, str]) -> dict[str, str]:
    """Those of the tags that name one conversation, as the installed apps declare them (`conversation_tags`)."""
    return {key: value for key, value in where.items() if key in declared_list("conversation_tags")}


def spoken_by(
    *, agent: Agent, window: MessageWindow, where: Mapping[str, str] | None = None, simulated: bool = False
) -> QuerySet[Message]:
    """What an agent really said: committed messages with a text, never drafts, never synthetic ones, oldest first (by `said_at`).

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


def said_in(
    *, channel: Channel, window: MessageWindow, where: Mapping[str, str] | None = None, agents_only: bool = False
) -> QuerySet[Message]:
    """What was said in a channel, in its order; simulated speech only where the channel was simulated.

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


def said_before(message: Message, *, agent: Agent, where: Mapping[str, str] | None = None) -> QuerySet[Message]:
    """What the agent said before a message of its own, in the order of `spoken_by`."""
    # Not "earlier, or at the same time and stored earlier": SQLite would look for both, and sort all that it finds.
    spoken = spoken_by(agent=agent, window=MessageWindow(), where=where).filter(said_at__lte=message.said_at)
    return spoken.exclude(said_at=message.said_at, pk__gte=message.pk)


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


def numbered(*, agent: Agent, simulated: bool = False, where: Mapping[str, str] | None = None) -> Any:
    """Everything the agent said, as messages, each with its position as `own_position`; channel by channel, each in its order.

    Of `where` only the tag of a debate counts.
    """
    own = models.Window(RowNumber(), partition_by=F("channel_id"), order_by=F("position").asc())
    named = _conversation_tags(where or {})
    said = spoken_by(agent=agent, window=MessageWindow(), where=named, simulated=simulated)
    return said.annotate(own_position=own).order_by("channel_id", "position")


def positions_of(
    messages: Collection[int], *, agent: Agent, simulated: bool = False, where: Mapping[str, str] | None = None
) -> dict[int, tuple[int, int]]:
    """Channel and position of some of the agent's messages, by primary key; those that are gone are left out."""
    wanted = set(messages)
    channels = Message.objects.filter(pk__in=wanted).values("channel_id")
    rows = numbered(agent=agent, simulated=simulated, where=where).filter(channel_id__in=channels)
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
    """Return the ids of up to `samples` messages, as many from each stretch; what a short one leaves goes to the others.

    Later positions come from long conversations only. So conversations that reach from the first to the last stretch with messages are
    drawn from before the others, and each stretch takes one message after the other from them in the same order: early and late
    positions then stand for the same conversations.

    Args:
        eligible: The agent's messages that may be drawn; positions count everything it said there.
        seed: Equal seeds draw equal samples.
        simulated: Whether `eligible` is simulated speech. `where`: the tags it was chosen by.
    """
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    may = set(eligible.order_by().values_list("pk", flat=True))
    by_place: dict[tuple[int, int], list[int]] = {}  # by channel and stretch
    said = numbered(agent=agent, simulated=simulated, where=where)
    for pk, channel, position in said.values_list("pk", "channel_id", "own_position").iterator():
        if pk in may and (place := bin_of(position, bins)) is not None:
            by_place.setdefault((channel, place), []).append(pk)
    counts = {key: len(ids) for key, ids in by_place.items()}
    sizes: Counter[int] = Counter()
    for (_, place), count in counts.items():
        sizes[place] += count
    channels = sorted({channel for channel, _ in counts})
    rng.shuffle(channels)
    through = spanning(counts)
    drawn: list[int] = []
    for place, share in sorted(_shares(sizes, samples).items()):
        first = _one_by_one([c for c in channels if c in through], place, counts, share)
        then = _one_by_one([c for c in channels if c not in through], place, counts, share - sum(first.values()))
        for channel, number in {**first, **then}.items():
            drawn += rng.sample(by_place[channel, place], number)
    order = {pk: number for number, pk in enumerate(pk for ids in by_place.values() for pk in ids)}
    return sorted(drawn, key=order.__getitem__)


def spanning(counts: Mapping[tuple[int, int], int]) -> set[int]:
    """Of (conversation, stretch) → messages, the conversations with messages in the first and in the last stretch that has any."""
    places = {place for _, place in counts}
    ends = {min(places), max(places)} if places else set()
    return {channel for channel, _ in counts if all(counts.get((channel, end)) for end in ends)}


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
        """The same with another event under a number that is shown."""
        shown = list(self.events)
        shown[number - 1 - (self.omitted if number > len(self.first) else 0)] = event
        return replace(self, first=tuple(shown[: len(self.first)]), last=tuple(shown[len(self.first) :]))


def cut_window(events: Sequence[Event], *, first_n: int, last_n: int) -> Window:
    """The first `first_n` and last `last_n` events, in order. Where the two would overlap everything is shown, once."""
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
    channel_name: str = ""
    statistics: Mapping[str, Any] | None = None
    environment: bool = False
    own_messages: bool = False
    pair: tuple[Window, Window] | None = None
    additional: Mapping[str, Any] | None = None
    measured: Mapping[str, Any] | None = None

    def variables(self) -> dict[str, str]:
        """Values of the variables that claims may use here, each on one line: no name can add a claim."""
        values = {"agent_name": one_line(self.agent_name)}
        if self.channel_name:
            values["channel_name"] = one_line(self.channel_name)
        if self.action is not None:
            values["action"] = "the message that is about to be sent"
        return values

    def judged_texts(self) -> list[str]:
        """The texts the claims are about: the draft, the one message, or everything said in the window."""
        if self.action is not None:
            return [self.action]
        if self.message is not None:
            return [self.message.text]
        if self.pair is not None:
            return [self.pair[1].events[-1].text]
        return [event.text for event in self.window.events if event.kind == "action"]

    def history(self) -> list[str] | None:
        """What the agent said before the draft; None where no draft is judged."""
        return None if self.action is None else [e.text for e in self.window.events if e.kind == "action"]


@dataclass(frozen=True, slots=True)
class Halves:
    """Ids of an agent's messages now and in its history, each oldest first, and the channel of each. No message stands in both."""

    current: tuple[int, ...]
    history: tuple[int, ...]
    channel_of: Mapping[int, int]


HISTORY = 1_000  # earlier messages that are looked at from each end: the oldest and the newest
STRETCH = 20  # most consecutive events of a channel whose messages are shown the same window
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
    _windows: dict[tuple[object, ...], Window] = field(default_factory=dict)
    _halves: Halves | None = None

    def spoken(self) -> QuerySet[Message]:
        return spoken_by(agent=self.agent, window=self.window, where=self.where, simulated=self.simulated)

    def why_silent(self) -> str:
        """Why there is no message of the agent to measure; empty when there is one."""
        if self.spoken().exists():
            return ""
        return NO_MESSAGE + self.why_outside()

    def why_outside(self) -> str:
        """Why the window's stretch of time holds nothing of what the agent said, as the end of a sentence; empty where it does not say."""
        everything = spoken_by(agent=self.agent, window=MessageWindow(), where=self.where, simulated=self.simulated)
        return why_outside(everything, self.window)

    def sample(self) -> list[int]:
        """Ids of up to `samples` messages, drawn at random with the seed (AC-6.1.2), by turn evenly over its stretches."""
        if self.position_bins:
            same: dict[str, Any] = {
                name: getattr(self, name) for name in ("agent", "samples", "seed", "simulated", "where")
            }
            return sample_by_position(eligible=self.spoken(), bins=self.position_bins, **same)
        ids = list(self.spoken().values_list("pk", flat=True))
        if len(ids) <= self.samples:
            return ids
        # Sampling needs to be repeatable, not unpredictable.
        chosen = sorted(random.Random(self.seed).sample(range(len(ids)), self.samples))  # noqa: S311
        return [ids[i] for i in chosen]

    def halves(self) -> Halves:
        """Return what the agent says now, and the past that self-consistency compares it with; simulated speech has none.

        ``before`` is everything before the first message of the window; where the window has no beginning (``all``, no tags) the newer
        half of what the agent said is compared with the older one. The history has tags of its own (`history_where`, default none).
        Of a long history the two ends are looked at: a window costs the same after a million messages.
        """
        if self._halves is None:
            current, history = list(self.spoken().values_list("pk", "channel_id")), self.history
            past = Message.objects.none()
            if current and not self.simulated:
                if history.spec != BEFORE:
                    past = spoken_by(agent=self.agent, window=history, where=self.history_where)
                elif self.window.spec == "all" and not self.where:
                    current = current[len(current) // 2 :]
                    past = spoken_by(agent=self.agent, window=self.window, where=self.history_where)
                else:
                    first = Message.objects.get(pk=current[0][0])
                    past = said_before(first, agent=self.agent, where=self.history_where)
            now = {pk for pk, _ in current}
            most = HISTORY + len(now)  # `past` may hold what is said now
            both = past.values_list("pk", "channel_id")
            oldest, newest = both.order_by("said_at", "pk")[:most], both.order_by("-said_at", "-pk")[:most]
            ends = dict([*oldest, *list(newest)[::-1]])
            history_ids = [pk for pk in ends if pk not in now]
            self._halves = Halves(tuple(pk for pk, _ in current), tuple(history_ids), {**ends, **dict(current)})
        return self._halves

    def window_around(self, message: Message, first_n: int, last_n: int) -> tuple[Window, int | None]:
        """The events around a message: the first ones of its channel and the last ones up to the end of its stretch (AC-6.0.12).

        Neighbouring stretches begin with the same events: `last_n` counts back from the end of the first of them. What was said
        before the evaluation's window belongs to it, what was said after does not. Only the events shown are read.

        Returns:
            The events, the same for all messages of a stretch, and the number of the message among them; None where it is not shown.
        """
        end = stretch_end(message.position, last_n)
        ends = self._ends(message, end, first_n, last_n)
        key = (message.channel_id, end, first_n, last_n)
        if key not in self._windows:
            self._windows[key] = ends.window(self.event)
        window, number = self._windows[key], ends.number_of(message.position)
        if number is not None and message.pk in self.swapped:  # of all messages only the one that is judged
            window = window.with_event(number, self.event(message))
        return window, number

    def _ends(self, message: Message, end: int, first_n: int, last_n: int) -> Ends:
        """Read what the messages of the stretch that ends at the position `end` are shown, once for all who speak in the channel."""
        key = (message.channel_id, end, first_n, last_n, self.window.end, self.window.stored_by, message.synthetic)
        if key in self.read:
            return self.read[key]
        there = Message.objects.filter(channel_id=message.channel_id, synthetic=message.synthetic, position__lte=end)
        messages = in_window(there, MessageWindow(stored_by=self.window.stored_by))
        if self.window.end is not None:
            messages = messages.exclude(sent_at__gt=self.window.end)  # one without a time is shown
        first_end = first_stretch_end(end, last_n)
        # Up to SEEN_BEFORE, `last_n` is what is shown before the message; it stands there beside them.
        ends = read_ends(
            messages, first_n, last_n + (0 < last_n <= SEEN_BEFORE), upto=first_end, further=end - first_end
        )
        if stretches_together(last_n) > 1:
            positions = [row.position for row in (*ends.first, *ends.last)]
            stretches = range(first_end, end + 1, stretch_length(last_n))
            shown = dict.fromkeys(bisect_right(positions, stretch) for stretch in stretches)
            ends = ends._replace(ends=tuple(shown))
        self.read[key] = ends
        return ends

    def own_window(self, first_n: int, last_n: int) -> Window:
        """What the agent said in the window, over all channels, in order of time."""
        key = ("own", first_n, last_n)
        if key not in self._windows:
            keys = list(self.spoken().values_list("pk", flat=True))
            omitted = max(0, len(keys) - first_n - last_n)
            cut = first_n if omitted else len(keys)
            parts = keys[:cut], keys[cut + omitted :]
            texts = dict(Message.objects.filter(pk__in=[*parts[0], *parts[1]]).values_list("pk", "text"))
            first, last = (tuple(Event("action", self.agent.display_name, texts[pk]) for pk in part) for part in parts)
            self._windows[key] = Window(first, omitted, last)
        return self._windows[key]

    def swap(self, message: Message) -> bool:
        """Give a message that is judged the text that stands in for its own, if there is one; False where that was deleted."""
        text = self.swapped.get(message.pk, message.text)
        message.text = text or ""
        return text is not None

    def event(self, message: Message | Said) -> Event:
        return event_of(self.agent, message)


def event_of(agent: Agent, message: Message | Said) -> Event:
    """A message as the agent lives it: what it says itself is an action, everything else a stimulus."""
    if message.agent_id == agent.pk:
        return Event("action", agent.display_name, message.text)
    return Event("stimulus", agent.display_name, message.text, speaker=message.author_name)


def stretch_length(last_n: int) -> int:
    """How many consecutive events are shown the same window.

    Fewer than usual where `last_n` leaves no room for a full stretch after the events that every message has before it.
    """
    return max(1, min(STRETCH, last_n - SEEN_BEFORE))


def stretch_end(position: int, last_n: int) -> int:
    """The last position of the stretch that a message is in: cut by position alone, so that every sample and agent has the same ones."""
    return position + -position % stretch_length(last_n)


def stretches_together(last_n: int) -> int:
    """How many neighbouring stretches begin with the same events: fewer where that would show far more than `last_n` events."""
    return min(STRETCHES, max(1, last_n // 30))


def first_stretch_end(position: int, last_n: int) -> int:
    """The last position of the first of the neighbouring stretches whose windows begin with the same events."""
    length = stretch_length(last_n)
    together = length * stretches_together(last_n)
    return (position - 1) // together * together + length


class Said(NamedTuple):
    """A message as far as an event shows it: most of what a run reads is read for that."""

    position: int
    text: str
    agent_id: int | None
    agent_slug: str
    author_name: str
    channel_id: int


_SAID = ("channel_id", "position", "text", "agent_id", "agent__slug", "agent__display_name", "outsider")
_USER = ("user_id", "user__first_name", "user__last_name", "user__username")


def said(messages: QuerySet[Message]) -> list[Said]:
    """Messages without making model instances of them, their agents and users."""
    said_there = []
    for channel, position, text, agent_id, slug, name, outsider, *user in messages.values_list(*_SAID, *_USER):
        author = name or outsider or " ".join(filter(None, user[1:3])) or user[3] or ""
        said_there.append(Said(position, text, agent_id, slug or "", author, channel))
    return said_there


class Ends(NamedTuple):
    """First and last messages of a channel, how many lie between, and the `ends` of a `Window`."""

    first: list[Said]
    omitted: int
    last: list[Said]
    ends: tuple[int, ...] = ()

    def window(self, event: Callable[[Said], Event]) -> Window:
        return Window(tuple(map(event, self.first)), self.omitted, tuple(map(event, self.last)), self.ends)

    def number_of(self, position: int) -> int | None:
        """The number under which the window shows the message at this position."""
        rows = chain(enumerate(self.first, 1), enumerate(self.last, 1 + len(self.first) + self.omitted))
        return next((number for number, row in rows if row.position == position), None)


COUNTED_UP_TO = 200  # events left out; of more it is said how many positions they take, which deleted ones take, too


def read_ends(
    messages: QuerySet[Message], first_n: int, last_n: int, *, upto: int | None = None, further: int = 0
) -> Ends:
    """The ends of a channel, without reading or counting what lies between.

    Args:
        messages: Of one channel.
        first_n: How many from the start. `last_n`: how many from the end, or up to the position `upto`.
        further: How many messages after `upto`, at most, are among the last ones, too.
    """
    newest = said(messages.order_by("-position")[: first_n + last_n + further + 1])[::-1]
    after = [row for row in newest if upto is not None and row.position > upto]
    newest = newest[: len(newest) - len(after)][-(first_n + last_n + 1) :]
    if len(newest) <= first_n + last_n:
        return Ends(newest, 0, after)
    first, last = said(messages.order_by("position")[:first_n]), newest[len(newest) - last_n :]
    begin, end = first[-1].position if first else 0, last[0].position if last else newest[-1].position + 1
    between = messages.filter(position__gt=begin, position__lt=end).order_by()
    omitted = between[:COUNTED_UP_TO].count()
    if omitted == COUNTED_UP_TO:
        omitted = end - begin - 1
    return Ends(first, omitted, last + after)


EVERYBODY = "everybody"


@dataclass(slots=True)
class ChannelSubject:
    """A channel: window and tags of what is measured. Caches what several items need."""

    channel: Channel
    window: MessageWindow
    where: dict[str, str]
    seed: int
    _shown: dict[tuple[int, int], tuple[Window, tuple[Said, ...]]] = field(default_factory=dict)
    _names: dict[int, str] | None = None

    @property
    def name(self) -> str:
        return str(self.channel)

    def said(self, *, agents_only: bool = False) -> QuerySet[Message]:
        return said_in(channel=self.channel, window=self.window, where=self.where, agents_only=agents_only)

    def speakers(self) -> dict[int, str]:
        """Names of the agents that speak in the window, by id; agents of one name get their slugs."""
        if self._names is None:
            ids = self.said(agents_only=True).order_by().values_list("agent_id", flat=True).distinct()
            agents = list(Agent.objects.filter(pk__in=list(ids)).order_by("slug"))
            shared = Counter(agent.display_name for agent in agents)
            self._names = {
                a.pk: a.display_name if shared[a.display_name] == 1 else f"{a.display_name} ({a.slug})" for a in agents
            }
        return self._names

    def personas(self) -> str:
        """The personas of all agents that speak in the window, each under its name."""
        agents = Agent.objects.filter(pk__in=self.speakers()).prefetch_related("traits")
        rendered = {a.pk: render_persona(system_prompt=a.system_prompt, traits=a.traits.all()) for a in agents}
        return "\n\n".join(f"# {name}\n\n{rendered[pk]}" for pk, name in self.speakers().items())

    def conversation(self, first_n: int, last_n: int) -> tuple[Window, tuple[Said, ...]]:
        """The events shown, and their messages. Only these are read, so that a channel of any length costs the same."""
        key = (first_n, last_n)
        if key not in self._shown:
            ends = read_ends(self.said(), first_n, last_n)
            self._shown[key] = ends.window(self.event), (*ends.first, *ends.last)
        return self._shown[key]

    def event(self, message: Message | Said) -> Event:
        """An agent acts; what users and outsiders say reaches all."""
        if message.agent_id is not None:
            return Event("action", self.speakers().get(message.agent_id, message.author_name), message.text)
        return Event("stimulus", EVERYBODY, message.text, speaker=message.author_name)

    def why_silent(self) -> str:
        """Why there is no conversation of agents to measure; empty when there is one."""
        if self.speakers():
            return ""
        if self.said().exists():
            return "no agent speaks in the window, only people"
        everything = said_in(channel=self.channel, window=MessageWindow(), where=self.where)
        return f"no message of the channel in the window{why_outside(everything, self.window)}"
