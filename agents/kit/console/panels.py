"""Parts of pages that every app uses: a table from rows, and the bars of what took how long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from django.template.defaultfilters import striptags
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString


def table(
    heads: Sequence[object], rows: Iterable[Sequence[object]], *, label: str, stacking: bool = True
) -> SafeString:
    """Return a table in which the first cell of a row names it; empty without rows.

    Args:
        heads: Of the columns. rows: a cell for each head, texts or HTML.
        label: What it holds; read aloud.
        stacking: On a phone its cells stand one below the other, each with its head; else the table scrolls sideways.
    """
    labels = [striptags(str(head)) for head in heads[1:]]
    rendered = [_row(row, labels) for row in rows]
    if not rendered:
        return SafeString("")
    context = {"heads": heads, "rows": rendered, "label": label, "stacking": stacking}
    return render_to_string("admin/table.html", context)


def _row(cells: Sequence[object], labels: Sequence[str]) -> SafeString:
    """Return a row of a table; without a template, which takes five times as long for a chart's hundreds of rows."""
    name, *others = cells
    values = format_html_join("", '<td data-label="{}">{}</td>', zip(labels, others, strict=True))
    return format_html('<tr><th scope="row">{}</th>{}</tr>', name, values)


def facts(*rows: tuple[str, object]) -> SafeString:
    """Return names with their values, texts or HTML, side by side."""
    rows_html = format_html_join("", "<div><dt>{}</dt><dd>{}</dd></div>", rows)
    return format_html('<dl class="pl-facts">{}</dl>', rows_html)


Kind = Literal["model", "tool", "attempt", "stage", "judge"]
KIND_LABELS: dict[Kind, str] = {
    "model": "model call",
    "tool": "tool",
    "attempt": "attempt",
    "stage": "stage",
    "judge": "judging",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A step of a turn or session that took time.

    Attributes:
        label: What it was, ready to be shown.
        kind: Its colour, and its name in the legend.
        start: Seconds since the beginning. `seconds`: how long it took.
        is_part: Whether it happened inside the one above that is no part.
        problem: The badge of what went wrong. `status`: another badge.
    """

    label: SafeString
    kind: Kind
    start: float
    seconds: float
    is_part: bool = False
    problem: SafeString | str = ""
    status: SafeString | str = ""


def waterfall(spans: Sequence[Span], *, title: str, total: float, remark: str = "") -> SafeString:
    """Return a table of spans, each with its bar on a scale from 0 to `total` seconds; empty without spans.

    Args:
        total: Seconds from beginning to end; stretched where a span reaches beyond.
        remark: A sentence below.
    """
    if not spans:
        return SafeString("")
    last_end = max(span.start + span.seconds for span in spans)
    scale = max(total, last_end, 0.001)
    rows = []
    for span in spans:
        css_class = "pl-part" if span.is_part else ""
        name = format_html('<span class="{}">{} {}</span>', css_class, span.label, span.problem or span.status)
        began = seconds_of(max(span.start, 0.0))
        rows.append((name, _bar(span, scale), began, seconds_of(span.seconds)))
    kinds = {span.kind for span in spans}
    context = {
        "title": title,
        "remark": remark,
        "table": table(("What", "When", "From", "Took"), rows, label=title),
        "legend": [(kind, label) for kind, label in KIND_LABELS.items() if kind in kinds],
    }
    return render_to_string("admin/waterfall.html", context)


def _bar(span: Span, scale: float) -> SafeString:
    """Return the bar of a span (the theme's progress) on a scale of so many seconds: an empty part before it, then its own.

    It is at least half a percent wide so that it can be seen, and ends within the scale.
    """
    percent_before = min(max(span.start, 0.0) / scale * 100, 99.5)
    percent_wide = min(max(span.seconds / scale * 100, 0.5), 100 - percent_before)
    colour = "failed" if span.problem else span.kind
    items = [
        {"value": f"{percent_before:.1f}", "progress_class": "pl-took-before"},
        {"value": f"{percent_wide:.1f}", "progress_class": f"pl-took-{colour}"},
    ]
    return render_to_string("unfold/components/progress.html", {"items": items})


def seconds_of(value: float) -> str:
    """Return a span of time as people read it: ``3 ms``, ``0.81 s``, ``12.4 s``, ``2 min 5 s``."""
    if value < 0.0005:
        return "0"
    if value < 0.1:
        return f"{value * 1000:.0f} ms"
    if value < 10:
        return f"{value:.2f} s"
    if value < 120:
        return f"{value:.1f} s"
    return f"{int(value) // 60:,} min {int(value) % 60} s"
