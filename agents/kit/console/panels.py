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
    """A table whose first cell names its row; empty without rows.

    Args:
        heads: Of the columns. rows: a cell for each head, texts or HTML.
        label: What it holds; read aloud.
        stacking: On a phone its cells stand one below the other, each with its head; else the table scrolls sideways.
    """
    _, *labels = [striptags(head if isinstance(head, str) else str(head)) for head in heads]
    shown = [_row(row, labels) for row in rows]
    if not shown:
        return SafeString("")
    return render_to_string("admin/table.html", {"heads": heads, "rows": shown, "label": label, "stacking": stacking})


def _row(cells: Sequence[object], labels: Sequence[str]) -> SafeString:
    """Return a row of a table; without a template, which takes five times as long for a chart's hundreds of rows."""
    name, *others = cells
    values = format_html_join("", '<td data-label="{}">{}</td>', zip(labels, others, strict=True))
    return format_html('<tr><th scope="row">{}</th>{}</tr>', name, values)


def facts(*rows: tuple[str, object]) -> SafeString:
    """Names with their values, texts or HTML, side by side."""
    shown = format_html_join("", "<div><dt>{}</dt><dd>{}</dd></div>", rows)
    return format_html('<dl class="pl-facts">{}</dl>', shown)


Kind = Literal["model", "tool", "attempt", "stage", "judge"]
KINDS: dict[Kind, str] = {
    "model": "model call",
    "tool": "tool",
    "attempt": "attempt",
    "stage": "stage",
    "judge": "judging",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took time.

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
    """A table of the spans, each with its bar (the theme's progress) on a scale from 0 to `total` seconds; empty without spans.

    Args:
        total: Seconds from beginning to end; stretched where a span reaches beyond.
        remark: A sentence below.
    """
    if not spans:
        return SafeString("")
    scale = max(total, *(span.start + span.seconds for span in spans), 0.001)
    rows = [
        (
            format_html(
                '<span class="{}">{} {}</span>',
                "pl-part" if span.is_part else "",
                span.label,
                span.problem or span.status,
            ),
            _bar(span, scale),
            seconds_of(max(span.start, 0.0)),
            seconds_of(span.seconds),
        )
        for span in spans
    ]
    context = {
        "title": title,
        "remark": remark,
        "table": table(("What", "When", "From", "Took"), rows, label=title),
        "legend": [(kind, name) for kind, name in KINDS.items() if any(span.kind == kind for span in spans)],
    }
    return render_to_string("admin/waterfall.html", context)


def _bar(span: Span, scale: float) -> SafeString:
    before = min(max(span.start, 0.0) / scale * 100, 99.5)
    width = min(max(span.seconds / scale * 100, 0.5), 100 - before)
    items = [
        {"value": f"{before:.1f}", "progress_class": "pl-took-before"},
        {"value": f"{width:.1f}", "progress_class": f"pl-took-{'failed' if span.problem else span.kind}"},
    ]
    return render_to_string("unfold/components/progress.html", {"items": items})


def seconds_of(value: float) -> str:
    """A span of time as people read it: ``3 ms``, ``0.81 s``, ``12.4 s``, ``2 min 5 s``."""
    if value < 0.0005:
        return "0"
    if value < 0.1:
        return f"{value * 1000:.0f} ms"
    if value < 10:
        return f"{value:.2f} s"
    if value < 120:
        return f"{value:.1f} s"
    return f"{int(value) // 60:,} min {int(value) % 60} s"
