"""One proposition as the console shows it: claim, rule or cues, and the persona's words around its quote."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from agents.console import display
from agents.console.display import Tone
from evaluation.admin.display import dimension_badge
from evaluation.drafting.decisions import DraftEntry
from evaluation.drafting.library import Listed
from evaluation.drafting.quotes import find_quote
from evaluation.drafting.validation import NAME
from evaluation.models import PatternTimeout
from evaluation.propositions.files import DEFAULT
from evaluation.propositions.schema import Proposition
from evaluation.wording import counted

AROUND = 240  # characters of the persona shown on each side of a quote
_TONES: dict[str, Tone] = {"waiting": "info", "accepted": "good", "rejected": "plain", "retired": "warning"}
_HINTS = {
    "waiting": "a draft: not judged before somebody accepts it",
    "accepted": "judged in every evaluation",
    "rejected": "a draft that was turned down: it is not proposed again",
    "retired": "judged once, no longer; its scores stay",
}


@dataclass(frozen=True, slots=True)
class Card:
    """A proposition, ready to be shown. `checked_by` says by what it is judged; `was_draft`, that accepting it can be undone."""

    id: str
    state: str
    badge: SafeString
    marks: SafeString
    claim: SafeString
    checked_by: SafeString
    checked_shortly: SafeString
    instead_of: str
    advice: SafeString | str
    source: SafeString
    place: str
    origin: str
    command: str
    mark: str
    was_draft: bool
    edit_url: str
    try_url: str
    timeouts: list[SafeString]


def card_of(one: Listed, persona: str | None, name: str = "", timeouts: Sequence[PatternTimeout] = ()) -> Card:
    entry, p = one.entry, one.entry.proposition
    return Card(
        id=p.id,
        state=entry.state,
        badge=state_badge(entry),
        marks=marks_of(entry),
        claim=claim_of(p.claim, name),
        checked_shortly=checked_shortly(entry),
        instead_of=_beside(one.in_place_of) if one.in_place_of else "",
        checked_by=checked_by(entry),
        advice=display.visible(p.recommendations) if p.recommendations else "",
        source=quoted_in(p.quote, persona),
        place=_beside(entry),
        origin="shipped" if one.origin == "shipped" else "your own",
        command=_command(entry),
        mark=entry.mark,
        was_draft=bool(p.quote),
        edit_url=page_url("edit", entry.owner, at=one.key),
        try_url=page_url("try", entry.owner, at=one.key) if can_be_tried(entry) else "",
        timeouts=timeouts_said(timeouts, p),
    )


def timeouts_said(rows: Sequence[PatternTimeout], proposition: Proposition) -> list[SafeString]:
    """A sentence for each pattern of the proposition that took too long; of those it has no more, none."""
    written = repr((proposition.rule, proposition.cues)).replace("\\\\", "\\")
    return [
        format_html(
            "The pattern <code>{}</code> timed out {}, last {}. What it could not judge is unscored.",
            display.visible(row.pattern),
            counted(row.times, "time"),
            display.moment(row.last_at),
        )
        for row in rows
        if row.pattern.strip("/") in written
    ]


def claim_of(claim: str, name: str = "") -> SafeString:
    """A claim as people read it, with the agent's name where its variable stands."""
    shown = display.visible(claim)
    if not name:
        return shown
    filled = format_html('<span class="pl-variable" title="{}">{}</span>', NAME, display.isolated(name))
    return mark_safe(re.sub(r"\{\{\s*agent_name\s*\}\}", lambda found: filled, shown))  # noqa: S308 (both escaped)


def _beside(entry: DraftEntry) -> str:
    """File and line, without its folder."""
    return f"{entry.path.parent.name}/{entry.proposition.source}"


def checked_shortly(entry: DraftEntry) -> SafeString:
    """Like `checked_by`, without the words themselves."""
    p = entry.proposition
    if p.rule is not None:
        return checked_by(entry)
    if p.measure:
        return format_html("a judge; offline by the statistic <code>{}</code>", p.measure)
    if p.cues is None:
        return checked_by(entry)
    found = counted(len(p.cues.supports), "word or pattern", "words or patterns")
    against = len(p.cues.contradicts)
    return format_html("a judge; offline by {} for it, {} against it", found, against)


def state_badge(entry: DraftEntry) -> SafeString:
    label = "in use" if entry.state == "accepted" and not entry.proposition.quote else entry.state
    return display.badge(label, _TONES[entry.state], _HINTS[entry.state])


def marks_of(entry: DraftEntry) -> SafeString:
    """What is not as usual about it."""
    p = entry.proposition
    marks = [display.badge("anti-pattern", "warning", "the score is flipped")] if p.inverted else []
    if p.hard:
        marks.append(display.badge("strict", "accent", "each flaw takes 20 % off"))
    if p.weight != 1:
        marks.append(display.badge(f"weight {p.weight:g}", "plain", "its share in the mean; usually 1"))
    if entry.dimension != "adherence":
        marks.append(dimension_badge(entry.dimension))
    if entry.level == "action":
        marks.append(display.badge("about drafts", "info", "asked by the gate, before a message is sent"))
    if p.trait:
        marks.append(
            display.badge(f"trait {p.trait}", "plain", "it stands in the place of the trait's automatic claim")
        )
    return format_html_join(" ", "{}", ((mark,) for mark in marks))


def can_be_tried(entry: DraftEntry) -> bool:
    """Whether it is judged message by message, on messages that were sent."""
    return entry.dimension == "adherence" and entry.level == "evaluation"


def page_url(view: str, owner: str, **query: str) -> str:
    """A page about an agent's propositions."""
    url = reverse(f"admin:evaluation_propositiondraft_{view}", args=[quote(owner)])
    return f"{url}?{urlencode(query)}" if query else url


def _command(entry: DraftEntry) -> str:
    place = shlex.quote(f"{_typed(entry.path)}:{entry.proposition.id}")
    return f"manage.py try_proposition {place} --agent {'SLUG' if entry.owner == DEFAULT else entry.owner}"


def _typed(path: Path) -> Path:
    """The file as somebody in the checkout types it."""
    return path.relative_to(settings.BASE_DIR) if path.is_relative_to(settings.BASE_DIR) else path


def checked_by(entry: DraftEntry) -> SafeString:
    """By what it is judged: an exact rule, or a judge; and offline."""
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
