"""From when until when a trait was as an applied request found and made it: what may be compared to tell its effect."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from agents.models import PersonaVersion
from correction.behavior.map_answer import name_key
from correction.models import BehaviorRequest
from evaluation.change.before_after import Moments

MOST_VERSIONS = 500  # looked through on each side; messages said so many changes away are no neighbours
REVERTED, CHANGED = "it was reverted", "its trait was changed again"


def lasting(request: BehaviorRequest) -> tuple[Moments, str]:
    """The time of an applied request with that around it in which nothing else changed its trait, and what ended it (empty: it holds).

    The versions of the persona say so, whoever made them: requests, people, imports.
    """
    assert request.applied_at is not None  # noqa: S101 (callers checked)
    made = request.persona_version
    ends = [(request.reverted_at, REVERTED)] if request.reverted_at is not None else []
    if made is not None and (again := _changed_again(request, made.number)) is not None:
        ends.append(again)
    until, ended = min(ends, default=(None, ""))
    moments = Moments(
        at=request.applied_at,
        since=_changed_before(request, made.number) if made is not None else None,
        until=until,
        version=made.number if made is not None else None,
    )
    return moments, ended


def _changed_again(request: BehaviorRequest, number: int) -> tuple[datetime, str] | None:
    """When a later version had another such trait, or none, and how that is called."""
    later = PersonaVersion.objects.filter(agent=request.agent_id, number__gt=number).order_by("number")
    for at, note, traits in later.values_list("created_at", "note", "traits")[:MOST_VERSIONS].iterator():
        if _trait_in(traits, request.trait_after) != _values(request.trait_after):
            return at, REVERTED if note == f"revert of behaviour request {request.pk}" else CHANGED
    return None


def _changed_before(request: BehaviorRequest, number: int) -> datetime | None:
    """When the trait became what the request found."""
    became: datetime | None = None
    earlier = PersonaVersion.objects.filter(agent=request.agent_id, number__lt=number).order_by("-number")
    for at, traits in earlier.values_list("created_at", "traits")[:MOST_VERSIONS].iterator():
        if _trait_in(traits, request.trait_before or request.trait_after) != _values(request.trait_before):
            return became
        became = at
    return None


def _trait_in(traits: Iterable[dict[str, Any]], like: object) -> tuple[object, ...] | None:
    name = name_key(str(like["name"])) if isinstance(like, dict) else ""
    return _values(next((trait for trait in traits if name_key(str(trait["name"])) == name), None))


def _values(trait: object) -> tuple[object, ...] | None:
    if not isinstance(trait, dict):
        return None
    return tuple(trait.get(field) for field in ("name", "description", "sentiment", "strength"))
