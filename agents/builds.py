"""When a build began: the first message of each tag that says under which circumstances something was said."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from django.db.models import DateTimeField, Min, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from agents.models import Message

BUILD_TAGS = ("build", "version", "release", "model", "prompt")
Tag = tuple[str, str]
NEWEST = 20_000  # messages that are looked through
TAGS_READ = 1_000  # messages whose tags are looked at for the newest builds
BEFORE = 500  # older ones; a tag that is among them began before, so it has no date here


def first_said_with_tag(agents: Collection[int]) -> dict[tuple[int, Tag], datetime]:
    """Return when each of these agents first said something with a tag of `BUILD_TAGS`, in one query.

    A tag that was said before those messages (among the 500 older ones) has no entry: when it was said first is not known.

    Args:
        agents: Primary keys; of their messages together the newest 20,000 are looked through.

    Returns:
        Primary key of the agent and tag such as ``("build", "41")`` to the moment.
    """
    said = Message.objects.filter(agent__in=agents)
    newest_first = said.order_by("-said_at").values("said_at")
    # When the newest and the oldest of the 500 older messages were said; each is NULL where there are not so many messages.
    newest_older, oldest_older = newest_first[NEWEST : NEWEST + 1], newest_first[NEWEST + BEFORE - 1 : NEWEST + BEFORE]
    always = Value(datetime.min.replace(tzinfo=UTC), output_field=DateTimeField())
    rows = (
        said.filter(said_at__gte=Coalesce(Subquery(oldest_older), always))
        .order_by()
        .values_list("agent", "tags")
        .annotate(at=Min("said_at"), older=Subquery(newest_older))
    )
    first: dict[tuple[int, Tag], datetime] = {}
    before: datetime | None = None  # when the newest of the older messages was said; None = all are looked through
    for agent, tags, at, older in rows:
        before = older
        for key in BUILD_TAGS:
            if value := tags.get(key):
                first[agent, (key, value)] = min(at, first.get((agent, (key, value)), at))
    return {key: at for key, at in first.items() if before is None or at > before}


def newest_builds(spoken: QuerySet[Message]) -> list[str]:
    """Return the builds of these messages, which come newest first, e.g. ``build=41``, the newest first.

    They are the values of the first of `BUILD_TAGS` that the newest 1,000 messages have; empty where they have none.
    """
    newest_tags = list(spoken.values_list("tags", flat=True)[:TAGS_READ])
    for key in BUILD_TAGS:
        values = [tags[key] for tags in newest_tags if key in tags]
        if values:
            return [f"{key}={value}" for value in dict.fromkeys(values)]
    return []
