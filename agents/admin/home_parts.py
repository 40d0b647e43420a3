"""How parts of the console's first page look: cards, steps of the set-up, what waits for somebody, short lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models import Model, QuerySet
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display

FAILURE_DAYS = 7  # of what a list shows as gone wrong
MOST_COUNTED = 100  # of what waits: beyond that it is "more than 100"


def card(
    title: str,
    *,
    figure: object,
    unit: str = "",
    lines: Iterable[object] = (),
    tone: display.Tone = "plain",
    wide: bool = False,
) -> SafeString:
    """One number with its unit, and sentences below it; `tone` colours its edge.

    Args:
        figure: A number, best as a link to the list behind it (`number_link`).
        lines: HTML or texts; empty ones are left out.
        wide: It takes two places where there is room.
    """
    kept = [line for line in lines if line not in ("", None)]
    context = {"title": title, "figure": figure, "unit": unit, "lines": kept, "tone": tone, "wide": wide}
    return render_to_string("admin/home/card.html", context)


def step(title: str, text: object, *, command: str = "", url: str = "", label: str = "") -> SafeString:
    """Something that is missing, with the command or the page that mends it."""
    context = {"title": title, "text": text, "command": command, "url": url, "label": label}
    return render_to_string("admin/home/step.html", context)


def waiting(number: int, one: str, many: str, url: str) -> SafeString | None:
    """Something that only a person can do, such as ``3 drift alerts``; None when there is none."""
    if not number:
        return None
    shown = f"more than {MOST_COUNTED}" if number > MOST_COUNTED else f"{number}"
    label = format_html("<strong>{}</strong> {}", shown, one if number == 1 else many)
    return format_html('<a class="pl-waiting" href="{}">{}</a>', url, label)


def listing(
    title: str,
    *,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    wrong: Sequence[Sequence[object]] = (),
    more: Iterable[tuple[str, str]] = (),
    empty: str = "",
    command: str = "",
    note: object = "",
) -> SafeString:
    """A short table of the newest rows, and of what went wrong lately.

    Args:
        more: URLs and labels of the lists behind it.
        empty: What to say where there is no row, with the `command` that makes one.
    """
    groups = [("Newest", rows), (f"Went wrong in the last {FAILURE_DAYS} days", wrong)]
    context = {
        "title": title,
        "heads": heads,
        "groups": [(name, found) for name, found in groups if found],
        "more": list(more),
        "empty": empty,
        "command": command,
        "note": note,
    }
    return render_to_string("admin/home/listing.html", context)


def number_link(url: str, number: object) -> SafeString:
    """A number that leads to what was counted."""
    return format_html('<a class="pl-count" href="{}">{}</a>', url, number)


def a_few(rows: QuerySet[Model], most: int = MOST_COUNTED) -> int:
    """How many there are, up to `most` + 1: counting all would read all."""
    return rows.order_by().values("pk")[: most + 1].count()


def since(hours: int) -> datetime:
    """The full hour so many hours ago: the window of a card, which then is read from sums of hours, and of the lists behind it."""
    return (timezone.now() - timedelta(hours=hours)).replace(minute=0, second=0, microsecond=0)


def percent(share: float | None) -> str:
    """``93 %``; never rounded up to 100, nor down to 0."""
    if share is None:
        return "–"
    rounded = round(100 * share)
    if rounded == 100 and share < 1:
        return "> 99 %"
    return "< 1 %" if rounded == 0 and share > 0 else f"{rounded} %"
