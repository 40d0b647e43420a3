"""Find agents by what a person typed."""

from __future__ import annotations

from difflib import get_close_matches

from django.db.models import Q

from agents.models import Agent

_SHOWN = 20


class UnknownAgent(ValueError):
    """A name that is no agent's; says which agents there are, or which are near."""


def find_agent(name: str) -> Agent:
    """The agent of this slug; its display name, and capitals, are understood too.

    Raises:
        UnknownAgent: None, with the nearest names.
    """
    agent = _agent_of(name.strip())
    if agent is None:
        raise UnknownAgent(no_agent(name.strip()))
    return agent


def find_agents(names: str) -> list[Agent]:
    """The agents for ``--agents``: ``all`` (every active one), or slugs separated by commas, each agent once; see `find_agent`.

    Raises:
        UnknownAgent: A name is no agent's, or none is given.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise UnknownAgent("no agent named; write slugs separated by commas, or all")
    if [name.lower() for name in wanted] == ["all"]:
        return list(Agent.objects.filter(is_active=True).order_by("slug"))
    agents = [_agent_of(name) for name in wanted]
    if missing := [name for name, agent in zip(wanted, agents, strict=True) if agent is None]:
        slugs = ", ".join(Agent.objects.order_by("slug").values_list("slug", flat=True)[: 2 * _SHOWN])
        raise UnknownAgent(
            f"no agent {', '.join(map(repr, missing))}; agents: {slugs or 'none; import or seed some first'}"
        )
    return list({agent.pk: agent for agent in agents if agent is not None}.values())


def _agent_of(name: str) -> Agent | None:
    exact = Agent.objects.filter(slug=name).first()
    return exact or Agent.objects.filter(Q(slug__iexact=name) | Q(display_name__iexact=name)).order_by("slug").first()


def no_agent(name: str) -> str:
    """A sentence for a name that is no agent's, with the nearest slugs."""
    slugs = list(Agent.objects.order_by("slug").values_list("slug", flat=True)[:1000])
    if not slugs:
        return "there are no agents yet: `manage.py seed` loads examples, `manage.py import_agents` your own"
    near = get_close_matches(name.lower(), slugs, n=3, cutoff=0.5)
    if near:
        return f"there is no agent {name[:80]!r}; did you mean {' or '.join(near)}?"
    return f"there is no agent {name[:80]!r}; agents: {', '.join(slugs[:_SHOWN])}{' …' if len(slugs) > _SHOWN else ''}"
