"""When a build began: the first message of each tag that says under which circumstances something was said."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db.models import Min

from agents.models import Message

BUILD_TAGS = ("build", "version", "release", "model", "prompt")
Tag = tuple[str, str]
NEWEST = 20_000  # messages that are looked through
BEFORE = 500  # older ones; a tag that is among them began before, so it has no date here


def first_of_tags(agents: Collection[int]) -> dict[tuple[int, Tag], datetime]:
    """When each of these agents first said something with a tag of `BUILD_TAGS`, in two queries.

    Args:
        agents: Primary keys; of their messages together the newest 20,000 are looked through.
    """
    said = Message.objects.filter(agent__in=agents)
    older = list(said.order_by("-said_at").values_list("said_at", flat=True)[NEWEST : NEWEST + BEFORE])
    if older:
        said = said.filter(said_at__gte=older[-1])
    first: dict[tuple[int, Tag], datetime] = {}
    for agent, tags, at in said.order_by().values_list("agent", "tags").annotate(at=Min("said_at")):
        for key in BUILD_TAGS:
            if value := tags.get(key):
                first[agent, (key, value)] = min(at, first.get((agent, (key, value)), at))
    return {key: at for key, at in first.items() if not older or at > older[0]}
