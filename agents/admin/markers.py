"""What happened to agents on the way: the markers of every chart over time. Apps of every floor add theirs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest
from django.urls import reverse

from agents.admin.chart_scales import place
from agents.admin.chart_values import Marker
from agents.models import PersonaVersion

MOST_OF_A_KIND = 30  # the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerSource:
    """A kind of event, for users with `permission`.

    Attributes:
        find: A function of agents' primary keys, first and last moment to markers, in a constant number of queries.
    """

    permission: str
    find: Callable[[Collection[int], datetime, datetime], list[Marker]]


_sources: list[MarkerSource] = []


def add_markers(source: MarkerSource) -> None:
    """Add a kind of event to the charts; call it once, where the app registers its own admin classes."""
    _sources.append(source)


def markers_of(request: HttpRequest, agents: Collection[int], since: datetime, until: datetime) -> list[Marker]:
    """The newest events of these agents that the user may see, oldest first."""
    allowed = [source for source in _sources if request.user.has_perm(source.permission)]
    found = [marker for source in allowed for marker in source.find(agents, since, until)]
    return sorted(found, key=lambda marker: place(marker.at))


def persona_edits(agents: Collection[int], since: datetime, until: datetime) -> list[Marker]:
    """Each version of a persona after the first."""
    versions = PersonaVersion.objects.filter(agent__in=agents, created_at__range=(since, until), number__gt=1)
    rows = versions.select_related("agent", "created_by").order_by("-created_at", "-pk")[:MOST_OF_A_KIND]
    return [
        Marker(
            at=row.created_at,
            title=f"{row.agent.display_name}: persona version {row.number}{_said(row)}",
            url=f"{reverse('admin:agents_agent_versions', args=[row.agent_id])}?before={row.number + 1}",
            kind="persona",
        )
        for row in rows
    ]


def _said(version: PersonaVersion) -> str:
    by = f" by {version.created_by.get_username()}" if version.created_by is not None else ""
    return f", {version.note}{by}" if version.note else by


add_markers(MarkerSource(permission="agents.view_personaversion", find=persona_edits))
