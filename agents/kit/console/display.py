"""How values look in the console: one function per kind of value, so that a status looks the same on every page.

Everything that comes from agents, users or models passes `visible`: escaped, and with the characters that could reorder
or hide text made visible.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal
from urllib.parse import urlencode

from django.contrib import admin
from django.db.models import Model
from django.urls import reverse
from django.utils import timezone
from django.utils.dateformat import format as date_format
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

Tone = Literal["good", "bad", "warning", "info", "accent", "plain"]

EMPTY = mark_safe("–")
STATUS_TONES: dict[str, Tone] = {
    # work (agents.kit.models.lease.Leasable)
    "pending": "plain",
    "running": "info",
    "completed": "good",
    "failed": "warning",
    "errored": "bad",
    "cancelled": "plain",
    "paused_budget": "warning",
    # model calls (agents.kit.models.LLMCall)
    "ok": "good",
    "refused": "warning",
    "truncated": "warning",
    "malformed": "bad",
    "timeout": "bad",
    "rate_limited": "warning",
    "unavailable": "bad",
    "rejected": "bad",
    # stages of a turn
    "ran": "good",
}
# Controls, and what reorders text: marks, embeddings, overrides, isolates. Tab and line breaks are text.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_HEX_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
_DEFAULT_COLOR = "#475569"


def visible(text: object) -> SafeString:
    """`text` escaped, with each control or bidi character replaced by its marked code point."""
    escaped = str(conditional_escape(text if isinstance(text, SafeString) else str(text))).replace("\r\n", "\n")
    shown = _INVISIBLE.sub(lambda match: f'<span class="pl-codepoint">U+{ord(match.group()):04X}</span>', escaped)
    return mark_safe(shown)  # noqa: S308 (escaped above)


def marked(text: object) -> str:
    """Like `visible` for places that hold no HTML, such as the title of a link."""
    return _INVISIBLE.sub(lambda match: f"[U+{ord(match.group()):04X}]", str(text))


def isolated(text: object) -> SafeString:
    """A name from a person or a file, in its own bidi context: it cannot reorder the text around it."""
    return format_html("<bdi>{}</bdi>", visible(text))


def badge(label: object, tone: Tone = "plain", title: str = "") -> SafeString:
    """The one badge of the console; `tone` is a colour of `console.css`, legible (4.5:1) in light and dark mode."""
    return format_html('<span class="pl-badge pl-{}" title="{}">{}</span>', tone, marked(title), visible(label))


def status_badge(row: Any) -> SafeString:
    """The badge of a row's status, with the label of its choices."""
    return badge(row.get_status_display(), STATUS_TONES.get(row.status, "plain"))


def status(value: str) -> SafeString:
    """The badge of a status that no row's field has."""
    return badge(value, STATUS_TONES.get(value, "plain"))


def words(name: object) -> SafeString:
    """A name of the code as words."""
    return visible(str(name).replace("_", " "))


def folded(text: str, start: int = 90) -> SafeString:
    """A long text as its first words, the rest one click away; a short text as it is."""
    text = text.strip()
    if not text:
        return EMPTY
    if len(text) <= start and "\n" not in text:
        return format_html('<span class="pl-text" dir="auto">{}</span>', visible(text))
    return format_html(
        '<details class="pl-folded"><summary dir="auto">{}</summary><div class="pl-text" dir="auto">{}</div></details>',
        visible(shortened(text, start)), visible(text),
    )  # fmt: skip


def shortened(text: str, length: int) -> str:
    """The first line of `text`, at most `length` characters, with an ellipsis when anything was cut."""
    first = text.strip().split("\n", 1)[0].strip()
    if len(first) <= length:
        return first if first == text.strip() else f"{first}\N{NO-BREAK SPACE}…"
    words = first[:length].rpartition(" ")[0].rstrip()
    return f"{words if len(words) > length * 2 // 3 else first[:length]}\N{NO-BREAK SPACE}…"


def block(text: str) -> SafeString:
    """A text of several lines, as it is."""
    return format_html('<div class="pl-block" dir="auto">{}</div>', visible(text)) if text.strip() else EMPTY


def json_block(value: object) -> SafeString:
    """JSON, indented; folded when long."""
    if value in (None, "", [], {}):
        return EMPTY
    shown = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if len(shown) < 400:
        return format_html('<pre class="pl-block pl-code">{}</pre>', visible(shown))
    return format_html(
        '<details class="pl-folded"><summary>{} characters of JSON</summary><pre class="pl-code">{}</pre></details>',
        f"{len(shown):,}",
        visible(shown),
    )


def moment(value: datetime | None) -> SafeString:
    """How long ago a time is (``3 h ago``, ``in 2 d``), beyond a week its day; its title has the full time with its zone."""
    return _time(value, _ago(value)) if value is not None else EMPTY


def exact_moment(value: datetime) -> SafeString:
    """A time to the minute in the console's time zone, and how long ago it is: for the page of a row."""
    full, ago = date_format(timezone.localtime(value), "j M Y, H:i"), _ago(value)
    return _time(value, full if ago in full else f"{full} ({ago})")


def _ago(value: datetime) -> str:
    seconds, local = (timezone.now() - value).total_seconds(), timezone.localtime(value)
    minutes = abs(seconds) / 60
    if minutes < 1:
        return "just now" if seconds >= 0 else "in a moment"
    if minutes >= 7 * 24 * 60:
        return date_format(local, "j M" if local.year == timezone.localtime().year else "j M Y")
    unit, size = ("min", 1) if minutes < 60 else ("h", 60) if minutes < 48 * 60 else ("d", 24 * 60)
    return f"{minutes // size:.0f} {unit} ago" if seconds >= 0 else f"in {minutes // size:.0f} {unit}"


def _time(value: datetime, shown: str) -> SafeString:
    full = timezone.localtime(value).strftime("%Y-%m-%d %H:%M:%S %Z")
    text = '<time class="pl-time" datetime="{}" title="{}">{}</time>'
    return format_html(text, value.isoformat(), full, shown)


def day(value: date) -> SafeString:
    return format_html('<time class="pl-time" datetime="{}">{}</time>', value.isoformat(), date_format(value, "j M Y"))


def column(label: str, value: Callable[[Any], object], *, ordering: str | None = None) -> Callable[[Any, Any], Any]:
    """A method of an admin class: the column or read-only field that shows `value` of a row."""

    @admin.display(description=label, ordering=ordering)
    def shown(model_admin: Any, row: Any) -> Any:
        return value(row)

    return shown


def lines(*parts: object) -> SafeString:
    """Several things in one cell, one under the other; the second and later ones are subtle."""
    first, *rest = parts
    below = format_html_join(
        "", '<span class="pl-subtle">{}</span>', ((part,) for part in rest if part not in ("", None))
    )
    return format_html('<span class="pl-lines"><span>{}</span>{}</span>', first, below)


def acknowledgement(alert: Any, *, lasts: bool = False) -> SafeString:
    """Whether an alert is acknowledged, by whom, when and with what note."""
    if alert.acknowledged_at is None:
        return badge("new, lasts" if lasts else "new", "bad")
    by = isolated(alert.acknowledged_by) if alert.acknowledged_by else ""
    state = badge("acknowledged, lasts" if lasts else "acknowledged", "good")
    return lines(state, moment(alert.acknowledged_at), by, visible(alert.note))


def count(value: int | None) -> str | SafeString:
    """A number with thousands separated; a dash when it is not known."""
    return EMPTY if value is None else f"{value:,}"


def count_up_to(value: int, most: int) -> str:
    """A number that was counted up to `most` + 1: beyond, it is ``1,000+``."""
    return f"{min(value, most):,}{'+' if value > most else ''}"


def money(amount: Decimal | None, *, unpriced: int = 0) -> SafeString:
    """US dollars; calls without a price are *unpriced*, never 0.

    Args:
        amount: Sum of the priced calls, None when there is none.
        unpriced: Number of calls without a price.
    """
    shown = [] if amount is None else [format_html("<span>{}</span>", dollars(amount))]
    if unpriced:
        label = "unpriced" if amount is None else f"+ {unpriced:,} unpriced"
        shown.append(badge(label, "warning", f"{unpriced:,} calls of models that have no price"))
    if not shown:
        return EMPTY
    return format_html('<span class="pl-money">{}</span>', format_html_join(" ", "{}", ((part,) for part in shown)))


def dollars(amount: Decimal) -> str:
    """US dollars to the cent, below one dollar to four digits; what is smaller still is never shown as 0."""
    if 0 < amount < Decimal("0.0001"):
        return "< $0.0001"
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"


def link(url: str, label: object, title: str = "") -> SafeString:
    return format_html('<a class="pl-link" href="{}" title="{}">{}</a>', url, marked(title), visible(label))


def list_url(model: type[Model], **filters: object) -> str:
    """URL of the model's list, narrowed by `filters` (its filter parameters)."""
    url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return f"{url}?{urlencode(filters)}" if filters else url


def page_url(row: Model) -> str:
    """URL of the row's page in the console."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def page_of(row: Model, label: object | None = None) -> SafeString:
    """A link to the row's page in the console."""
    return link(page_url(row), row if label is None else label)


def avatar(display_name: str, color: str = _DEFAULT_COLOR) -> SafeString:
    """A dot in the agent's colour with its initials, black or white, whichever can be read."""
    background = color if _HEX_COLOR.fullmatch(color) else _DEFAULT_COLOR
    initials = "".join(word[0] for word in re.findall(r"\w+", display_name)[:2]).upper() or "?"
    return format_html(
        '<span class="pl-avatar" style="background:{};color:{}" aria-hidden="true">{}</span>',
        background,
        ink_on(background),
        initials,
    )


def ink_on(background: str) -> str:
    """Black or white: the one with the higher contrast (WCAG relative luminance) on a ``#rrggbb`` background."""
    channels = [int(background[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else "#ffffff"


def tags(values: object) -> SafeString:
    """Tags as small ``key=value`` chips."""
    pairs = values.items() if isinstance(values, dict) else []
    chips = ((visible(key), visible(value)) for key, value in pairs)
    return format_html_join(" ", '<span class="pl-tag">{}={}</span>', chips) or EMPTY


MOST_WORDS = 8_000  # of both texts together
MOST_PAIRS = 300_000  # of equal words, one in each text: what the comparison's time grows with
_WORDS = re.compile(r"\w+\s*|[^\w\s]+\s*|\s+")  # with the space after them: spaces alone would be found everywhere


def word_diff(before: str, after: str) -> SafeString | None:
    """`after` with what it took out and put in marked; None when the texts are too long to compare word by word."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    words = ([piece.rstrip() for piece in old], [piece.rstrip() for piece in new])
    there = Counter(words[1])
    if len(old) + len(new) > MOST_WORDS or sum(there[word] for word in words[0]) > MOST_PAIRS:
        return None
    pieces: list[SafeString] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes():
        if kind == "equal":
            pieces.append(visible("".join(new[c:d])))
            continue
        if b > a:
            pieces.append(format_html("<del>{}</del>", visible("".join(old[a:b]))))
        if d > c:
            pieces.append(format_html("<ins>{}</ins>", visible("".join(new[c:d]))))
    words_marked = format_html_join("", "{}", ((piece,) for piece in pieces))
    return format_html('<div class="pl-block pl-diff" dir="auto">{}</div>', words_marked)
