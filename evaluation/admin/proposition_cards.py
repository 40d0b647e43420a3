"""One proposition as the console shows it: its text, rule or cues, the persona's words around its quote, and what a trial scored."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from agents.admin.transcript import transcript_url
from agents.console import display
from agents.console.display import Tone
from agents.console.panels import table
from agents.models import Agent
from evaluation.admin.display import dimension_badge, judge_badge, meter
from evaluation.drafting.suggesting import find_quote
from evaluation.drafting.trying import Trial, estimate_trial
from evaluation.models import PatternTimeout
from evaluation.propositions.files import DEFAULT, Entry
from evaluation.propositions.schema import AGENT_NAME, Proposition
from evaluation.scorers.subjects import MessageWindow
from evaluation.wording import counted

AROUND = 240  # characters of the persona shown before and after a quote
STATES: dict[str, tuple[str, Tone, str]] = {  # heading, tone and hint, in the order of the page
    "suggested": ("Suggested", "info", "not judged before you accept it"),
    "accepted": ("In use", "good", "judged in every evaluation"),
    "rejected": ("Rejected", "plain", "a suggestion that was rejected: it is not suggested again"),
    "retired": ("Retired", "warning", "no longer judged; its scores stay"),
}


def card_of(
    entry: Entry, timeouts: Sequence[PatternTimeout], name: str = "", persona: str | None = None
) -> dict[str, Any]:
    """Return a proposition as templates show it; `name` fills the variable of the agent's name."""
    p = entry.proposition
    return {
        "entry": entry,
        "id": p.id,
        "badge": state_badge(entry),
        "marks": marks_of(entry),
        "claim": claim_of(p.claim, name),
        "checked_by": checked_by(p),
        "checked_shortly": checked_shortly(p),
        "replaces": _place_of(entry.replaces) if entry.replaces else "",
        "advice": display.visible(p.recommendations) if p.recommendations else "",
        "source": quoted_in(p.quote, persona),
        "place": _place_of(entry),
        "command": _command(entry),
        "edit_url": page_url("edit", entry.owner, at=entry.key),
        "try_url": page_url("try", entry.owner, at=entry.key) if can_be_tried(entry) else "",
        "timeouts": _timeout_sentences(timeouts, p),
    }


def _timeout_sentences(rows: Sequence[PatternTimeout], p: Proposition) -> list[SafeString]:
    """Return a sentence for each pattern that took too long, as far as the proposition still has it."""
    written = repr((p.rule, p.cues)).replace("\\\\", "\\")
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
    """Return a claim as people read it, with the agent's name where its variable stands."""
    shown = display.visible(claim)
    if not name:
        return shown
    filled = format_html('<span class="pl-variable" title="{}">{}</span>', AGENT_NAME, display.isolated(name))
    return mark_safe(re.sub(r"\{\{\s*agent_name\s*\}\}", lambda match: filled, shown))  # noqa: S308 (both escaped)


def state_badge(entry: Entry) -> SafeString:
    heading, tone, hint = STATES[entry.state]
    return display.badge(heading.lower(), tone, hint)


def marks_of(entry: Entry) -> SafeString:
    """Return badges for what is not as usual about it."""
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
        marks.append(display.badge(f"trait {p.trait}", "plain", "it replaces the automatic proposition of the trait"))
    return format_html_join(" ", "{}", ((mark,) for mark in marks))


def checked_by(p: Proposition) -> SafeString:
    """Return what judges it: an exact rule, or a judge; and what does so offline."""
    if p.rule is not None:
        checks = ((name, json.dumps(value, ensure_ascii=False)) for name, value in p.rule.checks().items())
        shown = format_html_join(" ", "<code>{}: {}</code>", ((name, display.visible(value)) for name, value in checks))
        return format_html("an exact rule {}", shown)
    if p.cues is None:
        return format_html("{}", "a judge alone; without an LLM it is not scored")
    lists = ((label, words) for label, words in (("for it", p.cues.supports), ("against it", p.cues.contradicts)))
    shown = format_html_join(" · ", "{}: {}", ((label, _codes(words)) for label, words in lists if words))
    return format_html("a judge; offline by words {}", shown)


def checked_shortly(p: Proposition) -> SafeString:
    """Like `checked_by`, without the words themselves."""
    if p.rule is None and p.measure:
        return format_html("a judge; offline by the statistic <code>{}</code>", p.measure)
    if p.rule is not None or p.cues is None:
        return checked_by(p)
    supports = counted(len(p.cues.supports), "word or pattern", "words or patterns")
    return format_html("a judge; offline by {} for it, {} against it", supports, len(p.cues.contradicts))


def can_be_tried(entry: Entry) -> bool:
    """Whether it is judged message by message, on messages that were sent."""
    return entry.dimension == "adherence" and entry.level == "evaluation"


def page_url(view: str, owner: str, **query: str) -> str:
    """Return the address of a page about an agent's propositions."""
    url = reverse(f"admin:evaluation_proposition_{view}", args=[quote(owner)])
    return f"{url}?{urlencode(query)}" if query else url


def propositions_url(owner: str) -> str:
    """Return the page of an agent's propositions."""
    return page_url("change", owner)


def path_shown(path: Path) -> Path:
    """Return the file as it is typed in the checkout."""
    return path.relative_to(settings.BASE_DIR) if path.is_relative_to(settings.BASE_DIR) else path


def quoted_in(quoted: str, persona: str | None) -> SafeString:
    """Return the quote, marked, amid what the persona says around it; alone when it is not there (any more)."""
    if not quoted:
        return format_html('<span class="pl-subtle">{}</span>', "no quote: written by hand")
    span = find_quote(quoted, persona) if persona is not None else None
    if persona is None or span is None:
        gone = display.badge("not in the persona now", "warning", "the persona was changed, or there is no such agent")
        return format_html("<q>{}</q> {}", display.visible(quoted), gone)
    start, end = span
    before, after = persona[max(0, start - AROUND) : start], persona[end : end + AROUND]
    if start > AROUND:
        before = f"… {before.partition(' ')[2]}"
    if end + AROUND < len(persona):
        after = f"{after.rpartition(' ')[0]} …"
    return format_html(
        "{}<mark>{}</mark>{}", display.visible(before), display.visible(persona[start:end]), display.visible(after)
    )


def _place_of(entry: Entry) -> str:
    """File and line, without its folder."""
    return f"{entry.path.parent.name}/{entry.proposition.source}"


def _command(entry: Entry) -> str:
    place = shlex.quote(f"{path_shown(entry.path)}:{entry.proposition.id}")
    return f"manage.py try_proposition {place} --agent {'SLUG' if entry.owner == DEFAULT else entry.owner}"


def _codes(phrases: list[str]) -> SafeString:
    return format_html_join(", ", "<code>{}</code>", ((display.visible(phrase),) for phrase in phrases))


# -- trials
def estimate_sentence(p: Proposition, agent: Agent, *, n: int, window: MessageWindow) -> SafeString:
    """Return what a trial would need."""
    estimate = estimate_trial(proposition=p, agent=agent, n=n, window=window)
    name, messages = display.isolated(agent), counted(estimate.messages, "message")
    if not estimate.messages:
        return format_html("{} has said nothing yet: there is nothing to try it on.", name)
    if not estimate.calls:
        return format_html("{} of {}, no call: exact rules and preconditions cost nothing.", messages, name)
    cost = format_html("{}", "which costs nothing")
    if estimate.billed:
        unpriced = 0 if estimate.cost_usd is not None else estimate.calls
        cost = format_html(
            "about {} tokens in and {} out, {}",
            f"{estimate.input_tokens:,}",
            f"{estimate.output_tokens:,}",
            display.money(estimate.cost_usd, unpriced=unpriced),
        )
    calls = counted(estimate.calls, "call")
    return format_html("{} of {}, {} of {}, {}.", messages, name, calls, judge_badge(estimate.judge), cost)


def trial_shown(trial: Trial) -> dict[str, Any]:
    """Return a trial as its template shows it."""
    spent, cost = trial.spent, format_html("{}", "no call was made, it cost nothing")
    if spent.calls:
        priced = None if spent.unpriced == spent.calls else spent.cost_usd
        calls = f"{counted(spent.calls, 'call')}, {spent.input_tokens:,} tokens in, {spent.output_tokens:,} out"
        cost = format_html("{}, {}", calls, display.money(priced, unpriced=spent.unpriced))
    counts = {name: getattr(trial, name) for name in ("scored", "trivial", "unscored")}
    return {
        "agent": display.agent_chip(trial.of),
        "reason": display.visible(trial.reason) if trial.reason else "",
        "hint": display.visible(trial.hint) if trial.hint else "",
        "judge": judge_badge(trial.judge),
        "mean": meter(trial.mean),
        "counts": ", ".join(f"{count} {name}" for name, count in counts.items() if count),
        "spread": None if trial.spread is None else f"{trial.spread:.1f}",
        "spent": cost,
        "table": table(("Score", "Message", "Why"), _trial_rows(trial), label="What each message scored"),
    }


def _trial_rows(trial: Trial) -> Iterator[tuple[object, ...]]:
    """The lowest scores first: they show what the judge objects to."""
    for one in sorted(trial.messages, key=lambda one: (one.score is None, one.score or 0.0)):
        verdict = one.shown
        is_scored = verdict.status == "scored"
        tone: Tone = "warning" if verdict.status == "unscored" else "plain"
        quote = format_html('<q class="pl-text" dir="auto">{}</q>', display.visible(verdict.justification))
        where = display.link(transcript_url(one.source), str(one.source.channel))
        yield (
            meter(one.score, digits=0) if is_scored else display.badge(verdict.status, tone, verdict.reason),
            display.lines(
                display.folded(one.text, 160), format_html("{} {}", where, display.moment(one.source.sent_at))
            ),
            format_html(
                "{} {}",
                display.folded(verdict.reasoning if is_scored else verdict.reason, 200),
                quote if verdict.justification else "",
            ),
        )
