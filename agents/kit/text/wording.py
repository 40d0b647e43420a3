"""Write numbers and times for people, the same in console, commands and reports. JSON, CSV and logs hold plain numbers and ISO times."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Protocol

from django.utils import timezone

MINUS = "−"


class Ends(Protocol):
    """What has a lower and an upper end, such as a confidence interval."""

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...


def decimal(value: float, digits: int = 1) -> str:
    """Return a number with so many decimals; one that rounds to nothing has no sign."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", MINUS)


def signed(value: float | None, digits: int = 1) -> str:
    """Return a difference with its sign; one that rounds to nothing has none; a dash for None."""
    if value is None:
        return "–"
    return f"{'+' if round(value, digits) > 0 else ''}{decimal(value, digits)}"


def percentage(share: float) -> str:
    """Return a share of 0 to 1 as ``66 %``."""
    return f"{100 * share:.0f} %"


def difference(before: float | None, after: float | None, digits: int = 1) -> float | None:
    """Return the difference to show beside two numbers with so many decimals: 1.9 beside 2.0 and 3.9, though 2.04 and 3.86 differ by 1.8.

    None where a number is missing.
    """
    if before is None or after is None:
        return None
    return round(round(after, digits) - round(before, digits), digits)


def interval_text(interval: Ends | None, *, sign: bool = True) -> str:
    """Return an interval as text, e.g. ``−2.1 to +0.4``; a dash for None."""
    write = signed if sign else decimal
    return "–" if interval is None else f"{write(interval.low)} to {write(interval.high)}"


def counted(n: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 judgement``, ``2 judgements``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def money(value: Decimal | float | None, unpriced: int = 0) -> str:
    """Return an amount in US dollars; ``unpriced`` when any call has no price, never 0."""
    if value is None or unpriced:
        return "unpriced" if not value else f"${value:.4f} + unpriced"
    return f"${value:.4f}"


def number(score: float | None) -> str:
    return "–" if score is None else f"{score:.1f}"


def day_text(value: date) -> str:
    """Return a day as ``7 Nov 2026``; of a time its day in the time zone of the installation (TIME_ZONE)."""
    local = _local(value) if isinstance(value, datetime) else value
    return f"{local.day} {local:%b %Y}"  # not Django's `date_format`: it takes 50 µs, and a chart has hundreds of times


def time_text(value: datetime, *, zone: bool = False) -> str:
    """Return a time as ``7 Nov 2026, 14:05`` in the time zone of the installation; with `zone` its name follows, as in ``14:05 UTC``."""
    local = _local(value)
    text = f"{day_text(local)}, {local:%H:%M}"
    return f"{text} {local:%Z}" if zone else text


def _local(value: datetime) -> datetime:
    """Return a time in the time zone of the installation; one without a zone as it is."""
    return timezone.localtime(value) if timezone.is_aware(value) else value
