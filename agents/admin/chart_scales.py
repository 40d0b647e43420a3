"""Scales of a chart: where a value stands in the drawing, and what is written on its axes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.utils import timezone
from django.utils.dateformat import format as date_format

WIDTH, HEIGHT = 1000, 200  # units of the drawing; its box decides how large they are
_DAY = 86400.0


def stretches(spots: Sequence[tuple[float, float | None]]) -> list[str]:
    """The points between gaps, each stretch as a polyline takes it."""
    found: list[list[str]] = [[]]
    for x, y in spots:
        if y is None:
            found.append([])
        else:
            found[-1].append(f"{units(x)},{units(y)}")
    return [" ".join(stretch) for stretch in found if len(stretch) > 1]


def grid(low: float, high: float, steps: int = 3) -> list[dict[str, str]]:
    """The lines of the vertical axis, from the top."""
    step = (high - low) / steps
    return [{"y": units(HEIGHT * n / steps), "text": f"{high - n * step:,g}"} for n in range(steps + 1)]


def axis_days(first: float, last: float) -> list[str]:
    """First, middle and last day of an axis of time; of numbered places the first and last."""
    if first < 365 * _DAY:  # numbered places, not times
        return ends([f"{first:g}", f"{last:g}"])
    middle = [(first + last) / 2] if last - first > 2 * _DAY else []
    return ends([day_at(at) for at in (first, *middle, last)])


def ends(labels: Sequence[str]) -> list[str]:
    """What fits under an axis: the first and the last of more than three labels."""
    if len(labels) <= 3:
        return list(dict.fromkeys(labels))
    return [labels[0], labels[-1]]


def day_at(at: float) -> str:
    return date_format(datetime.fromtimestamp(at, timezone.get_current_timezone()), "j M Y")


def when(at: datetime | float) -> str:
    """A time to the minute, or a numbered place."""
    return date_format(timezone.localtime(at), "j M Y, H:i") if isinstance(at, datetime) else f"{at:g}"


def place(at: datetime | float) -> float:
    """A number that grows with time."""
    return at.timestamp() if isinstance(at, datetime) else float(at)


def share(value: float, low: float, high: float) -> float:
    """Where `value` lies between `low` and `high`, 0 to 1."""
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


def round_up(value: float) -> float:
    """The next even number with one significant digit, so that half of it is a round number, too."""
    if value <= 0:
        return 2
    size = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.1
    while value < size:
        size /= 10
    smallest = 2 if size == 1 else 1  # half of one is nothing that can be counted
    return next(size * factor for factor in (smallest, 2, 4, 6, 8, 10, 20) if size * factor >= value)


def units(number: float) -> str:
    """A number as the drawing takes it."""
    return f"{number:.1f}"
