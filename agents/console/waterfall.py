"""What took how long, one below the other on one scale of time: a table whose rows carry their bars, so that it reads without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

WIDTH = 1000  # of a drawing, in its own units
THINNEST = 4
Kind = Literal["model", "tool", "attempt", "stage", "judge"]
KINDS: dict[Kind, str] = {
    "model": "model call",
    "tool": "tool",
    "attempt": "attempt",
    "stage": "stage",
    "judge": "judging",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One thing that took time.

    Attributes:
        label: What it was, ready to be shown.
        kind: Its colour, and its name in the legend.
        start: Seconds since the beginning. `seconds`: how long it took.
        is_part: Whether it happened inside the one above that is no part.
        failed: Whether it went wrong; the table says so.
        status: Its badge.
    """

    label: SafeString
    kind: Kind
    start: float
    seconds: float
    is_part: bool = False
    failed: bool = False
    status: SafeString | str = ""


def waterfall(bars: Sequence[Bar], *, title: str, total: float, remark: str = "") -> SafeString:
    """The bars on a scale from 0 to `total` seconds; nothing where there are none.

    Args:
        bars: In the order of their rows.
        title: Heading of the panel.
        total: Seconds from beginning to end; stretched where a bar reaches beyond.
        remark: A sentence below, as it is.
    """
    if not bars:
        return SafeString("")
    scale = max(total, *(bar.start + bar.seconds for bar in bars), 0.001)
    kinds = [kind for kind in KINDS if any(bar.kind == kind for bar in bars)]
    context = {
        "title": title,
        "remark": remark,
        "width": WIDTH,
        "rows": [_row(bar, scale) for bar in bars],
        "ticks": [seconds_of(scale * share / 4) for share in range(5)],
        "legend": [(kind, KINDS[kind]) for kind in kinds],
    }
    return render_to_string("admin/agents/waterfall.html", context)


def _row(bar: Bar, scale: float) -> dict[str, Any]:
    start = min(max(bar.start, 0.0) / scale * WIDTH, WIDTH - THINNEST)
    width = min(max(bar.seconds / scale * WIDTH, THINNEST), WIDTH - start)
    return {
        "label": bar.label,
        "kind": bar.kind,
        "is_part": bar.is_part,
        "failed": bar.failed,
        "status": bar.status,
        "x": f"{start:.1f}",
        "w": f"{width:.1f}",
        "start": seconds_of(max(bar.start, 0.0)),
        "took": seconds_of(bar.seconds),
    }


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
