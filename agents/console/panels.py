"""Parts of pages that every app uses: a table from rows, and the bars of what took how long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    shown = [list(zip(heads, row, strict=True)) for row in rows]
    if not shown:
        return SafeString("")
    return render_to_string("admin/table.html", {"heads": heads, "rows": shown, "label": label, "stacking": stacking})


def facts(*rows: tuple[str, object]) -> SafeString:
    """Names with their values, texts or HTML, side by side."""
    shown = format_html_join("", "<div><dt>{}</dt><dd>{}</dd></div>", rows)
    return format_html('<dl class="pl-facts">{}</dl>', shown)


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
