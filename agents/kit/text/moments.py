"""Points in time as people write them to commands and to the API."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

from django.utils.dateparse import parse_date, parse_datetime


def read_moment(text: str) -> datetime:
    """Return a point in time in UTC; a time without a zone is UTC, and a date alone is its midnight.

    Raises:
        ValueError, OverflowError: It is none, or one that the calendar does not have in UTC. The caller says what is allowed.
    """
    try:
        at: datetime | date | None = parse_datetime(text) or parse_date(text)
    except ValueError:  # of the right form, but no such day: its sentence names neither the text nor what is allowed
        at = None
    if at is None:
        raise ValueError
    if not isinstance(at, datetime):
        at = datetime.combine(at, time())
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
