"""Query parameters that name an agent or a channel; see `agents.kit.api.filters`."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from agents.bodies import the_agent, the_channel
from agents.kit.api.filters import Filters, Parameter
from agents.models import about_watched_agents

_SLUG = {"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"}


def of_agent(field: str = "agent", **more: Any) -> Parameter:
    """Return a parameter that is the slug of an agent."""
    return Parameter(field, read=the_agent, schema=_SLUG, about="the slug of an agent", **more)


def of_channel(field: str = "channel", **more: Any) -> Parameter:
    """Return a parameter that is the slug of a channel."""
    about = "the slug of a channel"
    return Parameter(field, read=the_channel, allowed=about, schema=_SLUG, about=about, **more)


class OfWatchedAgents(Filters):
    """Rows about agents that are watched, as on the console's first page, or about none; with ``agent`` all of that agent's."""

    agent = of_agent()

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().filter_queryset(queryset)
        return rows if self.form.cleaned_data["agent"] else rows.filter(about_watched_agents())
