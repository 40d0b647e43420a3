"""Answer what `manage.py seed --remove` asks of debates: which example agents stay because of a seat, and which debates go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db.models import QuerySet

from agents.debates.models import Debate, DebateSeat
from agents.models import Agent, Channel


def seated_elsewhere(agents: QuerySet[Agent], channels: Sequence[Channel]) -> Mapping[str, str]:
    """Return by slug why agents stay that have a seat in a debate outside of these channels."""
    seats = DebateSeat.objects.filter(agent__in=agents).exclude(debate__channel__in=channels)
    rows = seats.order_by("agent__slug", "pk").values_list("agent__slug", "debate")
    return {slug: f"it has a seat in debate {debate}" for slug, debate in rows}


def debates_in(channels: Sequence[Channel]) -> QuerySet[Debate]:
    """Return the debates of these channels, also where the channel stays: nothing is left of their answers."""
    return Debate.objects.filter(channel__in=channels)
