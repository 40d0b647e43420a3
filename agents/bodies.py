"""Fields of request bodies that name agents or a channel, or hold traits; see `agents.kit.bodies`."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

from pydantic import AfterValidator, Field

from agents.kit.bodies import Body, Reads, fault
from agents.models import Agent, Channel
from agents.models.conversations import UnknownAgent, find_agents, no_agent
from agents.personas.persona import TraitValue

MOST_AGENTS = 100  # whose work is planned in one transaction, or shown on one page


def the_agent(slug: str) -> Agent:
    """Return the agent of this slug.

    Raises:
        LookupError: There is none; with a sentence that names near ones.
    """
    agent = Agent.objects.filter(slug=slug).first()
    if agent is None:
        raise LookupError(no_agent(slug))
    return agent


def the_channel(slug: str) -> Channel:
    """Return the channel of this slug.

    Raises:
        LookupError: There is none; with a sentence that names those there are.
    """
    channel = Channel.objects.filter(slug=slug).first()
    if channel is None:
        raise LookupError(no_channel(slug))
    return channel


def no_channel(slug: str) -> str:
    """Return a sentence for a slug that is no channel's, with up to three that are like it, else the first 20, synthetic ones last."""
    slugs = list(Channel.objects.order_by("synthetic", "slug").values_list("slug", flat=True)[:1000])
    similar = get_close_matches(slug.lower().removeprefix("#"), slugs, n=3)
    if similar:
        return f"there is no channel {slug[:80]!r}; did you mean {' or '.join(similar)}?"
    rest = " …" if len(slugs) > 20 else ""
    return f"there is no channel {slug[:80]!r}; channels: {', '.join(slugs[:20]) or 'none yet'}{rest}"


AgentSlug = Annotated[Agent, Reads(the_agent, "the slug of an agent", maxLength=200)]
ChannelSlug = Annotated[Channel, Reads(the_channel, "the slug of a channel", maxLength=120)]


class NamedAgents(Body):
    """Agents, by their slugs; they are looked up when they are needed."""

    agents: str = Field("all", description="slugs separated by commas, or all (default: all active agents)")

    @property
    def are_all(self) -> bool:
        """Whether all agents are meant, whichever there are."""
        return self.agents.lower() == "all"

    def find_agents(self) -> list[Agent]:
        """Return the agents that are named.

        Raises:
            UnknownAgent: A name is no agent's, or none is given.
        """
        return find_agents(self.agents)

    def find_few_agents(self) -> list[Agent]:
        """Return the agents that are named, at most `MOST_AGENTS`.

        Raises:
            ValueError: There is no such agent, or there are too many at once; begins with the name of the field.
        """
        try:
            agents = self.find_agents()
        except UnknownAgent as error:
            raise ValueError(f"agents {error}") from None
        if not 1 <= len(agents) <= MOST_AGENTS:
            raise ValueError(f"agents {self.agents}: {len(agents):,} agents; allowed: 1 to {MOST_AGENTS} at a time")
        return agents


class TraitBody(Body):
    """A trait: `sentiment` -1 (hates having it) to 1 (loves it), `strength` 0 (stop doing this) to 1 (always)."""

    name: str = Field(min_length=1, max_length=120)
    description: str = Field("", max_length=10_000)
    strength: float = Field(0.5, ge=0, le=1)
    sentiment: float = Field(0.0, ge=-1, le=1)


def _trait_values(traits: list[TraitBody]) -> list[TraitValue]:
    """Return the traits as they are stored; a fault names the second of two with the same name, whatever the case."""
    seen: set[str] = set()
    for number, trait in enumerate(traits):
        if (name := trait.name.casefold()) in seen:
            sentence = f"name {trait.name!r}: allowed: a name no other trait has, whatever the case"
            raise fault(f"[{number}].name", sentence)
        seen.add(name)
    return [TraitValue(**trait.model_dump()) for trait in traits]


Traits = Annotated[list[TraitBody], Field(max_length=200), AfterValidator(_trait_values)]
