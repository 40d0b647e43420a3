"""What changed in a persona since it was last looked at: which versions, made by what, and what they changed in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from agents.models import PersonaVersion

MOST_VERSIONS = 5  # told of one agent: the newest
MOST_DIFFERENCES = 5  # told of one version

Origins = Callable[[Collection[int]], Mapping[int, str]]


@dataclass(frozen=True, slots=True)
class PersonaChange:
    """One version of a persona that came later.

    Attributes:
        version: Its primary key.
        number: Counted per agent.
        at: When it was saved.
        origin: What made it and who asked for it, e.g. ``behaviour request 12 by anna``.
        differences: What it changed, e.g. ``concise replies 0.5 → 0.9``.
    """

    version: int
    number: int
    at: datetime
    origin: str
    differences: tuple[str, ...]

    def __str__(self) -> str:
        what = ", ".join(self.differences[:MOST_DIFFERENCES])
        left_out = len(self.differences) - MOST_DIFFERENCES
        more = f" and {left_out} more" if left_out > 0 else ""
        return (
            f"version {self.number}, {self.origin}: {what}{more}" if what else f"version {self.number}, {self.origin}"
        )


def changes_since(since: Iterable[tuple[int, str]]) -> dict[tuple[int, str], tuple[PersonaChange, ...]]:
    """The versions that came after the persona of a digest, oldest first, for many agents in four queries at most.

    Args:
        since: Agents' primary keys with the digests that were looked at. Of several versions of that digest the newest counts.

    Returns:
        By what was asked: at most five versions, the newest; none where no version of that digest was kept.
    """
    wanted = set(since)
    rows = PersonaVersion.objects.filter(agent__in={agent for agent, _ in wanted}).order_by("agent", "number")
    by_agent: dict[int, list[Any]] = {}
    for row in rows.values("pk", "agent", "number", "digest"):
        by_agent.setdefault(row["agent"], []).append(row)
    later: dict[tuple[int, str], list[int]] = {}
    for agent, digest in wanted:
        versions = by_agent.get(agent, [])
        place = max((n for n, row in enumerate(versions) if row["digest"] == digest), default=None)
        if place is not None and place + 1 < len(versions):  # with the one before, to tell what changed
            first = max(place, len(versions) - MOST_VERSIONS - 1)
            later[agent, digest] = [row["pk"] for row in versions[first:]]
    return _told(later)


def changes_between(agent_slug: str, before: str, after: str) -> tuple[PersonaChange, ...]:
    """The versions of an agent's persona that lie between two digests, oldest first; none where they were not kept."""
    versions = list(PersonaVersion.objects.filter(agent__slug=agent_slug).order_by("number").values("pk", "digest"))
    starts = [n for n, row in enumerate(versions) if row["digest"] == before]
    ends = [n for n, row in enumerate(versions) if row["digest"] == after]
    pairs = [(end - start, start, end) for start in starts for end in ends if start < end]
    if not pairs:
        return ()
    _, start, end = min(pairs)
    keys = [row["pk"] for row in versions[max(start, end - MOST_VERSIONS) : end + 1]]
    return _told({(0, before): keys}).get((0, before), ())


def differences(before: PersonaVersion, after: PersonaVersion) -> tuple[str, ...]:
    """What one version changed of another, trait by trait; strengths as numbers."""
    old, new = ({str(trait["name"]).casefold(): trait for trait in version.traits} for version in (before, after))
    found = [_difference(old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())]
    prompt = ["system prompt"] if before.system_prompt != after.system_prompt else []
    return tuple(filter(None, (*found, *prompt)))


def _difference(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None or after is None:
        trait = after or before or {}
        return f"{trait['name']} {'new at' if before is None else 'removed, was'} {float(trait['strength']):g}"
    if before == after:
        return ""
    name = after["name"] if before["name"] == after["name"] else f"{before['name']}, now {after['name']},"
    if before["strength"] != after["strength"]:
        return f"{name} {float(before['strength']):g} → {float(after['strength']):g}"
    return f"{str(name).rstrip(',')} reworded"


def _told(later: Mapping[tuple[int, str], Sequence[int]]) -> dict[tuple[int, str], tuple[PersonaChange, ...]]:
    """The versions by key in words; the first of each is what the next is compared with."""
    keys = {pk for found in later.values() for pk in found}
    if not keys:
        return {}
    versions = PersonaVersion.objects.select_related("created_by").in_bulk(keys)
    origins: dict[int, str] = {}
    for path in settings.PERSONA_CHANGE_ORIGINS:
        find: Origins = import_string(path)
        origins.update(find(keys))
    return {
        asked: tuple(
            PersonaChange(
                version=pk,
                number=versions[pk].number,
                at=versions[pk].created_at,
                origin=origins.get(pk) or _origin(versions[pk]),
                differences=differences(versions[earlier], versions[pk]),
            )
            for earlier, pk in pairwise(found)
        )
        for asked, found in later.items()
    }


def _origin(version: PersonaVersion) -> str:
    by = f" by {version.created_by.get_username()}" if version.created_by is not None else ""
    return f"{version.note or 'no note'}{by}"
