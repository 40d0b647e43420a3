"""Finding an agent by what a person typed."""

from __future__ import annotations

from difflib import get_close_matches

from django.db.models import Q

from agents.models import Agent

_SHOWN = 20


class UnknownAgent(ValueError):
    """A name that is no agent's; says which are near."""


def find_agent(name: str) -> Agent:
    """The agent of this slug; its display name, and capitals, are understood too.

    Raises:
        UnknownAgent: None, with the nearest names.
    """
    name = name.strip()
    exact = Agent.objects.filter(slug=name).first()
    agent = exact or Agent.objects.filter(Q(slug__iexact=name) | Q(display_name__iexact=name)).order_by("slug").first()
    if agent is None:
        raise UnknownAgent(no_agent(name))
    return agent


def no_agent(name: str) -> str:
    """A sentence for a name that is no agent's, with the nearest slugs."""
    slugs = list(Agent.objects.order_by("slug").values_list("slug", flat=True)[:1000])
    if not slugs:
        return "there are no agents yet: `manage.py seed` loads examples, `manage.py import_agents` your own"
    near = get_close_matches(name.lower(), slugs, n=3, cutoff=0.5)
    if near:
        return f"there is no agent {name[:80]!r}; did you mean {' or '.join(near)}?"
    return f"there is no agent {name[:80]!r}; agents: {', '.join(slugs[:_SHOWN])}{' …' if len(slugs) > _SHOWN else ''}"
