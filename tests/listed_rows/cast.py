"""Whom the rows of the lists are about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from django.db.models import Model

from agents.models import Agent, Channel, PersonaVersion

LLM = "claude-haiku-5-5"
AT_ONCE = 2000
SENTENCE = "Some words as people write them, a line or two of them, so that a page has something to show. "


@dataclass(frozen=True, slots=True)
class Cast:
    """Whom the rows are about; times go back from `now`, a minute apart."""

    agents: list[Agent]
    channels: list[Channel]
    now: datetime

    def agent(self, n: int) -> Agent:
        return self.agents[n % len(self.agents)]

    def channel(self, n: int) -> Channel:
        return self.channels[n % len(self.channels)]

    def at(self, n: int) -> datetime:
        return self.now - timedelta(minutes=n % 100_000)


def people(agents: int = 4, *, now: datetime | None = None) -> Cast:
    """Some agents, each with a persona version, and as many channels."""
    now = now or datetime.now(UTC)
    store(Agent, (new_agent(n) for n in range(agents)))
    cast_of = list(Agent.objects.order_by("pk"))
    store(PersonaVersion, (version_of(agent) for agent in cast_of))
    store(Channel, (Channel(slug=f"channel-{n}", name=f"channel {n}", kind="public") for n in range(agents)))
    return Cast(cast_of, list(Channel.objects.order_by("pk")), now)


def store(model: type[Model], rows: Iterable[Any]) -> None:
    waiting = iter(rows)
    while batch := list(islice(waiting, AT_ONCE)):
        model._default_manager.bulk_create(batch)


def new_agent(n: int) -> Agent:
    return Agent(
        slug=f"agent-{n}",
        display_name=f"Agent {n}",
        title="Clerk",
        system_prompt="You are a clerk.",
        avatar_color="#335577",
    )


def version_of(agent: Agent) -> PersonaVersion:
    return PersonaVersion(agent=agent, number=1, system_prompt=agent.system_prompt, traits=[], digest="d" * 64)
