"""What scorers share: the subject of an evaluation, the items they plan, and how channels become events."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db.models import QuerySet

from agents.models import Agent, Message
from evaluation.propositions import Proposition
from evaluation.trajectory import Event, Window
from evaluation.windows import MessageWindow, in_window, spoken_by


@dataclass(frozen=True, slots=True)
class Item:
    """One judgement to make: a proposition on a message, or on the whole window (`message_id` None)."""

    proposition: Proposition
    message_id: int | None = None


@dataclass(slots=True)
class Subject:
    """An agent as one run looks at it: persona, window, tags. Caches what several items need.

    Attributes:
        agent: Who is measured.
        persona: The rendered persona.
        window: Which stretch of its speech.
        where: Tags its messages must have.
        samples: Most messages sampled.
        seed: Seed of the sampling.
    """

    agent: Agent
    persona: str
    window: MessageWindow
    where: dict[str, str]
    samples: int
    seed: int
    _windows: dict[tuple[object, ...], Window] = field(default_factory=dict)

    def spoken(self) -> QuerySet[Message]:
        return spoken_by(agent=self.agent, window=self.window, where=self.where)

    def sample(self) -> list[int]:
        """Ids of up to `samples` messages, drawn at random with the seed (AC-6.1.2); in order of time."""
        ids = list(self.spoken().values_list("pk", flat=True))
        if len(ids) <= self.samples:
            return ids
        # Sampling needs to be repeatable, not unpredictable.
        chosen = sorted(random.Random(self.seed).sample(range(len(ids)), self.samples))  # noqa: S311
        return [ids[i] for i in chosen]

    def channel_window(self, channel_id: int, first_n: int, last_n: int) -> Window:
        """The events of a channel in the window: the agent acts, everybody else is a stimulus.

        Only the events shown are read, so that a channel of any length costs the same.
        """
        key = ("channel", channel_id, first_n, last_n)
        if key not in self._windows:
            messages = in_window(Message.objects.filter(channel_id=channel_id, synthetic=False), self.window)
            self._windows[key] = _ends(messages.select_related("agent", "user"), first_n, last_n, self._event)
        return self._windows[key]

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

    def _event(self, message: Message) -> Event:
        if message.agent_id == self.agent.pk:
            return Event("action", self.agent.display_name, message.text)
        return Event("stimulus", self.agent.display_name, message.text, speaker=message.author_name)


def _ends(messages: QuerySet[Message], first_n: int, last_n: int, event: Callable[[Message], Event]) -> Window:
    """First and last messages of a channel as a window, without reading what lies between."""
    total = messages.count()
    if total <= first_n + last_n:
        return Window(tuple(map(event, messages.order_by("position"))), 0, ())
    first = [event(message) for message in messages.order_by("position")[:first_n]]
    last = [event(message) for message in messages.order_by("-position")[:last_n]]
    return Window(tuple(first), total - first_n - last_n, tuple(reversed(last)))
