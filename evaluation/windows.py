"""Read windows of messages as people write them: ``all``, ``last:N``, a duration; and the history that one is compared with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

_DURATION = re.compile(r"(\d{1,5})([hdw])")
_LAST = re.compile(r"last:(\d{1,6})")
_UNIT_NAMES = {"h": "hours", "d": "days", "w": "weeks"}
BEFORE = "before"
ALLOWED = "all, last:N (the agent's last N messages) or a duration such as 24h, 7d, 4w"


@dataclass(frozen=True, slots=True)
class MessageWindow:
    """A window, made concrete: an open or closed stretch of time, or a number of last messages.

    A message without a time is in no stretch of time, only in ``all`` and ``last:N``. `stored_by` leaves out what was stored later: the
    window as it was then.
    """

    spec: str = "all"
    start: datetime | None = None
    end: datetime | None = None
    last: int | None = None
    stored_by: datetime | None = None


def parse_window(spec: str, *, now: datetime | None = None) -> MessageWindow:
    """Read a window as people write it.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    spec = spec.strip().lower()
    if spec == "all":
        return MessageWindow()
    last = _LAST.fullmatch(spec)
    if last and int(last[1]):
        return MessageWindow(spec, last=int(last[1]))
    duration = _DURATION.fullmatch(spec)
    if duration and int(duration[1]):
        end = now or timezone.now()
        length = timedelta(**{_UNIT_NAMES[duration[2]]: int(duration[1])})
        return MessageWindow(spec, start=end - length, end=end)
    raise ValueError(f"window {spec!r} is not understood; allowed: {ALLOWED}")


def parse_history(spec: str) -> MessageWindow:
    """Read what a window is compared with: ``before`` (all that was said before it), or a window, with errors as of `parse_window`."""
    if spec.strip().lower() == BEFORE:
        return MessageWindow(BEFORE)
    try:
        return parse_window(spec)
    except ValueError as error:
        raise ValueError(f"history {str(error).removeprefix('window ')}, {BEFORE}") from None
