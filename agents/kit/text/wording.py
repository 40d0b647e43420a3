"""How numbers are written for people: one minus sign, whatever prints it. JSON and CSV hold plain numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

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
