"""Builds: the tags that say under which circumstances something was said, when each began, and which of two came later."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime

from django.db.models import DateTimeField, Min, QuerySet, Subquery, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from agents.models import Message

BUILD_TAGS = ("build", "version", "release", "model", "prompt")
Tag = tuple[str, str]
NEWEST = 20_000  # messages that are looked through
VERSION = re.compile(r"v?(\d+(?:\.\d+)*)", re.ASCII)  # 41, v1.2.3
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
    messages = Message.objects.filter(agent__in=agents)
    newest_first = messages.order_by("-said_at").values("said_at")
    # When the newest and the oldest of the 500 older messages were said; each is NULL where there are not so many messages.
    newest_older, oldest_older = newest_first[NEWEST : NEWEST + 1], newest_first[NEWEST + BEFORE - 1 : NEWEST + BEFORE]
    always = Value(datetime.min.replace(tzinfo=UTC), output_field=DateTimeField())
    rows = (
        messages.filter(said_at__gte=Coalesce(Subquery(oldest_older), always))
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


def tag_text(tag: Tag) -> str:
    """Return a tag as it is typed and stored: ``build=41``."""
    key, value = tag
    return f"{key}={value}"


def tag_of(text: str) -> Tag:
    """Return the tag that `tag_text` gave as text; of an empty text the empty one."""
    key, _, value = text.partition("=")
    return key, value


def tag_name(tag: Tag) -> str:
    """Return a tag as people say it: ``build 41``."""
    key, value = tag
    return f"{key} {value}"


def newest_of_key(agent: int, key: str) -> str:
    """Return the value of a tag such as ``build`` that an agent began to carry last; empty where that is not known.

    Where none began among the messages that `first_said_with_tag` looks through, it is that of the newest message with such a tag.
    """
    began = {}
    for (_, tag), at in first_said_with_tag([agent]).items():
        if tag[0] == key:
            began[tag[1]] = at
    if began:
        return max(began, key=lambda value: began[value])
    tagged = Message.objects.filter(agent=agent, tags__has_key=key).order_by("-said_at", "-pk")
    newest: str = tagged.values_list(KeyTextTransform(key, "tags"), flat=True).first() or ""
    return newest


def is_later(agent: int, tag: Tag, than: Tag) -> bool | None:
    """Return whether a build of an agent began after another one; None where that is not known.

    A build begins with the agent's first message of it. Where the agent has said nothing with one of the two yet, their version numbers
    decide, if both have such: 42.1 is later than 42.
    """
    if tag == than:
        return False
    if tag[0] != than[0]:
        return None
    began = _first_said(agent, tag), _first_said(agent, than)
    if began[0] is not None and began[1] is not None:
        return began[0] > began[1]
    numbers = _version_numbers(tag[1]), _version_numbers(than[1])
    if numbers[0] and numbers[1]:
        return numbers[0] > numbers[1]
    return None


def _first_said(agent: int, tag: Tag) -> datetime | None:
    """Return when an agent first said something with a tag, among all of its messages; None where it never did."""
    key, value = tag
    # As in `evaluation.scorers.selection.with_tags`: the key as it is, and a comparison of texts.
    tagged = Message.objects.filter(agent=agent).alias(value=Cast(KeyTextTransform(key, "tags"), TextField()))
    first: datetime | None = tagged.filter(value=value).aggregate(first=Min("said_at"))["first"]
    return first


def _version_numbers(value: str) -> tuple[int, ...]:
    """Return the numbers of a version such as ``v1.2.3``; empty for any other text."""
    version = VERSION.fullmatch(value)
    return tuple(int(number) for number in version[1].split(".")) if version else ()


def newest_builds(messages: QuerySet[Message]) -> list[str]:
    """Return the builds of these messages, which come newest first, e.g. ``build=41``, the newest first.

    They are the values of the first of `BUILD_TAGS` that the newest 1,000 messages have; empty where they have none.
    """
    newest_tags = list(messages.values_list("tags", flat=True)[:TAGS_READ])
    for key in BUILD_TAGS:
        values = [tags[key] for tags in newest_tags if key in tags]
        if values:
            return [f"{key}={value}" for value in dict.fromkeys(values)]
    return []
