"""What preconditions and effects may look at: the agent, the channel, its last messages, and what has to be counted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from django.db.models import QuerySet

from agents.models import Agent, Channel, Message
from agents.persona import render_persona
from correction.models import InterventionLog

LONGEST_WINDOW = 100  # messages


@dataclass(eq=False, kw_only=True)
class Surroundings:
    """Where a turn takes place. Made for one turn and thrown away with it; what is counted is counted once, and only when asked for.

    Attributes:
        messages: The channel's last messages that hold a text, oldest first, as many as the longest window needs.
    """

    agent: Agent
    channel: Channel
    messages: tuple[Message, ...]

    @classmethod
    def read(cls, *, agent: Agent, channel: Channel, reach: int) -> Surroundings:
        """Read the last `reach` messages (at most 100), in one query."""
        newest = spoken_in(channel).select_related("agent", "user").order_by("-position")[: min(reach, LONGEST_WINDOW)]
        return cls(agent=agent, channel=channel, messages=tuple(newest)[::-1])

    @property
    def position(self) -> int:
        """Position of the channel's last message; 0 where nothing was said."""
        return self.messages[-1].position if self.messages else 0

    @cached_property
    def own_message_count(self) -> int:
        """Messages the agent ever sent in this channel."""
        return spoken_in(self.channel).filter(agent=self.agent).count()

    @cached_property
    def channel_message_count(self) -> int:
        """Messages anybody ever sent in this channel."""
        return spoken_in(self.channel).count()

    @cached_property
    def persona(self) -> str:
        return render_persona(system_prompt=self.agent.system_prompt, traits=self.agent.traits.all())

    @cached_property
    def strongest_traits(self) -> tuple[str, ...]:
        """Names of the two strongest traits; one of strength 0 means *stop doing this* and is none of them."""
        traits = self.agent.traits.filter(strength__gt=0).order_by("-strength", "name")
        return tuple(traits.values_list("name", flat=True)[:2])

    @cached_property
    def last_nudge_type(self) -> str:
        """Kind of the nudge the agent was last given in this channel; empty where there was none."""
        fired = InterventionLog.objects.filter(agent=self.agent, channel=self.channel, fired=True)
        return fired.order_by("-pk").values_list("nudge_type", flat=True).first() or ""


def spoken_in(channel: Channel) -> QuerySet[Message]:
    """What was said in a channel. Played speech counts in played channels, and nowhere else."""
    said = Message.objects.filter(channel=channel, text__regex=r"\S")
    return said if channel.synthetic else said.filter(synthetic=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterventionContext:
    """What one intervention looks at (AC-7.1.3).

    Attributes:
        agent: Whose turn it is.
        channel: Where.
        messages: The last messages of the channel in the intervention's window, oldest first.
        surroundings: What lies beyond the window.
    """

    agent: Agent
    channel: Channel
    messages: tuple[Message, ...]
    surroundings: Surroundings

    @property
    def own_messages(self) -> tuple[Message, ...]:
        """Those of the messages that the agent sent."""
        return tuple(message for message in self.messages if message.agent_id == self.agent.pk)
