"""One draft as the console shows it: claim, rule or cues, and the persona's words around its quote."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.display import Tone
from evaluation.admin.display import dimension_badge
from evaluation.drafting.decisions import DraftEntry
from evaluation.drafting.quotes import find_quote
from evaluation.proposition_files import DEFAULT

AROUND = 240  # characters of the persona shown on each side of a quote
_TONES: dict[str, Tone] = {"waiting": "info", "accepted": "good", "rejected": "plain"}


@dataclass(frozen=True, slots=True)
class Card:
    """A draft, ready to be shown. `checked_by` says by what it is judged."""

    id: str
    state: str
    badge: SafeString
    marks: SafeString
    claim: SafeString
    checked_by: SafeString
    advice: SafeString | str
    source: SafeString
    place: str
    command: str
    mark: str


def card_of(entry: DraftEntry, persona: str | None) -> Card:
    p = entry.proposition
    marks = [display.badge("anti-pattern", "warning", "the score is flipped")] if p.inverted else []
    if entry.dimension != "adherence":
        marks.append(dimension_badge(entry.dimension))
    return Card(
        id=p.id,
        state=entry.state,
        badge=display.badge(entry.state, _TONES[entry.state]),
        marks=format_html_join(" ", "{}", ((mark,) for mark in marks)),
        claim=display.visible(p.claim),
        checked_by=_checked_by(entry),
        advice=display.visible(p.recommendations) if p.recommendations else "",
        source=quoted_in(p.quote, persona),
        place=f"{entry.path.parent.name}/{p.source}",
        command=_command(entry),
        mark=entry.mark,
    )


def _command(entry: DraftEntry) -> str:
    place = shlex.quote(f"{_typed(entry.path)}:{entry.proposition.id}")
    return f"manage.py try_proposition {place} --agent {'SLUG' if entry.owner == DEFAULT else entry.owner}"


def _typed(path: Path) -> Path:
    """The file as somebody in the checkout types it."""
    return path.relative_to(settings.BASE_DIR) if path.is_relative_to(settings.BASE_DIR) else path


def _checked_by(entry: DraftEntry) -> SafeString:
    p = entry.proposition
    if p.rule is not None:
        checks = ((name, json.dumps(value, ensure_ascii=False)) for name, value in p.rule.checks().items())
        shown = format_html_join(" ", "<code>{}: {}</code>", ((name, display.visible(value)) for name, value in checks))
        return format_html("an exact rule {}", shown)
    if p.cues is None:
        return format_html("{}", "a judge alone; without an LLM it is not scored")
    lists = [
        (label, found) for label, found in (("for it", p.cues.supports), ("against it", p.cues.contradicts)) if found
    ]
    shown = format_html_join(" · ", "{}: {}", ((label, _codes(found)) for label, found in lists))
    return format_html("a judge; offline by words {}", shown)


def _codes(phrases: list[str]) -> SafeString:
    return format_html_join(", ", "<code>{}</code>", ((display.visible(phrase),) for phrase in phrases))


def quoted_in(quote: str, persona: str | None) -> SafeString:
    """The quote, marked, amid what the persona says around it; alone when it is not there (any more)."""
    if not quote:
        return format_html('<span class="pl-subtle">{}</span>', "no quote: written by hand")
    span = find_quote(quote, persona) if persona is not None else None
    if persona is None or span is None:
        gone = display.badge("not in the persona now", "warning", "the persona was changed, or there is no such agent")
        return format_html("<q>{}</q> {}", display.visible(quote), gone)
    start, end = span
    before, after = persona[max(0, start - AROUND) : start], persona[end : end + AROUND]
    if start > AROUND:
        before = f"… {before.partition(' ')[2]}"
    if end + AROUND < len(persona):
        after = f"{after.rpartition(' ')[0]} …"
    return format_html(
        "{}<mark>{}</mark>{}", display.visible(before), display.visible(persona[start:end]), display.visible(after)
    )
