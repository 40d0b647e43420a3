"""What a chart shows: lines of points, markers, bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.utils.safestring import SafeString

Kind = Literal["persona", "config", "alert", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of a line.

    Attributes:
        at: Its time, or its place as a number (then the chart needs `x_labels`).
        value: None where it could not be measured: the line has a gap and the table says so.
        error: Half the height of its error bar, in the unit of the value.
        title: Shown when the pointer rests on it; default: time and value.
        url: The page behind it.
        hollow: Drawn as a ring: it does not count like the others.
    """

    at: datetime | float
    value: float | None
    error: float | None = None
    title: str = ""
    url: str = ""
    hollow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart.

    Attributes:
        name: What it shows; `note` (HTML such as a badge) stands beside it in the legend, `url` is its page.
        points: In the order of their times.
        level: A horizontal line in the same colour, such as the baseline; `level_name` says which.
    """

    name: str
    points: Sequence[Point]
    note: SafeString | str = ""
    url: str = ""
    level: float | None = None
    level_name: str = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Something that happened: a vertical line, and a line of text below the chart."""

    at: datetime | float
    title: str
    url: str = ""
    kind: Kind = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: a value per series of the chart, stacked from below."""

    label: str
    values: Sequence[float]
    url: str = ""
