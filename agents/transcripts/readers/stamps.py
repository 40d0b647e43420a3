"""The time at the beginning of a line of a chat log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone

from agents.transcripts.source import Source

STAMP = re.compile(
    r"""
    (?P<open>[\[(]?)
    (?:(?P<date>\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d{2}))(?:,?\s+|T|,))?
    (?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,6}))?)?
    (?:\s?(?P<half>[AaPp])\.?\s?[Mm]\b\.?)?
    (?:\s?(?P<offset>Z|UTC|[+-]\d{2}:?\d{2}))?
    (?:[\])]|(?<=.)(?=\s|:\s))
    (?::(?=\s))?\s*(?:[-–|]\s+)?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A clock time, perhaps with its date and its offset from UTC."""

    clock: time
    day: date | None = None

    @classmethod
    def of(cls, match: re.Match[str], *, day_first: bool) -> Stamp:
        """Read a match of `STAMP`.

        Raises:
            ValueError: No such date or time.
        """
        hour = int(match["hour"])
        if match["half"]:
            if not 1 <= hour <= 12:
                raise ValueError(f"{hour} is no hour of a 12-hour clock")
            hour = hour % 12 + (12 if match["half"] in "pP" else 0)
        clock = time(
            hour,
            int(match["minute"]),
            int(match["second"] or 0),
            int((match["fraction"] or "0").ljust(6, "0")),
            tzinfo=_offset(match["offset"]),
        )
        return cls(clock, _date(match["date"], day_first=day_first) if match["date"] else None)

    def moment(self, day: date | None) -> datetime | None:
        """Date and time; None when neither the stamp nor the log gives a date."""
        on = self.day or day
        return datetime.combine(on, self.clock) if on else None


def _offset(text: str | None) -> timezone | None:
    if not text:
        return None
    if text in {"Z", "UTC"}:
        return timezone.utc  # noqa: UP017
    digits = text[1:].replace(":", "")
    span = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-span if text[0] == "-" else span)


def _numbers(text: str) -> tuple[int, int, int]:
    first, second, third = re.split(r"[-/.]", text)
    return int(first), int(second), int(third)


def _date(text: str, *, day_first: bool) -> date:
    first, second, third = _numbers(text)
    if len(re.split(r"[-/.]", text)[0]) == 4:
        return date(first, second, third)
    year = third + 2000 if third < 100 else third
    return date(year, second, first) if day_first else date(year, first, second)


def day_comes_first(source: Source, match: re.Match[str]) -> bool:
    """Whether 01/02/2026 is the 1st of February in this file: a number above 12 anywhere in it decides.

    Without one: dots mean day first, AM/PM means month first, else day first.
    """
    if len(re.split(r"[-/.]", match["date"])[0]) == 4:
        return False
    for _, text in source.lines():
        other = STAMP.match(text.lstrip("\u200e\ufeff"))
        if other and other["date"]:
            first, second, _ = _numbers(other["date"])
            if 12 < first <= 31:
                return True
            if 12 < second <= 31:
                return False
    return "." in match["date"] or not match["half"]
