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
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from agents.kit.text.wording import day_text, time_text

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
MINUTES_OF_DAY = 24 * 60
LONGEST_OPEN_JSON = 400  # characters; more are folded
_HEX_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
_DEFAULT_COLOR = "#475569"


def visible(text: object) -> SafeString:
    """Return `text` escaped, with each control or bidi character replaced by its marked code point."""
    escaped = str(conditional_escape(text if isinstance(text, SafeString) else str(text))).replace("\r\n", "\n")
    marked_up = _INVISIBLE.sub(lambda match: f'<span class="pl-codepoint">U+{ord(match.group()):04X}</span>', escaped)
    return mark_safe(marked_up)  # noqa: S308 (escaped above)


def marked(text: object) -> str:
    """Return `text`, not escaped, with each control or bidi character replaced by its code point, for places that hold no HTML.

    Such as the title of a link, which the template escapes: ``[U+202E]``.
    """
    return _INVISIBLE.sub(lambda match: f"[U+{ord(match.group()):04X}]", str(text))


def isolated(text: object) -> SafeString:
    """Return a name from a person or a file in its own bidi context: it cannot reorder the text around it."""
    return format_html("<bdi>{}</bdi>", visible(text))


def badge(label: object, tone: Tone = "plain", title: str = "") -> SafeString:
    """Return the one badge of the console; `tone` is a colour of `console.css`, legible (4.5:1) in light and dark mode."""
    return format_html('<span class="pl-badge pl-{}" title="{}">{}</span>', tone, marked(title), visible(label))


def status_badge(row: Any) -> SafeString:
    """Return the badge of a row's status, with the label of its choices."""
    return badge(row.get_status_display(), STATUS_TONES.get(row.status, "plain"))


def status(value: str) -> SafeString:
    """Return the badge of a status that is no field of a row."""
    return badge(value, STATUS_TONES.get(value, "plain"))


def words(name: object) -> SafeString:
    """Return a name of the code with spaces for underscores."""
    return visible(str(name).replace("_", " "))


def folded(text: str, start: int = 90) -> SafeString:
    """Return a long text as its first words, the rest one click away; a short text of one line as it is; a dash for a blank one."""
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
    """Return the first line of `text`, at most `length` characters, with an ellipsis when anything was cut.

    It is cut between words, unless that would cost more than a third of the length.
    """
    text = text.strip()
    first_line = text.split("\n", 1)[0].strip()
    if first_line == text and len(text) <= length:
        return text
    if len(first_line) > length:
        whole_words = first_line[:length].rpartition(" ")[0].rstrip()
        first_line = whole_words if len(whole_words) > length * 2 // 3 else first_line[:length]
    return f"{first_line}\N{NO-BREAK SPACE}…"


def block(text: str) -> SafeString:
    """Return a text of several lines as it is."""
    if not text.strip():
        return EMPTY
    return format_html('<div class="pl-block" dir="auto">{}</div>', visible(text))


def json_block(value: object) -> SafeString:
    """Return JSON, indented; folded when it has LONGEST_OPEN_JSON characters or more; a dash where there is nothing in it.

    A short list of texts has a line for each.
    """
    if value in (None, "", [], {}):
        return EMPTY
    if isinstance(value, list) and all(isinstance(item, str) and "\n" not in item for item in value):
        joined = "\n".join(value)
        if len(joined) < LONGEST_OPEN_JSON:
            return block(joined)
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if len(text) < LONGEST_OPEN_JSON:
        return format_html('<pre class="pl-block pl-code">{}</pre>', visible(text))
    return format_html(
        '<details class="pl-folded"><summary>{} characters of JSON</summary><pre class="pl-code">{}</pre></details>',
        f"{len(text):,}",
        visible(text),
    )


def moment(value: datetime | None) -> SafeString:
    """Return how long ago a time is (``3 h ago``, ``in 2 d``), beyond a week its day; its title has the full time with its zone."""
    if value is None:
        return EMPTY
    return _time_element(value, _relative_time(value))


def exact_moment(value: datetime) -> SafeString:
    """Return a time to the minute in the console's time zone, and how long ago it is: for the page of a row."""
    full = time_text(value)
    relative = _relative_time(value)
    text = full if relative in full else f"{full} ({relative})"  # beyond a week the relative time is the day itself
    return _time_element(value, text)


def _relative_time(value: datetime) -> str:
    """Return ``5 min ago``, ``3 h ago``, ``2 d ago`` or, of the future, ``in 2 d``; beyond a week the day.

    The day has its year unless it is this one.
    """
    seconds_ago = (timezone.now() - value).total_seconds()
    minutes = abs(seconds_ago) / 60
    if minutes < 1:
        return "just now" if seconds_ago >= 0 else "in a moment"
    if minutes >= 7 * MINUTES_OF_DAY:
        local = timezone.localtime(value)
        is_this_year = local.year == timezone.localtime().year
        return f"{local.day} {local:%b}" if is_this_year else day_text(local)
    if minutes < 60:
        amount = f"{minutes // 1:.0f} min"  # rounded down, as hours and days are
    elif minutes < 2 * MINUTES_OF_DAY:
        amount = f"{minutes // 60:.0f} h"
    else:
        amount = f"{minutes // MINUTES_OF_DAY:.0f} d"
    return f"{amount} ago" if seconds_ago >= 0 else f"in {amount}"


def _time_element(value: datetime, text: str) -> SafeString:
    """Return the HTML element of a time, whose title is the full time with its zone."""
    local = timezone.localtime(value)
    full = f"{day_text(local)}, {local:%H:%M:%S %Z}"
    element = '<time class="pl-time" datetime="{}" title="{}">{}</time>'
    return format_html(element, value.isoformat(), full, text)


def day(value: date) -> SafeString:
    """Return a day as ``7 Nov 2026``."""
    return format_html('<time class="pl-time" datetime="{}">{}</time>', value.isoformat(), day_text(value))


def column(label: str, value: Callable[[Any], object], *, ordering: str | None = None) -> Callable[[Any, Any], Any]:
    """Return a method of an admin class: the column or read-only field that shows `value` of a row."""

    @admin.display(description=label, ordering=ordering)
    def shown(model_admin: Any, row: Any) -> Any:
        return value(row)

    return shown


def lines(*parts: object) -> SafeString:
    """Return several things for one cell, one under the other; the second and later ones are subtle, and left out where empty."""
    first, *others = parts
    subtle = [(part,) for part in others if part not in ("", None)]
    below = format_html_join("", '<span class="pl-subtle">{}</span>', subtle)
    return format_html('<span class="pl-lines"><span>{}</span>{}</span>', first, below)


def acknowledgement(alert: Any, *, lasts: bool = False) -> SafeString:
    """Return whether an alert is acknowledged, by whom, when and with what note, and whether what it is about still `lasts`.

    A badge alone (``new, lasts``) where it is not acknowledged.
    """
    if alert.acknowledged_at is None:
        return badge("new, lasts" if lasts else "new", "bad")
    state = badge("acknowledged, lasts" if lasts else "acknowledged", "good")
    by = isolated(alert.acknowledged_by) if alert.acknowledged_by else ""
    return lines(state, moment(alert.acknowledged_at), by, visible(alert.note))


def count(value: int | None) -> str | SafeString:
    """Return a number with thousands separated; a dash when it is not known."""
    if value is None:
        return EMPTY
    return f"{value:,}"


def count_up_to(value: int, most: int) -> str:
    """Return a number that was counted up to `most` + 1: beyond `most` it is ``1,000+``."""
    if value > most:
        return f"{most:,}+"
    return f"{value:,}"


def money(amount: Decimal | None, *, unpriced: int = 0) -> SafeString:
    """Return US dollars; calls without a price are *unpriced*, never 0.

    Args:
        amount: Sum of the priced calls, None when there is none.
        unpriced: Number of calls without a price.
    """
    if amount is None and not unpriced:
        return EMPTY
    parts = []
    if amount is not None:
        parts.append(format_html("<span>{}</span>", dollars(amount)))
    if unpriced:
        label = "unpriced" if amount is None else f"+ {unpriced:,} unpriced"
        parts.append(badge(label, "warning", f"{unpriced:,} calls of models that have no price"))
    return format_html('<span class="pl-money">{}</span>', format_html_join(" ", "{}", [(part,) for part in parts]))


def dollars(amount: Decimal) -> str:
    """Return US dollars to the cent, below one dollar to four digits; what is smaller still is never shown as 0."""
    if 0 < amount < Decimal("0.0001"):
        return "< $0.0001"
    if amount == 0 or amount >= 1:
        return f"${amount:,.2f}"
    return f"${amount:.4f}"


def link(url: str, label: object, title: str = "") -> SafeString:
    """Return a link; its label and title are made visible."""
    return format_html('<a class="pl-link" href="{}" title="{}">{}</a>', url, marked(title), visible(label))


def list_url(model: type[Model], **filters: object) -> str:
    """Return the URL of the model's list, narrowed by `filters` (its filter parameters)."""
    url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return f"{url}?{urlencode(filters)}" if filters else url


def page_url(row: Model) -> str:
    """Return the URL of the row's page in the console."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def has_page(model: type[Model]) -> bool:
    """Return whether rows of the model have a page in the console."""
    try:
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[1])
    except NoReverseMatch:
        return False
    return True


def page_of(row: Model, label: object | None = None) -> SafeString:
    """Return a link to the row's page in the console."""
    return link(page_url(row), row if label is None else label)


def avatar(display_name: str, color: str = _DEFAULT_COLOR) -> SafeString:
    """Return a dot in the agent's colour with its initials, black or white, whichever can be read."""
    background = color if _HEX_COLOR.fullmatch(color) else _DEFAULT_COLOR
    initials = "".join(word[0] for word in re.findall(r"\w+", display_name)[:2]).upper() or "?"
    return format_html(
        '<span class="pl-avatar" style="background:{};color:{}" aria-hidden="true">{}</span>',
        background,
        ink_on(background),
        initials,
    )


def ink_on(background: str) -> str:
    """Return black or white: the one with the higher contrast (WCAG relative luminance) on a ``#rrggbb`` background."""
    channels = [int(background[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    contrast_of_black = (luminance + 0.05) / 0.05
    contrast_of_white = 1.05 / (luminance + 0.05)
    return "#000000" if contrast_of_black >= contrast_of_white else "#ffffff"


def tags(values: object) -> SafeString:
    """Return tags as small ``key=value`` chips."""
    if not isinstance(values, dict) or not values:
        return EMPTY
    chips = [(visible(key), visible(value)) for key, value in values.items()]
    return format_html_join(" ", '<span class="pl-tag">{}={}</span>', chips)


MOST_COMPARED_WORDS = 8_000  # of both texts together
MOST_EQUAL_PAIRS = 300_000  # of words, one in each text: what the comparison's time grows with
_WORD = re.compile(r"\w+\s*|[^\w\s]+\s*|\s+")  # with the space after it: spaces alone would be equal everywhere


def word_diff(before: str, after: str) -> SafeString | None:
    """Return `after` with what it took out of `before` and put in marked; None when the texts are too long to compare word by word."""
    old = _WORD.findall(before)
    new = _WORD.findall(after)
    old_words = [piece.rstrip() for piece in old]
    new_words = [piece.rstrip() for piece in new]
    if not _can_be_compared(old_words, new_words):
        return None
    pieces: list[SafeString] = []
    matcher = difflib.SequenceMatcher(None, old_words, new_words, autojunk=False)
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        taken_out = visible("".join(old[old_start:old_end]))
        put_in = visible("".join(new[new_start:new_end]))
        if kind == "equal":
            pieces.append(put_in)
            continue
        if taken_out:
            pieces.append(format_html("<del>{}</del>", taken_out))
        if put_in:
            pieces.append(format_html("<ins>{}</ins>", put_in))
    marked_words = format_html_join("", "{}", [(piece,) for piece in pieces])
    return format_html('<div class="pl-block pl-diff" dir="auto">{}</div>', marked_words)


def _can_be_compared(old_words: list[str], new_words: list[str]) -> bool:
    """Return whether comparing these words takes a bearable time, which grows with the pairs of equal words."""
    times_in_new = Counter(new_words)
    equal_pairs = sum(times_in_new[word] for word in old_words)
    return len(old_words) + len(new_words) <= MOST_COMPARED_WORDS and equal_pairs <= MOST_EQUAL_PAIRS
