"""A channel as one evaluation looks at it: the whole conversation, once, in its order (AC-6.0.10)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from django.db.models import QuerySet

from agents.models import Agent, Channel, Message
from agents.persona import render_persona
from evaluation.scorers.base import Said, ends
from evaluation.trajectory import Event, Window
from evaluation.windows import MessageWindow, said_in

EVERYBODY = "everybody"


@dataclass(slots=True)
class ChannelSubject:
    """A channel: window and tags of what is measured. Caches what several items need.

    Attributes:
        channel: Whose conversation.
        window: Which stretch of it; ``last:N`` are its last N messages.
        where: Tags its messages must have.
        seed: Seed of whatever is drawn.
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
        """Names of the agents that speak in the window, by id; agents of one name are told apart by their slugs."""
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
            kept: dict[int, Said] = {}

            def event(message: Said) -> Event:
                kept[message.position] = message
                return self.event(message)

            window = ends(self.said(), first_n, last_n, event)
            self._shown[key] = window, tuple(kept[position] for position in sorted(kept))
        return self._shown[key]

    def event(self, message: Message | Said) -> Event:
        """An agent acts; what users and outsiders say reaches everybody."""
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
