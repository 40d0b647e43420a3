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
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.panels import table
from agents.kit.text.wording import day_text, time_text

COLOURS = 8  # --pl-chart-0 to --pl-chart-7; later lines repeat them, dashed
MOST_ROWS = 200  # of a table; the newest
MOST_OF_A_KIND = 30  # markers; the newest
ZOOMS = (7, 30)  # days that a button shows, where there are more
WITHOUT_POINTS = {"pointRadius": 0, "pointHitRadius": 0}
Kind = Literal["build", "persona", "config", "alert", "judge"]
MARKER_COLOURS: dict[Kind, str] = {
    "build": "--pl-subtle",
    "persona": "--pl-accent",
    "config": "--pl-warning",
    "alert": "--pl-bad",
    "judge": "--pl-warning",
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
        name: What it shows.
        points: In the order of their times.
        level: The baseline, a horizontal line in the same colour.
        means: A rolling mean: it is the line, with a band for its interval where the chart has no other, and the points are dots.
    """

    name: str
    points: Sequence[Point]
    means: Sequence[Mean] = ()
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
    markers: Sequence[Marker] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    unit: str = "",
) -> SafeString:
    """Return a chart of scores, 0 to 9, over time, with levels and markers, and the same as a table.

    Args:
        label: What the chart shows; read aloud, and the title of its table.
        since, until: Where the horizontal axis begins and ends; default: the first and last point.
        unit: Of the values, for the table's head.
    """
    first, last = _time_span(lines, since, until)
    markers_inside = [marker for marker in markers if first <= marker.at <= last]
    has_one_line = len(lines) == 1  # bands of several lines would cover each other
    datasets: list[dict[str, Any]] = []
    legend = []
    for number, line in enumerate(lines):
        style = _line_style(number)
        datasets += _datasets(line, style, first, last, with_band=has_one_line)
        legend.append(_legend_entry(line, style))
    drawing = {
        "datasets": datasets,
        "axis": [first.timestamp(), last.timestamp()],
        "days": _days(first, last),
        "y": [0, 9],
        "markers": [
            {"at": marker.at.timestamp(), "colour": MARKER_COLOURS[marker.kind], "name": marker.short}
            for marker in markers_inside
        ],
        "zone": timezone.get_current_timezone_name(),
        # Where dots surround a mean, a hint is that of the dot under the mouse, not of the nearest one.
        "exact": any(line.means for line in lines),
    }
    needs_no_legend = has_one_line and not legend[0]["note"]
    rows, number_left_out = _table_rows(lines)
    heads = ["When"]
    for line in lines:
        heads.append(display.isolated(f"{line.name}, {unit}" if unit else line.name))
    return _chart(
        label,
        drawing,
        zooms=[days for days in ZOOMS if last - first > timedelta(days=days)],
        legend=[] if needs_no_legend else legend,
        events=[_event(marker) for marker in reversed(markers_inside)],
        table=table(heads, rows, label=display.marked(f"{label}, as a table"), stacking=False),
        older=number_left_out,
    )


def _time_span(lines: Sequence[Line], since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    """Return where the horizontal axis begins and ends: as asked for, else at the first and last point, or now where there is none.

    A single moment stands in the middle of a day.
    """
    times = [point.at for line in lines for point in line.points] or [timezone.now()]
    first = since or min(times)
    last = until or max(times)
    if first == last:
        return first - timedelta(hours=12), last + timedelta(hours=12)
    return first, last


def _line_style(number: int) -> dict[str, Any]:
    """Return colour and dash of the line of this number: lines beyond the last colour repeat them, dashed."""
    dash = [7, 4] if number >= COLOURS else []
    return {"colour": f"--pl-chart-{number % COLOURS}", "borderDash": dash}


def _datasets(
    line: Line,
    style: Mapping[str, Any],
    first: datetime,
    last: datetime,
    *,
    with_band: bool,
) -> list[dict[str, Any]]:
    """Return what Chart.js draws of a line: its points, its rolling mean (`with_band`: and its interval) and its level.

    The order matters: the upper edge of the band fills down to the dataset before it.
    """
    points = [_point(line, point) for point in line.points]
    if line.means:
        points_style: dict[str, Any] = {"showLine": False, "pointRadius": 3, "pointHitRadius": 6}
    else:
        points_style = {"pointRadius": 4}
    datasets: list[dict[str, Any]] = [{**style, "data": points, **points_style}]
    if line.means:
        datasets.append({**style, **WITHOUT_POINTS, "data": _mean_points(line.means)})
    if line.means and with_band:
        lower = [_xy(mean.at, mean.low) for mean in line.means]
        upper = [_xy(mean.at, mean.high) for mean in line.means]
        edge = {"colour": style["colour"], **WITHOUT_POINTS, "edge": True}
        datasets.append({**edge, "fill": False, "data": lower})
        datasets.append({**edge, "fill": "-1", "data": upper})
    if line.level is not None:
        level = [_xy(first, line.level), _xy(last, line.level)]
        datasets.append({"colour": style["colour"], "borderDash": [2, 4], **WITHOUT_POINTS, "data": level})
    return datasets


def _mean_points(means: Sequence[Mean]) -> list[dict[str, float | None]]:
    """Return the points of a rolling mean; before one that restarts the line has a gap."""
    points = []
    for mean in means:
        if mean.starts:
            points.append(_xy(mean.at, None))
        points.append(_xy(mean.at, mean.value))
    return points


def _xy(at: datetime, value: float | None) -> dict[str, float | None]:
    return {"x": at.timestamp(), "y": value}


def _legend_entry(line: Line, style: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line's entry in the legend, with its baseline where it has one."""
    note: SafeString | str = ""
    if line.level is not None:
        note = format_html('<span class="pl-subtle">baseline {}</span>', f"{line.level:.1f}")
    return {"colour": style["colour"], "name": display.isolated(line.name), "note": note}


def steps(
    lines: Mapping[str, Sequence[float | None]],
    *,
    names: Sequence[str],
    label: str,
    ticks: Sequence[float] = (0, 0.5, 1),
    format_value: Callable[[float], str] = "{:.2f}".format,
) -> SafeString:
    """Return a chart of lines over steps that have names instead of times, such as rounds, and a table with a row per step.

    The axis names the first, the middle and the last step. One line alone needs no legend.

    Args:
        lines: By name; a value for each step, None where there is none: the line has a gap.
        names: Of the steps, in order.
        ticks: Of the vertical axis, which goes from the first to the last.
        format_value: Writes a value in hints and in the table.
    """
    datasets = []
    legend = []
    for number, (line, values) in enumerate(lines.items()):
        style = _line_style(number)
        points = []
        for x, (name, value) in enumerate(zip(names, values, strict=True)):
            hint = "" if value is None else f"{line}, {name}: {format_value(value)}"
            points.append({"x": x, "y": value, "text": hint})
        datasets.append({**style, "pointRadius": 4, "data": points})
        legend.append({"colour": style["colour"], "name": display.isolated(line), "note": ""})
    last = len(names) - 1
    labelled_steps = sorted({0, last // 2, last}) if names else []
    drawing = {
        "datasets": datasets,
        "axis": [-0.2, last + 0.2],
        "days": [(x, names[x]) for x in labelled_steps],
        "y": [ticks[0], ticks[-1]],
        "step": ticks[1] - ticks[0],
        "markers": [],
    }
    rows = []
    for name, values_of_step in zip(names, zip(*lines.values(), strict=True), strict=True):
        cells = ["–" if value is None else format_value(value) for value in values_of_step]
        rows.append((display.visible(name), *cells))
    heads = ["", *(display.isolated(line) for line in lines)]
    as_table = table(heads, rows, label=display.marked(f"{label}, as a table"), stacking=False)
    return _chart(label, drawing, legend=legend if len(lines) > 1 else [], table=as_table)


def _chart(label: str, drawing: dict[str, Any], **context: Any) -> SafeString:
    """Return the HTML of a chart; `drawing` is what `charts.js` gives to Chart.js."""
    data = display.marked(json.dumps(drawing, ensure_ascii=False))
    return render_to_string("admin/chart.html", {"label": display.marked(label), "data": data, **context})


SPARK_WIDTH, SPARK_HEIGHT = 160, 40


def sparkline(before: Sequence[float], now: Sequence[float], *, label: str, event: str) -> SafeString:
    """Return a small drawing of scores before and after an event: a vertical line with its name between the two.

    It is SVG, not a chart: a page has one in each of many rows, and they have no hints.

    Args:
        before, now: Scores, 0 to 9, oldest first; at least one in both together.
        label: What it shows, read aloud.
    """
    number = len(before) + len(now)
    step = SPARK_WIDTH / (number + 1)
    points = []
    for position, score in enumerate([*before, *now], start=1):
        points.append(f"{position * step:.1f},{SPARK_HEIGHT - 2 - score / 9 * (SPARK_HEIGHT - 16):.1f}")
    context = {
        "width": SPARK_WIDTH,
        "height": SPARK_HEIGHT,
        "label": display.marked(label),
        "event": display.marked(display.shortened(event, 18)),
        "event_x": f"{(len(before) + 0.5) * step:.1f}",
        # The name of the event stands on the side with more room.
        "is_left": len(before) > len(now),
        "before": points[: len(before)],
        "now": points[len(before) :],
    }
    return render_to_string("admin/sparkline.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with its interval: a row of `intervals`.

    Attributes:
        text: The numbers, for people, beside the drawing.
        tone: How sure it is: ``good``, ``bad``; ``plain`` where nothing is claimed.
    """

    name: str
    low: float
    value: float
    high: float
    text: str
    tone: display.Tone = "plain"


WIDEST_INTERVAL = 4.0  # what lies beyond is cut off, so that one wild interval does not flatten the others


def intervals(rows: Sequence[Interval], *, label: str, left: str, right: str) -> SafeString:
    """Return a drawing of intervals on both sides of 0, one in each row; empty without rows.

    Args:
        label: What it shows, read aloud.
        left, right: What it means to lie below 0, and above.
    """
    if not rows:
        return SafeString("")
    widest = max(max(-row.low, row.high, 0.0) for row in rows)
    reach = min(max(widest, 1.0), WIDEST_INTERVAL)

    def x_of(value: float) -> str:
        inside = max(-reach, min(reach, value))
        return f"{100 + 98 * inside / reach:.1f}"

    drawn = []
    for row in rows:
        drawn.append({"row": row, "low": x_of(row.low), "value": x_of(row.value), "high": x_of(row.high)})
    context = {"rows": drawn, "label": display.marked(label), "left": left, "right": right}
    return render_to_string("admin/intervals.html", context)


def _point(line: Line, point: Point) -> dict[str, Any]:
    """Return a point as `charts.js` takes it, with its hint, and its error and page where it has them."""
    drawn: dict[str, Any] = {
        "x": point.at.timestamp(),
        "y": point.value,
        "text": f"{line.name}, {time_text(point.at)}: {_value_text(point)}{point.note}",
    }
    if point.error:
        drawn["error"] = point.error
    if point.url:
        drawn["url"] = point.url
    return drawn


def _value_text(point: Point) -> str:
    """Return the value of a point with its error, as ``7.1 ± 0.4``."""
    if point.value is None:
        return "unscored"
    if point.error:
        return f"{point.value:.1f} ± {point.error:.1f}"
    return f"{point.value:.1f}"


def _days(first: datetime, last: datetime) -> list[tuple[float, str]]:
    """Return the first and last day of the axis, and between them the middle one where the axis is longer than two days."""
    times = [first, last]
    if last - first > timedelta(days=2):
        times.insert(1, first + (last - first) / 2)
    return [(at.timestamp(), day_text(at)) for at in times]


def _event(marker: Marker) -> dict[str, Any]:
    """Return the line of text below the chart that says what a marker is."""
    title = display.link(marker.url, marker.title) if marker.url else display.visible(marker.title)
    text = format_html('<span class="pl-subtle">{}</span> {}', time_text(marker.at), title)
    return {"colour": MARKER_COLOURS[marker.kind], "text": text}


def _table_rows(lines: Sequence[Line]) -> tuple[list[tuple[object, ...]], int]:
    """Return the rows of a chart's table, and how many older rows are left out.

    A row holds the values of all lines at one time, newest first. A row of the levels comes before them, where a line has one.
    """
    points_by_time = [{point.at: point for point in line.points} for line in lines]
    all_times: set[datetime] = set()
    for points in points_by_time:
        all_times.update(points)
    times = sorted(all_times, reverse=True)
    rows: list[tuple[object, ...]] = []
    if any(line.level is not None for line in lines):
        levels = ["–" if line.level is None else f"{line.level:.1f}" for line in lines]
        rows.append(("baseline", *levels))
    for at in times[:MOST_ROWS]:
        cells = [_cell(points.get(at)) for points in points_by_time]
        rows.append((time_text(at), *cells))
    return rows, max(0, len(times) - MOST_ROWS)


def _cell(point: Point | None) -> object:
    """Return the value of a point, linked to its page where it has one; empty without a point."""
    if point is None:
        return ""
    text = _value_text(point)
    return display.link(point.url, text) if point.url else text


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerSource:
    """A kind of events that charts mark, for users with `permission`.

    Attributes:
        find: A function of agents' primary keys, first and last moment to markers, in a constant number of queries.
    """

    permission: str
    find: Callable[[Collection[int], datetime, datetime], list[Marker]]


_marker_sources: list[MarkerSource] = []


def add_markers(source: MarkerSource) -> None:
    """Add a kind of event to the charts; call it once, where the app registers its own admin classes."""
    _marker_sources.append(source)


def markers_of(
    request: HttpRequest, agents: Collection[int], since: datetime, until: datetime, *, known: Iterable[Marker] = ()
) -> list[Marker]:
    """Return the events of these agents from `since` to `until` that the user may see, and those in `known`, oldest first.

    Each source gives its newest, at most `MOST_OF_A_KIND`.
    """
    markers = list(known)
    for source in _marker_sources:
        if request.user.has_perm(source.permission):
            markers += source.find(agents, since, until)
    return sorted(markers, key=lambda marker: marker.at)
