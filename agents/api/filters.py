"""Query parameters that name an agent or a channel; see `agents.kit.api.filters`."""

from __future__ import annotations

from typing import Any

from agents.bodies import the_agent, the_channel
from agents.kit.api.filters import Parameter

_SLUG = {"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"}


def of_agent(field: str = "agent", **more: Any) -> Parameter:
    """Return a parameter that is the slug of an agent."""
    return Parameter(field, read=the_agent, schema=_SLUG, about="the slug of an agent", **more)


def of_channel(field: str = "channel", **more: Any) -> Parameter:
    """Return a parameter that is the slug of a channel."""
    about = "the slug of a channel"
    return Parameter(field, read=the_channel, allowed=about, schema=_SLUG, about=about, **more)
