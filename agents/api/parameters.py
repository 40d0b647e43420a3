"""Query parameters read strictly: an unknown name or a wrong value is a 400 that says what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time
from uuid import UUID

from django.utils.dateparse import parse_date, parse_datetime
from rest_framework.exceptions import ValidationError
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request

from agents.finding import no_agent
from agents.models import Agent

MOMENT = "a date or time such as 2026-11-22 or 2026-11-22T14:30:00Z (UTC where it says no zone)"
ALWAYS_ALLOWED = ("format", "page", "page_size", "cursor")


def only(request: Request, *names: str) -> None:
    """Refuse parameters nobody reads: a mistyped filter must not answer with everything."""
    unknown = sorted(set(request.query_params) - {*names, *ALWAYS_ALLOWED})
    if unknown:
        allowed = ", ".join((*names, *_of_pages(request))) or "none"
        raise ValidationError({name: [f"there is no parameter {name!r}; allowed: {allowed}"] for name in unknown})


def _of_pages(request: Request) -> Iterator[str]:
    """What a list takes besides its filters."""
    view = (request.parser_context or {}).get("view")
    paginator = (
        getattr(view, "paginator", None) if isinstance(view, ListModelMixin) and request.method == "GET" else None
    )
    for kind in ("page_query_param", "cursor_query_param", "page_size_query_param"):
        if name := getattr(paginator, kind, None):
            yield name


def text(request: Request, name: str) -> str:
    """The parameter's value; empty when it is not given."""
    value = request.query_params.get(name, "").strip()
    if "\x00" in value:
        raise ValidationError({name: [f"{name} holds a NUL character"]})
    return value


def choice(request: Request, name: str, allowed: Iterable[str]) -> str:
    """One of `allowed`, or empty when it is not given."""
    value, known = text(request, name), list(allowed)
    if value and value not in known:
        raise ValidationError({name: [f"{name} {value!r}: allowed: {', '.join(known)}"]})
    return value


def moment(request: Request, name: str) -> datetime | None:
    """A point in time; a date alone is its midnight UTC."""
    value = text(request, name)
    if not value:
        return None
    try:
        found: datetime | date | None = parse_datetime(value) or parse_date(value)
        if found is None:
            raise ValueError
        if not isinstance(found, datetime):
            found = datetime.combine(found, time())
        # In UTC, as databases compare it: what lies outside the calendar there is none.
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ValidationError({name: [f"{name} {value!r}: allowed: {MOMENT}"]}) from None


def uuid(request: Request, name: str) -> UUID | None:
    """A UUID; None when it is not given."""
    value = text(request, name)
    try:
        return UUID(value) if value else None
    except ValueError:
        raise ValidationError({name: [f"{name} {value[:60]!r}: allowed: a UUID"]}) from None


def agent(request: Request, name: str = "agent") -> Agent | None:
    """The agent of this slug; None when the parameter is not given."""
    slug = text(request, name)
    if not slug:
        return None
    found = Agent.objects.filter(slug=slug).first()
    if found is None:
        raise ValidationError({name: [no_agent(slug)]})
    return found
