"""Charts of the console: the theme's Chart.js draws them, and each has the same numbers as a table below it.

`charts.js` adds what JSON cannot say: colours of both themes, days on the axis, links, markers and error bars. Every chart over time shows
markers of what happened to its agents; apps add kinds of them with `add_markers`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.dateformat import format as date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.panels import table

COLOURS = 8  # --pl-chart-0 to --pl-chart-7; later lines repeat them, dashed
MOST_ROWS = 200  # of a table; the newest
MOST_OF_A_KIND = 30  # markers; the newest
ZOOMS = (7, 30)  # days that a button shows, where there are more
BARE = {"pointRadius": 0, "pointHitRadius": 0}  # a line without points to open
Kind = Literal["build", "persona", "config", "alert"]
MARKER_COLOURS: dict[Kind, str] = {
    "build": "--pl-subtle",
    "persona": "--pl-accent",
    "config": "--pl-warning",
    "alert": "--pl-bad",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of a line.

    Attributes:
        value: None where it could not be measured: the line has a gap and the table says so.
        error: Half the height of its error bar, in the unit of the value.
        url: The page behind it.
        note: Follows the value in the hint.
    """

    at: datetime
    value: float | None
    error: float | None = None
    url: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A rolling mean at one time, and the ends of its interval where it has one; its line starts again at one that `starts`."""

    at: datetime
    value: float
    starts: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart.

    Attributes:
        name: What it shows; `note` (HTML such as a badge) follows it in the legend, `url` is its page.
        points: In the order of their times.
        level: The baseline, a horizontal line in the same colour.
        means: A rolling mean: it is the line, with a band for its interval where the chart has no other, and the points are dots.
    """

    name: str
    points: Sequence[Point]
    means: Sequence[Mean] = ()
    note: SafeString | str = ""
    url: str = ""
    level: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Something that happened: a vertical line, with a `short` name on it, and a line of text below the chart."""

    at: datetime
    title: str
    url: str = ""
    kind: Kind
    short: str = ""


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    low: float = 0,
    high: float = 9,
    markers: Sequence[Marker] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    unit: str = "",
    shown: Callable[[float], str] = "{:.1f}".format,
    small: bool = False,
) -> SafeString:
    """Lines over time, with levels and markers, and the same as a table.

    Args:
        label: What the chart shows; read aloud, and the title of its table.
        since, until: Where the horizontal axis begins and ends; default: the first and last point.
        unit: Of the values, for the table's head.
        shown: How a value is written in hints and in the table.
        small: A drawing alone, for a card that links to the whole.
    """
    times = [point.at for line in lines for point in line.points] or [timezone.now()]
    first, last = since or min(times), until or max(times)
    if first == last:
        first, last = first - timedelta(hours=12), last + timedelta(hours=12)
    inside = [marker for marker in markers if first <= marker.at <= last]
    datasets: list[dict[str, Any]] = []
    legend = []
    for number, line in enumerate(lines):
        colour = f"--pl-chart-{number % COLOURS}"
        dash = [7, 4] if number >= COLOURS else []
        points = [_point(line, point, shown) for point in line.points]
        dots = {"showLine": False, "pointRadius": 3, "pointHitRadius": 6} if line.means else {"pointRadius": 4}
        datasets.append({"colour": colour, "borderDash": dash, "data": points, **dots})
        datasets += _means(line, colour, dash, band=len(lines) == 1)
        note = line.note
        if line.level is not None:
            level = [{"x": at.timestamp(), "y": line.level} for at in (first, last)]
            datasets.append({"colour": colour, "borderDash": [2, 4], **BARE, "data": level})
            note = format_html('{} <span class="pl-subtle">baseline {}</span>', note, shown(line.level))
        legend.append({"colour": colour, "name": display.isolated(line.name), "note": note, "url": line.url})
    data = {
        "datasets": datasets,
        "axis": [first.timestamp(), last.timestamp()],
        "days": _days(first, last),
        "y": [low, high],
        "markers": [
            {"at": one.at.timestamp(), "colour": MARKER_COLOURS[one.kind], "name": one.short} for one in inside
        ],
        "zone": timezone.get_current_timezone_name(),
        "exact": any(line.means for line in lines),
    }
    if small:
        return _chart(label, data, small=True)
    rows, older = _rows(lines, shown)
    names = [display.isolated(f"{line.name}, {unit}" if unit else line.name) for line in lines]
    return _chart(
        label,
        data,
        zooms=[days for days in ZOOMS if last - first > timedelta(days=days)],
        legend=legend if len(lines) > 1 or any(entry["note"] for entry in legend) else [],
        events=[_event(marker) for marker in reversed(inside)],
        table=table(("When", *names), rows, label=display.marked(f"{label}, as a table"), stacking=False),
        older=older,
    )


def _means(line: Line, colour: str, dash: Sequence[int], *, band: bool) -> list[dict[str, Any]]:
    """The rolling mean of a line, and its band between two invisible lines."""
    if not line.means:
        return []
    data: list[dict[str, float | None]] = []
    for one in line.means:
        data += [_xy(one.at, None)] * one.starts + [_xy(one.at, one.value)]
    drawn: list[dict[str, Any]] = [{"colour": colour, "borderDash": dash, **BARE, "data": data}]
    if band:
        for fill, ends in ((False, [one.low for one in line.means]), ("-1", [one.high for one in line.means])):
            data = [_xy(one.at, end) for one, end in zip(line.means, ends, strict=True)]
            drawn.append({"colour": colour, **BARE, "edge": True, "fill": fill, "data": data})
    return drawn


def _xy(at: datetime, value: float | None) -> dict[str, float | None]:
    return {"x": at.timestamp(), "y": value}


def steps(
    lines: Mapping[str, Sequence[float | None]],
    *,
    names: Sequence[str],
    label: str,
    ticks: Sequence[float] = (0, 0.5, 1),
    shown: Callable[[float], str] = "{:.2f}".format,
) -> SafeString:
    """Lines over steps that have names instead of times, such as rounds, and the same as a table with a row per step.

    Args:
        lines: By name; a value for each step, None where there is none: the line has a gap.
        names: Of the steps, in order.
        ticks: Of the vertical axis, which goes from the first to the last.
    """
    datasets, legend = [], []
    for number, (line, values) in enumerate(lines.items()):
        colour = f"--pl-chart-{number % COLOURS}"
        points = [
            {"x": x, "y": y, "text": "" if y is None else f"{line}, {name}: {shown(y)}"}
            for x, (name, y) in enumerate(zip(names, values, strict=True))
        ]
        dash = [7, 4] if number >= COLOURS else []
        datasets.append({"colour": colour, "borderDash": dash, "pointRadius": 4, "data": points})
        legend.append({"colour": colour, "name": display.isolated(line), "note": "", "url": ""})
    last = len(names) - 1
    data = {
        "datasets": datasets,
        "axis": [-0.2, last + 0.2],
        "days": [(x, names[x]) for x in sorted({0, last // 2, last}) if x >= 0],
        "y": [ticks[0], ticks[-1]],
        "step": ticks[1] - ticks[0],
        "markers": [],
    }
    cells = zip(*lines.values(), strict=True)
    rows = [
        (display.visible(name), *("–" if y is None else shown(y) for y in row))
        for name, row in zip(names, cells, strict=True)
    ]
    heads = ("", *map(display.isolated, lines))
    twin = table(heads, rows, label=display.marked(f"{label}, as a table"), stacking=False)
    return _chart(label, data, legend=legend if len(lines) > 1 else [], table=twin)


def _chart(label: str, data: dict[str, Any], **context: Any) -> SafeString:
    named = {"label": display.marked(label), "data": display.marked(json.dumps(data, ensure_ascii=False))}
    return render_to_string("admin/chart.html", {**named, **context})


def when(at: datetime) -> str:
    # strftime, because a chart has hundreds of times and Django's formatting takes 50 µs.
    local = timezone.localtime(at)
    return f"{local.day} {local:%b %Y, %H:%M}"


def _point(line: Line, point: Point, shown: Callable[[float], str]) -> dict[str, Any]:
    text = f"{line.name}, {when(point.at)}: {_value(point, shown)}{point.note}"
    more = {"error": point.error, "url": point.url}
    given = {name: value for name, value in more.items() if value}
    return {"x": point.at.timestamp(), "y": point.value, "text": text, **given}


def _value(point: Point, shown: Callable[[float], str]) -> str:
    if point.value is None:
        return "unscored"
    return shown(point.value) + (f" ± {shown(point.error)}" if point.error else "")


def _days(first: datetime, last: datetime) -> list[tuple[float, str]]:
    """The first, middle and last day of the axis."""
    middle = [first + (last - first) / 2] if last - first > timedelta(days=2) else []
    return [(at.timestamp(), date_format(timezone.localtime(at), "j M Y")) for at in (first, *middle, last)]


def _event(marker: Marker) -> dict[str, Any]:
    title = display.link(marker.url, marker.title) if marker.url else display.visible(marker.title)
    text = format_html('<span class="pl-subtle">{}</span> {}', when(marker.at), title)
    return {"colour": MARKER_COLOURS[marker.kind], "text": text}


def _rows(lines: Sequence[Line], shown: Callable[[float], str]) -> tuple[list[tuple[object, ...]], int]:
    """A row per time, newest first, a column per line, after one of the levels; and how many older rows are left out."""
    by_line = [{point.at: point for point in line.points} for line in lines]
    times = sorted({at for points in by_line for at in points}, reverse=True)
    rows: list[tuple[object, ...]] = []
    if any(line.level is not None for line in lines):
        rows.append(("baseline", *("–" if line.level is None else shown(line.level) for line in lines)))
    for at in times[:MOST_ROWS]:
        rows.append((when(at), *(_cell(points.get(at), shown) for points in by_line)))
    return rows, max(0, len(times) - MOST_ROWS)


def _cell(point: Point | None, shown: Callable[[float], str]) -> object:
    if point is None:
        return ""
    return display.link(point.url, _value(point, shown)) if point.url else _value(point, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerSource:
    """A kind of event, for users with `permission`.

    Attributes:
        find: A function of agents' primary keys, first and last moment to markers, in a constant number of queries.
    """

    permission: str
    find: Callable[[Collection[int], datetime, datetime], list[Marker]]


_sources: list[MarkerSource] = []


def add_markers(source: MarkerSource) -> None:
    """Add a kind of event to the charts; call it once, where the app registers its own admin classes."""
    _sources.append(source)


def markers_of(
    request: HttpRequest, agents: Collection[int], since: datetime, until: datetime, *, known: Iterable[Marker] = ()
) -> list[Marker]:
    """Return the newest events of these agents that the user may see, and those that are known, oldest first."""
    markers = list(known)
    for source in _sources:
        if request.user.has_perm(source.permission):
            markers += source.find(agents, since, until)
    return sorted(markers, key=lambda marker: marker.at)
