"""Charts of the console, drawn on the server: SVG that stretches to its box, each with its numbers as a table.

All words of a chart are HTML beside the drawing, so that they stay legible in every width. Colours: `charts.css`. Every
chart over time shows markers of what happened to its agents; apps add kinds of them with `add_markers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.dateformat import format as date_format
from django.utils.safestring import SafeString

from agents.console import display
from agents.models import PersonaVersion

WIDTH, HEIGHT = 1000, 200  # units of the drawing; its box decides how large they are
_DAY = 86400.0


def stretches(spots: Sequence[tuple[float, float | None]]) -> list[str]:
    """The points between gaps, each stretch as a polyline takes it."""
    lines: list[list[str]] = [[]]
    for x, y in spots:
        if y is None:
            lines.append([])
        else:
            lines[-1].append(f"{units(x)},{units(y)}")
    return [" ".join(line) for line in lines if len(line) > 1]


def grid(low: float, high: float, steps: int = 3) -> list[dict[str, str]]:
    """The lines of the vertical axis, from the top."""
    step = (high - low) / steps
    return [{"y": units(HEIGHT * n / steps), "text": f"{high - n * step:,g}"} for n in range(steps + 1)]


def axis_days(first: float, last: float) -> list[str]:
    """First, middle and last day of an axis of time; of numbered places the first and last."""
    if first < 365 * _DAY:  # numbered places, not times
        return ends([f"{first:g}", f"{last:g}"])
    middle = [(first + last) / 2] if last - first > 2 * _DAY else []
    zone = timezone.get_current_timezone()
    return ends([date_format(datetime.fromtimestamp(at, zone), "j M Y") for at in (first, *middle, last)])


def ends(labels: Sequence[str]) -> list[str]:
    """What fits under an axis: the first and the last of more than three labels."""
    if len(labels) <= 3:
        return list(dict.fromkeys(labels))
    return [labels[0], labels[-1]]


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
        name: What it shows; `note` (HTML such as a badge) follows it in the legend, `url` is its page.
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


SPARK_WIDTH, SPARK_HEIGHT, SPARK_EDGE = 100, 24, 3
COLOURS = 8  # .pl-series-0 to .pl-series-7; later lines repeat them, dashed
MOST_ROWS = 200  # of a table; the newest


def sparkline(
    values: Sequence[float | None],
    *,
    label: str,
    low: float = 0,
    high: float = 9,
    shown: Callable[[float], str] = "{:.1f}".format,
) -> SafeString:
    """A line the size of a word; None is a gap. `label` says what it shows, its title has every value."""
    step = (SPARK_WIDTH - 2 * SPARK_EDGE) / max(1, len(values) - 1)
    room = SPARK_HEIGHT - 2 * SPARK_EDGE

    def at(number: int) -> float:
        return SPARK_EDGE + number * step if len(values) > 1 else SPARK_WIDTH / 2

    def height(value: float) -> float:
        return SPARK_EDGE + room * (1 - share(value, low, high))

    spots = [(at(number), None if value is None else height(value)) for number, value in enumerate(values)]
    drawn = [(x, y) for x, y in spots if y is not None]
    words = ", ".join("not measured" if value is None else shown(value) for value in values) or "not measured"
    context = {
        "title": display.marked(f"{label}: {words}"),
        "size": (SPARK_WIDTH, SPARK_HEIGHT),
        "stretches": stretches(spots),
        "last": (units(drawn[-1][0]), units(drawn[-1][1])) if drawn else None,
    }
    return render_to_string("admin/charts/sparkline.html", context)


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    low: float = 0,
    high: float = 9,
    markers: Sequence[Marker] = (),
    since: datetime | float | None = None,
    until: datetime | float | None = None,
    x_labels: Sequence[str] = (),
    unit: str = "",
    shown: Callable[[float], str] = "{:.2f}".format,
) -> SafeString:
    """Lines over time (or over numbered places), with levels and markers, and the same as a table.

    Args:
        label: What the chart shows; read aloud, and the title of its table.
        since, until: Where the horizontal axis begins and ends; default: the first and last point.
        x_labels: Written under the axis at equal distances; default: the first, middle and last day.
        unit: Of the values, for the table's head.
        shown: How a value is written in titles and in the table.
    """
    places = [place(point.at) for line in lines for point in line.points] or [place(marker.at) for marker in markers]
    first = place(since) if since is not None else min(places, default=0.0)
    last = place(until) if until is not None else max(places, default=0.0)

    def x(at: datetime | float) -> float:
        return WIDTH * share(place(at), first, last) if last > first else WIDTH / 2

    def y(value: float) -> float:
        return HEIGHT * (1 - share(value, low, high))

    inside = [
        {
            "x": units(x(marker.at)),
            "kind": marker.kind,
            "when": when(marker.at),
            "title": display.marked(f"{when(marker.at)}: {marker.title}"),
            "text": display.visible(marker.title),
            "url": marker.url,
        }
        for marker in markers
        if first <= place(marker.at) <= last
    ]
    context = {
        "label": display.marked(label),
        "size": (WIDTH, HEIGHT),
        "grid": grid(low, high),
        "lines": [_line(line, number, x, y, shown) for number, line in enumerate(lines)],
        "markers": inside,
        "x_labels": x_labels or axis_days(first, last),
        "linked": any(marker["url"] for marker in inside) or any(point.url for line in lines for point in line.points),
        "table": _table(lines, unit, shown),
    }
    return render_to_string("admin/charts/lines.html", context)


def bars(
    columns: Sequence[Bar],
    *,
    label: str,
    series: Sequence[str] = ("",),
    threshold: float | None = None,
    threshold_name: str = "threshold",
    x_low: float = 0,
    x_high: float = 9,
    unit: str = "",
    x_labels: Sequence[str] = (),
    shown: Callable[[float], str] = "{:,.0f}".format,
) -> SafeString:
    """Stacked bars, or a histogram with a threshold, and the same as a table.

    Args:
        label: What the chart shows; read aloud, and the title of its table.
        series: What the values of each bar are, from below; their colours are those of lines.
        threshold: Where a vertical line stands on a horizontal axis from `x_low` (left edge of the first bar) to `x_high`
            (right edge of the last). The drawing carries ``data-low`` and ``data-high``, so that a script can move it.
        x_labels: Written under the axis at equal distances; default: the first and last bar's labels.
    """
    highest = round_up(max((sum(bar.values) for bar in columns), default=0))
    width = WIDTH / max(1, len(columns))
    drawn = []
    for number, bar in enumerate(columns):
        below = 0.0
        for kind, value in enumerate(bar.values):
            tall = HEIGHT * value / highest
            below += tall
            if value:
                named = f"{series[kind]}: " if series[kind] else ""
                drawn.append({
                    "x": units(number * width + width * 0.08), "width": units(width * 0.84),
                    "y": units(HEIGHT - below), "height": units(tall),
                    "series": kind % COLOURS, "url": bar.url,
                    "title": display.marked(f"{bar.label}: {named}{shown(value)} {unit}".strip()),
                })  # fmt: skip
    context = {
        "label": display.marked(label),
        "size": (WIDTH, HEIGHT),
        "grid": grid(0, highest, steps=2),
        "bars": drawn,
        "threshold": None if threshold is None else units(WIDTH * share(threshold, x_low, x_high)),
        "threshold_title": "" if threshold is None else f"{threshold_name} {threshold:g}",
        "x_low": x_low,
        "x_high": x_high,
        "x_labels": [display.visible(text) for text in x_labels or ends([bar.label for bar in columns])],
        "legend": [
            {"series": kind % COLOURS, "name": display.visible(name)} for kind, name in enumerate(series) if name
        ],
        "linked": any(bar.url for bar in columns),
        "unit": unit,
        "series": [display.visible(name) for name in series],
        "rows": [(display.visible(bar.label), bar.url, [shown(value) for value in bar.values]) for bar in columns],
    }
    return render_to_string("admin/charts/bars.html", context)


def _line(
    line: Line,
    number: int,
    x: Callable[[datetime | float], float],
    y: Callable[[float], float],
    shown: Callable[[float], str],
) -> dict[str, Any]:
    spots = [(x(point.at), None if point.value is None else y(point.value)) for point in line.points]
    dots = [
        {
            "x": units(x(point.at)),
            "y": units(y(point.value)),
            "title": display.marked(point.title or f"{line.name}, {when(point.at)}: {shown(point.value)}"),
            "url": point.url,
            "hollow": point.hollow,
            "ends": tuple(units(y(point.value + sign * point.error)) for sign in (1, -1)) if point.error else None,
        }
        for point in line.points
        if point.value is not None
    ]
    level: dict[str, str] = {}
    if line.level is not None:
        name, value = line.level_name, shown(line.level)
        title = f"{display.marked(line.name)}, {name}: {value}"
        level = {"level": units(y(line.level)), "level_title": title, "level_text": f"{name} {value}"}
    return {
        "series": number % COLOURS,
        "again": number >= COLOURS,
        "name": display.isolated(line.name),
        "note": line.note,
        "url": line.url,
        "stretches": stretches(spots),
        "dots": dots,
        **level,
    }


def _table(lines: Sequence[Line], unit: str, shown: Callable[[float], str]) -> dict[str, Any]:
    """A row per time, newest first, a column per line; what could not be measured says so."""
    by_line = [{place(point.at): point for point in line.points} for line in lines]
    times = sorted({at for points in by_line for at in points}, reverse=True)
    rows = []
    for at in times[:MOST_ROWS]:
        cells = [points.get(at) for points in by_line]
        time = next(when(cell.at) for cell in cells if cell is not None)
        rows.append((time, [_cell(cell, shown) for cell in cells]))
    levels = [None if line.level is None else shown(line.level) for line in lines]
    return {
        "unit": unit,
        "names": [display.isolated(line.name) for line in lines],
        "rows": rows,
        "older": max(0, len(times) - MOST_ROWS),
        "levels": levels if any(levels) else [],
        "level_name": next((line.level_name for line in lines if line.level is not None), ""),
    }


def _cell(point: Point | None, shown: Callable[[float], str]) -> dict[str, str]:
    if point is None:
        return {"text": "", "url": ""}
    text = "not measured" if point.value is None else shown(point.value)
    return {"text": text if not point.error else f"{text} ± {shown(point.error)}", "url": point.url}


MOST_OF_A_KIND = 30  # the newest


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


def markers_of(request: HttpRequest, agents: Collection[int], since: datetime, until: datetime) -> list[Marker]:
    """The newest events of these agents that the user may see, oldest first."""
    allowed = [source for source in _sources if request.user.has_perm(source.permission)]
    markers = [marker for source in allowed for marker in source.find(agents, since, until)]
    return sorted(markers, key=lambda marker: place(marker.at))


def persona_edits(agents: Collection[int], since: datetime, until: datetime) -> list[Marker]:
    """Each version of a persona after the first."""
    versions = PersonaVersion.objects.filter(agent__in=agents, created_at__range=(since, until), number__gt=1)
    rows = versions.select_related("agent", "created_by").order_by("-created_at", "-pk")[:MOST_OF_A_KIND]
    markers = []
    for row in rows:
        note = f", {row.note}" if row.note else ""
        by = f" by {row.created_by.get_username()}" if row.created_by is not None else ""
        title = f"{row.agent.display_name}: persona version {row.number}{note}{by}"
        url = f"{reverse('admin:agents_agent_versions', args=[row.agent_id])}?before={row.number + 1}"
        markers.append(Marker(at=row.created_at, title=title, url=url, kind="persona"))
    return markers


add_markers(MarkerSource(permission="agents.view_personaversion", find=persona_edits))
