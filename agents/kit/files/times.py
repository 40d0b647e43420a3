"""Times and time zones as files have them: ISO 8601, Unix times and the common forms of logs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils import timezone

_MILLISECONDS_FROM = 1e11  # as seconds this would be the year 5138
_UNIX = re.compile(r"[0-9]{9,14}(\.[0-9]{1,9})?")
_FORMATS = (
    "%d/%b/%Y:%H:%M:%S %z",
    "%a %b %d %H:%M:%S %Y",
    "%a, %d %b %Y %H:%M:%S %z",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%Y-%m-%d %H:%M:%S UTC",
    "%d %b %Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y, %H:%M:%S",
    "%d.%m.%Y, %H:%M",
    "%d.%m.%Y",
    "%b %d, %Y %H:%M:%S",
    "%b %d, %Y %I:%M:%S %p",
    "%B %d, %Y %I:%M%p",
)


def zone(name: str) -> tzinfo:
    """Return the time zone of that name; empty = the TIME_ZONE setting.

    Raises:
        ValueError: No such zone.
    """
    if not name:
        return timezone.get_default_timezone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"unknown time zone {name!r}; write e.g. UTC, Europe/Berlin or America/New_York") from None


def parse_time(value: Any) -> datetime | None:
    """Return a time written as ISO 8601, as a Unix time in seconds or milliseconds, or in a common log form; empty is None.

    Naive when the source gives no offset; Unix times are in UTC. A text of 9 to 14 figures is a Unix time. Of dates such as
    01.02.2026 the day comes first.

    Raises:
        ValueError: Anything else.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is no time; write ISO 8601, e.g. 2026-03-01T12:00:00Z")
    if isinstance(value, int | float):
        return _from_unix(float(value))
    text = value.strip()
    if _UNIX.fullmatch(text):
        return _from_unix(float(text))
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    for form in _FORMATS:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    raise ValueError(f"{value[:60]!r} is no time; write ISO 8601, e.g. 2026-03-01T12:00:00Z")


def _from_unix(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds / 1000 if abs(seconds) >= _MILLISECONDS_FROM else seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{seconds!r} is no Unix time") from None


def to_utc(moment: datetime, zone: tzinfo) -> datetime:
    """Return a moment in UTC; a naive one is read in `zone`.

    Raises:
        ValueError: Out of the range that can be stored.
    """
    try:
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
        return aware.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"the time {moment} is out of range") from None
