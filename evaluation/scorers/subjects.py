"""Read what a measurement is about: an agent in its conversations, or a channel, and the events around what is judged."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, NamedTuple

from django.db.models import QuerySet

from agents.models import Agent, Channel, Message
from agents.persona import render_persona
from agents.text.tokens import tokenize
from agents.text.voices import StyleProfile, style_profile
from evaluation.judge.prompts import Event, Window
from evaluation.scorers.windows import BEFORE, MessageWindow, said_before, said_in, sample_by_position, spoken_by

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition

MOST_PAIRS = 10
POOL = 500  # most earlier messages of a channel that are looked at, drawn with the seed: any history costs the same


@dataclass(frozen=True, slots=True)
class Halves:
    """Ids of an agent's messages now and in its history, each oldest first. No message stands in both."""

    current: tuple[int, ...]
    history: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Ids of two messages to compare, and how near in topic they are, 0 to 1."""

    current: int
    earlier: int
    nearness: float


def can_pair(halves: Halves) -> bool:
    """Whether any message of now can be compared with one of the history; reads no texts."""
    channel_of = _channels([*halves.current, *halves.history])
    past = {channel_of[pk] for pk in halves.history}
    return any(channel_of[pk] in past for pk in halves.current)


def find_pairs(halves: Halves, *, seed: int) -> list[Pair]:
    """Up to ten pairs: messages of now drawn with the seed, each with the nearest message of its channel's history, none used twice.

    Nearness is the share of words two messages have in common, rare words counting more (weighted Jaccard, weights
    ``log((1 + n) / df)`` over the channel's pool). Of equally near messages the latest is chosen.
    """
    channel_of = _channels([*halves.current, *halves.history])
    pools: dict[int, list[int]] = defaultdict(list)
    for pk in halves.history:
        pools[channel_of[pk]].append(pk)
    comparable = [pk for pk in halves.current if channel_of[pk] in pools]
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    drawn = _drawn(comparable, MOST_PAIRS, rng)
    pairs: list[Pair] = []
    for channel in dict.fromkeys(channel_of[pk] for pk in drawn):
        pool = _drawn(pools[channel], POOL, rng)
        pairs += _match([pk for pk in drawn if channel_of[pk] == channel], pool)
    return sorted(pairs, key=lambda pair: halves.current.index(pair.current))


def _drawn(ids: list[int], most: int, rng: random.Random) -> list[int]:
    if len(ids) <= most:
        return ids
    return [ids[i] for i in sorted(rng.sample(range(len(ids)), most))]


def _channels(ids: Sequence[int]) -> dict[int, int]:
    channels: dict[int, int] = {}
    for start in range(0, len(ids), 5000):
        channels.update(Message.objects.filter(pk__in=ids[start : start + 5000]).values_list("pk", "channel_id"))
    return channels


def _match(current: list[int], pool: list[int]) -> list[Pair]:
    texts = dict(Message.objects.filter(pk__in=[*current, *pool]).values_list("pk", "text"))
    words = {pk: frozenset(tokenize(text)) for pk, text in texts.items()}
    frequency = Counter(word for pk in pool for word in words[pk])
    weight = {word: log((1 + len(pool)) / count) for word, count in frequency.items()}
    rarest = log(1 + len(pool))
    left, pairs = dict.fromkeys(pool), []

    def nearness(a: frozenset[str], b: frozenset[str]) -> float:
        shared, all_words = (sum(weight.get(word, rarest) for word in sorted(group)) for group in (a & b, a | b))
        return shared / all_words if all_words else 0.0

    for pk in current:
        if not left:
            break
        near = [(nearness(words[pk], words[other]), place, other) for place, other in enumerate(left)]
        best = max(near)
        left.pop(best[2])
        pairs.append(Pair(pk, best[2], round(best[0], 4)))
    return pairs


STRETCH = 20  # most consecutive events of a channel whose messages are shown the same window
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
        samples: Most messages sampled.
        simulated: Whether what was simulated for a measurement is looked at, instead of real speech.
        before: What was said just before a message, by its id, where that was read ahead.
        read: What was read of channels; agents that are measured together share it.
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
    before: dict[int, tuple[Event, ...]] = field(default_factory=dict)
    read: dict[tuple[object, ...], Ends] = field(default_factory=dict)
    _windows: dict[tuple[object, ...], Window] = field(default_factory=dict)
    _halves: Halves | None = None
    _style: StyleProfile | None = None

    def spoken(self) -> QuerySet[Message]:
        return spoken_by(agent=self.agent, window=self.window, where=self.where, simulated=self.simulated)

    def sample(self) -> list[int]:
        """Ids of up to `samples` messages, drawn at random with the seed (AC-6.1.2), by turn evenly over its stretches."""
        if self.position_bins:
            return sample_by_position(
                agent=self.agent,
                eligible=self.spoken(),
                bins=self.position_bins,
                samples=self.samples,
                seed=self.seed,
                simulated=self.simulated,
            )
        ids = list(self.spoken().values_list("pk", flat=True))
        if len(ids) <= self.samples:
            return ids
        # Sampling needs to be repeatable, not unpredictable.
        chosen = sorted(random.Random(self.seed).sample(range(len(ids)), self.samples))  # noqa: S311
        return [ids[i] for i in chosen]

    def halves(self) -> Halves:
        """Return what the agent says now, and the past that self-consistency compares it with.

        ``before`` is everything before the first message of the window; where the window has no beginning (``all``, no tags) what the
        agent said is cut in the middle, the newer half is compared with the older one. The history has tags of its own
        (`history_where`, default none), so that one build can be compared with what was said before it.

        Simulated speech has no past: it is never compared with real speech.
        """
        if self._halves is None:
            current, history = tuple(self.spoken().values_list("pk", flat=True)), self.history
            past = Message.objects.none()
            if current and not self.simulated:
                if history.spec != BEFORE:
                    past = spoken_by(agent=self.agent, window=history, where=self.history_where)
                elif self.window.spec == "all" and not self.where:
                    current = current[len(current) // 2 :]
                    past = spoken_by(agent=self.agent, window=self.window, where=self.history_where)
                else:
                    first = Message.objects.get(pk=current[0])
                    past = said_before(first, agent=self.agent, where=self.history_where)
            now = set(current)
            self._halves = Halves(current, tuple(pk for pk in past.values_list("pk", flat=True) if pk not in now))
        return self._halves

    def usual_style(self, most: int) -> StyleProfile | None:
        """How the agent wrote before the window, from its `most` newest messages there; None with fewer than two."""
        history = self.halves().history[-most:]
        if self._style is None and len(history) >= 2:
            texts = Message.objects.filter(pk__in=history).order_by("pk").values_list("text", flat=True)
            self._style = style_profile(list(texts))
        return self._style

    def window_around(self, message: Message, first_n: int, last_n: int) -> tuple[Window, int | None]:
        """The events around a message: the first ones of its channel and the last ones up to the end of its stretch (AC-6.0.12).

        The agent acts, all others are stimuli. What was said before the evaluation's window belongs to it, what was said after does
        not. Only the events shown are read, so that a channel of any length costs the same.

        Returns:
            The events, the same for all messages of a stretch, and the number of the message among them; None where it is not shown.
        """
        end = stretch_end(message.position, last_n)
        key = (message.channel_id, end, first_n, last_n)
        shared = (*key, self.window.end, self.window.stored_by, self.simulated)
        if shared not in self.read:
            messages = Message.objects.filter(
                channel_id=message.channel_id, synthetic=self.simulated, position__lte=end
            )
            if self.window.end is not None:
                messages = messages.exclude(sent_at__gt=self.window.end)
            if self.window.stored_by is not None:
                messages = messages.filter(created_at__lte=self.window.stored_by)
            # Up to SEEN_BEFORE, `last_n` is what is shown before the message; it stands there beside them.
            self.read[shared] = read_ends(messages, first_n, last_n + (0 < last_n <= SEEN_BEFORE))
        if key not in self._windows:
            self._windows[key] = self.read[shared].window(self.event)
        return self._windows[key], self.read[shared].number_of(message.position)

    def own_window(self, first_n: int, last_n: int) -> Window:
        """What the agent said in the window, over all channels, in order of time."""
        key = ("own", first_n, last_n)
        if key not in self._windows:
            messages = list(self.spoken().values_list("pk", flat=True))
            shown = (
                messages
                if first_n + last_n >= len(messages)
                else messages[:first_n] + messages[len(messages) - last_n :]
            )
            texts = dict(Message.objects.filter(pk__in=shown).values_list("pk", "text"))
            events = [Event("action", self.agent.display_name, texts[pk]) for pk in shown]
            omitted = len(messages) - len(shown)
            cut = first_n if omitted else len(events)
            self._windows[key] = Window(tuple(events[:cut]), omitted, tuple(events[cut:]))
        return self._windows[key]

    def event(self, message: Message | Said) -> Event:
        if message.agent_id == self.agent.pk:
            return Event("action", self.agent.display_name, message.text)
        return Event("stimulus", self.agent.display_name, message.text, speaker=message.author_name)


def stretch_end(position: int, last_n: int) -> int:
    """The last position of the stretch that a message is in.

    Stretches are cut by position alone, so that an evaluation that resumes, another sample and another agent find the same ones. They are
    shorter where `last_n` leaves no room for a full one after the events that every message has before it.
    """
    length = max(1, min(STRETCH, last_n - SEEN_BEFORE))
    return position + -position % length


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
    """First and last messages of a channel, and how many lie between."""

    first: list[Said]
    omitted: int
    last: list[Said]

    def window(self, event: Callable[[Said], Event]) -> Window:
        return Window(tuple(map(event, self.first)), self.omitted, tuple(map(event, self.last)))

    def number_of(self, position: int) -> int | None:
        """The number under which the window shows the message at this position."""
        for start, part in ((1, self.first), (1 + len(self.first) + self.omitted, self.last)):
            for number, row in enumerate(part, start):
                if row.position == position:
                    return number
        return None


def read_ends(messages: QuerySet[Message], first_n: int, last_n: int) -> Ends:
    """The ends of a channel, without reading what lies between."""
    total = messages.count()
    if total <= first_n + last_n:
        return Ends(said(messages.order_by("position")), 0, [])
    first = said(messages.order_by("position")[:first_n])
    last = said(messages.order_by("-position")[:last_n])
    return Ends(first, total - first_n - last_n, last[::-1])


EVERYBODY = "everybody"


@dataclass(slots=True)
class ChannelSubject:
    """A channel: window and tags of what is measured. Caches what several items need.

    Attributes:
        window: Which stretch of it; ``last:N`` are its last N messages.
    """

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
        return (
            "no agent speaks in the window, only people"
            if self.said().exists()
            else "no message of the channel in the window"
        )
