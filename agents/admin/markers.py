"""Markers of charts: versions of agents' personas, and builds that first said something."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from django.http import HttpRequest
from django.urls import reverse

from agents.builds import Tag
from agents.kit.console import display
from agents.kit.console.charts import MOST_OF_A_KIND, Marker, MarkerSource, add_markers
from agents.models import PersonaVersion


def persona_edits(agents: Collection[int], since: datetime, until: datetime) -> list[Marker]:
    """Return a marker for each version of a persona after the first, saved in that time; the newest where there are many.

    It leads to the page of versions that begins with this one.
    """
    versions = PersonaVersion.objects.filter(agent__in=agents, created_at__range=(since, until), number__gt=1)
    rows = versions.select_related("agent", "created_by").order_by("-created_at", "-pk")[:MOST_OF_A_KIND]
    markers = []
    for row in rows:
        note = f", {row.note}" if row.note else ""
        by = f" by {row.created_by.get_username()}" if row.created_by is not None else ""
        title = f"{row.agent.display_name}: persona version {row.number}{note}{by}"
        url = f"{reverse('admin:agents_agent_versions', args=[row.agent_id])}?before={row.number + 1}"
        markers.append(Marker(at=row.created_at, title=title, url=url, kind="persona"))
    return markers


def builds(
    request: HttpRequest, tags: Mapping[tuple[int, Tag], datetime], since: datetime, until: datetime
) -> list[Marker]:
    """Return a marker at the first message of each tag such as ``build=41``, whichever agent said it; the newest where there are many.

    None for a user who may not view agents.

    Args:
        tags: When each agent first said something with a tag, see `first_said_with_tag`.
    """
    if not request.user.has_perm("agents.view_agent"):
        return []
    first: dict[Tag, datetime] = {}
    for (_, tag), at in tags.items():
        first[tag] = min(at, first.get(tag, at))
    inside = sorted((at, tag) for tag, at in first.items() if since <= at <= until)
    return [build_marker(tag, at) for at, tag in inside[-MOST_OF_A_KIND:]]


def build_marker(tag: Tag, at: datetime) -> Marker:
    """Return the marker of a build, whose first message was said then."""
    name = " ".join(tag)
    return Marker(at=at, title=f"{name}: first message", kind="build", short=display.shortened(name, 20))


add_markers(MarkerSource(permission="agents.view_personaversion", find=persona_edits))
