"""How what programs and people send is read, at every door alike: keys of tags, moments, JSON."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from typing import Any

from django.utils.dateparse import parse_date, parse_datetime

TAG_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
MOMENT = "a date or time such as 2026-11-22 or 2026-11-22T14:30:00Z (UTC where it says no zone)"


def read_moment(text: str) -> datetime:
    """Read a point in time, `MOMENT`; a date alone is its midnight UTC.

    Raises:
        ValueError, OverflowError: It is none, or one that the calendar does not have in UTC.
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


def keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs: what reads JSON, as ``object_pairs_hook``, would keep only the last value of a key.

    Raises:
        ValueError: A key occurs twice.
    """
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the key {name[:60]!r} occurs twice in one object; allowed: each key once")
        values[name] = value
    return values
