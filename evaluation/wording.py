"""How numbers are written for people: one minus sign, whatever prints it. JSON and CSV hold plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluation.statistics.estimates import Interval

MINUS = "−"


def decimal(value: float, digits: int = 1) -> str:
    """A number with so many decimals; one that rounds to nothing has no sign."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", MINUS)


def signed(value: float | None, digits: int = 1) -> str:
    """A difference with its sign; one that rounds to nothing has none."""
    if value is None:
        return "–"
    return f"{'+' if round(value, digits) > 0 else ''}{decimal(value, digits)}"


def interval_text(interval: Interval | None, *, sign: bool = True) -> str:
    """E.g. ``−2.1 to +0.4``."""
    write = signed if sign else decimal
    return "–" if interval is None else f"{write(interval.low)} to {write(interval.high)}"


def counted(n: int, one: str, many: str = "") -> str:
    """A number with its noun: ``1 judgement``, ``2 judgements``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
