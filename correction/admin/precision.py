"""How often people found the gate's alarms right, beside the threshold that raised them."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from correction.admin.display import number
from correction.gate.thresholds import Precision
from evaluation.admin.display import judge_badge


def precision_lines(found: Iterable[Precision], *, dimension: str, threshold: Decimal) -> SafeString:
    """A line per threshold and judge that people marked alarms of, the threshold in effect first; empty without marks."""
    ours = [row for row in found if row.dimension == dimension]
    ordered = sorted(ours, key=lambda row: (row.threshold != threshold, row.threshold, row.judge))
    return format_html_join("", "<div>{}</div>", ((_line(row),) for row in ordered))


def _line(row: Precision) -> SafeString:
    return format_html(
        "Below {}: <strong>{} of {}</strong> marked alarms were right, {} % (95 % interval {} to {} %) {}",
        number(row.threshold), row.right, row.marked, _percent(row.precision), _percent(row.low), _percent(row.high),
        judge_badge(row.judge) if row.judge else "",
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"
