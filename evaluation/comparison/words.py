"""How a change is written: the same in a terminal, on a page and in a report."""

from __future__ import annotations

from evaluation.comparison.values import Change
from evaluation.wording import signed


def interval_text(change: Change) -> str:
    """E.g. ``−2.1 to +0.4``."""
    if change.interval is None:
        return "–"
    return f"{signed(change.interval.low)} to {signed(change.interval.high)}"
