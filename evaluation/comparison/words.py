"""How a change is written: the same in a terminal, on a page and in a report."""

from __future__ import annotations

from evaluation.comparison.values import Change


def signed(value: float | None, digits: int = 1) -> str:
    """A difference with its sign; one that rounds to nothing has none."""
    if value is None:
        return "–"
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"


def interval_text(change: Change) -> str:
    if change.interval is None:
        return "–"
    return f"{signed(change.interval.low)} to {signed(change.interval.high)}"
