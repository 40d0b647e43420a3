"""What a measurement is about, an agent or a channel: which messages are judged, and the window that the judge is shown around each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db.models import Q, QuerySet
from django.utils.module_loading import import_string

from agents.kit.capability import declared_one
from agents.models import Agent, Channel, Message
from agents.personas.persona import render_persona
from evaluation.scorers.context import Event, Window
from evaluation.scorers.reading import (
    ChannelBeginning,
    Ends,
    PlainMessage,
    ShownWindow,
    cut_ends,
    newest_messages,
    read_ends,
    read_plain_messages,
    shared_ends,
)
from evaluation.scorers.selection import (
    NO_MESSAGE,
    in_window,
    messages_before,
    messages_in_channel,
    messages_of_agent,
    sample_by_position,
    why_outside,
)
from evaluation.windows import BEFORE, MessageWindow

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition
    from evaluation.scorers.consistency import Voices


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
    _manners: dict[int, str] = field(default_factory=dict)

    def persona_in(self, message: Message) -> str:
        """Return the persona, followed by what people had asked of the agent where the message was said."""
        self.read_manners([message])
        return "\n\n".join(part for part in (self.persona, self._manners[message.pk]) if part)

    def read_manners(self, messages: Iterable[Message]) -> None:
        """Read what people had asked of the agent where these messages were said, in few queries; what was read before is kept."""
        unread = [message for message in messages if message.pk not in self._manners]
        if not unread:
            return
        manners = manners_of(self.agent, unread)
        for message in unread:
            self._manners[message.pk] = manners.get(message.pk, "")

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
            ends = ends._replace(ends=shared_ends(ends, range(first_end, end + 1, stretch_length(last_n))))
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
        next_messages = list(messages)[:READ_AHEAD]
        next_messages = [message for message in next_messages if message.synthetic == next_messages[0].synthetic]
        self._near = {}
        chosen = Q()
        for message in next_messages:
            positions = range(message.position - READ_BACK, message.position + STRETCH)
            self._near.setdefault((message.channel_id, message.synthetic), {}).update(dict.fromkeys(positions))
            chosen |= Q(channel_id=message.channel_id, position__range=(positions.start, positions.stop - 1))
        if not next_messages:
            return
        near = self._until_window_end(synthetic=next_messages[0].synthetic).filter(chosen)
        for read in read_plain_messages(near):
            self._near[read.channel_id, next_messages[0].synthetic][read.position] = read

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


def manners_of(agent: Agent, messages: Collection[Message]) -> Mapping[int, str]:
    """Return what people had asked of the agent where it said these messages, as its prompt said it, by their ids; none for nothing.

    An app above may know that (`manners_of` in its `apps.py`).
    """
    path = declared_one("manners_of")
    if not path:
        return {}
    manners: Mapping[int, str] = import_string(path)(agent, messages)
    return manners


def event_of(agent: Agent, message: Message | PlainMessage) -> Event:
    """Return a message as the agent experiences it: what it says itself is an action, everything else a stimulus."""
    if message.agent_id == agent.pk:
        return Event("action", agent.display_name, message.text)
    return Event("stimulus", agent.display_name, message.text, speaker=message.author_name)


def plan_on_window(subject: Subject | ChannelSubject, propositions: Sequence[Proposition]) -> list[Item]:
    """Plan every proposition once, on the full window or conversation."""
    if not subject.messages().exists():
        return []
    return [Item(proposition) for proposition in propositions]


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
