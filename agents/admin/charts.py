"""Charts of the console, drawn on the server: SVG that stretches to its box, each with its numbers as a table.

All words of a chart are HTML beside the drawing, so that they stay legible in every width. Colours: `charts.css`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from agents.admin import chart_scales as scales
from agents.admin import display
from agents.admin.chart_scales import HEIGHT, WIDTH
from agents.admin.chart_values import Bar as Bar
from agents.admin.chart_values import Line as Line
from agents.admin.chart_values import Marker as Marker
from agents.admin.chart_values import Point as Point

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
        return SPARK_EDGE + room * (1 - scales.share(value, low, high))

    spots = [(at(number), None if value is None else height(value)) for number, value in enumerate(values)]
    drawn = [(x, y) for x, y in spots if y is not None]
    told = ", ".join("not measured" if value is None else shown(value) for value in values)
    context = {
        "title": display.marked(f"{label}: {told}" if values else f"{label}: not measured"),
        "size": (SPARK_WIDTH, SPARK_HEIGHT),
        "stretches": scales.stretches(spots),
        "last": (scales.units(drawn[-1][0]), scales.units(drawn[-1][1])) if drawn else None,
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
    first, last = _span(lines, markers, since, until)

    def x(at: datetime | float) -> float:
        return WIDTH * scales.share(scales.place(at), first, last) if last > first else WIDTH / 2

    def y(value: float) -> float:
        return HEIGHT * (1 - scales.share(value, low, high))

    inside = [marker for marker in markers if first <= scales.place(marker.at) <= last]
    context = {
        "label": display.marked(label),
        "size": (WIDTH, HEIGHT),
        "grid": scales.grid(low, high),
        "lines": [_line(line, number, x, y, shown) for number, line in enumerate(lines)],
        "markers": [{"x": scales.units(x(found.at)), **_words(found)} for found in inside],
        "x_labels": x_labels or scales.axis_days(first, last),
        "linked": any(found.url for found in inside) or any(point.url for line in lines for point in line.points),
        "table": _table(lines, unit, shown),
    }
    return render_to_string("admin/charts/lines.html", context)


def bars(
    found: Sequence[Bar],
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
    highest = scales.round_up(max((sum(bar.values) for bar in found), default=0))
    width = WIDTH / max(1, len(found))
    drawn = []
    for number, bar in enumerate(found):
        below = 0.0
        for kind, value in enumerate(bar.values):
            tall = HEIGHT * value / highest
            below += tall
            if value:
                named = f"{series[kind]}: " if series[kind] else ""
                drawn.append({
                    "x": scales.units(number * width + width * 0.08), "width": scales.units(width * 0.84),
                    "y": scales.units(HEIGHT - below), "height": scales.units(tall),
                    "series": kind % COLOURS, "url": bar.url,
                    "title": display.marked(f"{bar.label}: {named}{shown(value)} {unit}".strip()),
                })  # fmt: skip
    context = {
        "label": display.marked(label),
        "size": (WIDTH, HEIGHT),
        "grid": scales.grid(0, highest, steps=2),
        "bars": drawn,
        "threshold": None if threshold is None else scales.units(WIDTH * scales.share(threshold, x_low, x_high)),
        "threshold_title": "" if threshold is None else f"{threshold_name} {threshold:g}",
        "x_low": x_low,
        "x_high": x_high,
        "x_labels": [display.visible(text) for text in x_labels or scales.ends([bar.label for bar in found])],
        "legend": [
            {"series": kind % COLOURS, "name": display.visible(name)} for kind, name in enumerate(series) if name
        ],
        "linked": any(bar.url for bar in found),
        "unit": unit,
        "series": [display.visible(name) for name in series],
        "rows": [(display.visible(bar.label), bar.url, [shown(value) for value in bar.values]) for bar in found],
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
            "x": scales.units(x(point.at)),
            "y": scales.units(y(point.value)),
            "title": display.marked(point.title or f"{line.name}, {scales.when(point.at)}: {shown(point.value)}"),
            "url": point.url,
            "hollow": point.hollow,
            "ends": None
            if not point.error
            else (scales.units(y(point.value + point.error)), scales.units(y(point.value - point.error))),
        }
        for point in line.points
        if point.value is not None
    ]
    return {
        "series": number % COLOURS,
        "again": number >= COLOURS,
        "name": display.isolated(line.name),
        "note": line.note,
        "url": line.url,
        "stretches": scales.stretches(spots),
        "dots": dots,
        "level": None if line.level is None else scales.units(y(line.level)),
        "level_title": ""
        if line.level is None
        else f"{display.marked(line.name)}, {line.level_name}: {shown(line.level)}",
        "level_text": "" if line.level is None else f"{line.level_name} {shown(line.level)}",
    }


def _table(lines: Sequence[Line], unit: str, shown: Callable[[float], str]) -> dict[str, Any]:
    """A row per time, newest first, a column per line; what could not be measured says so."""
    by_line = [{scales.place(point.at): point for point in line.points} for line in lines]
    times = sorted({at for points in by_line for at in points}, reverse=True)
    rows = []
    for at in times[:MOST_ROWS]:
        cells = [points.get(at) for points in by_line]
        time = next(scales.when(cell.at) for cell in cells if cell is not None)
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


def _words(marker: Marker) -> dict[str, Any]:
    time = scales.when(marker.at)
    title = display.marked(f"{time}: {marker.title}")
    return {"kind": marker.kind, "when": time, "title": title, "text": display.visible(marker.title), "url": marker.url}


def _span(
    lines: Sequence[Line], markers: Sequence[Marker], since: datetime | float | None, until: datetime | float | None
) -> tuple[float, float]:
    places = [scales.place(point.at) for line in lines for point in line.points] or [
        scales.place(found.at) for found in markers
    ]
    first = scales.place(since) if since is not None else min(places, default=0.0)
    return first, scales.place(until) if until is not None else max(places, default=0.0)
