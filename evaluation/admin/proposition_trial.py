"""Trying a proposition from the console: what it would cost, and what it scored on which messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.transcript import transcript_url
from agents.console import display
from agents.models import Agent
from evaluation.admin.display import judge_badge, meter
from evaluation.drafting.trial_estimate import TrialEstimate, estimate_trial
from evaluation.drafting.trying import Trial, Tried, try_proposition
from evaluation.propositions.schema import Proposition
from evaluation.windows import parse_window
from evaluation.wording import counted

MESSAGES = 10
WINDOW = "last:1000"  # of what the agent said: a trial is about how it speaks now
DEADLINE = 20.0  # seconds for each call: somebody waits for the page
PERMISSIONS = ("evaluation.add_evaluationrun", "agents.view_message")  # calls cost money, and what it tries is shown


def estimated(proposition: Proposition, agent: Agent) -> SafeString:
    """What a trial would need, as a sentence."""
    found = estimate_trial(proposition=proposition, agent=agent, n=MESSAGES, window=parse_window(WINDOW))
    if not found.messages:
        return format_html("{} has said nothing yet: there is nothing to try it on.", display.isolated(agent))
    messages = counted(found.messages, "message")
    if not found.calls:
        return format_html(
            "{} of {}, no call: exact rules and preconditions cost nothing.", messages, display.isolated(agent)
        )
    calls = format_html(
        "{} of {}, {} of {}", messages, display.isolated(agent), counted(found.calls, "call"), judge_badge(found.judge)
    )
    return format_html("{}, {}.", calls, _cost(found))


def trial_context(proposition: Proposition, agent: Agent) -> dict[str, Any]:
    """Try it, and what the template shows of it. Calls a judge."""
    trial = try_proposition(
        proposition=proposition, agent=agent, n=MESSAGES, window=parse_window(WINDOW), deadline=DEADLINE
    )
    return {
        "agent": display.agent_chip(agent),
        "reason": display.visible(trial.reason) if trial.reason else "",
        "hint": display.visible(trial.hint) if trial.hint else "",
        "judge": judge_badge(trial.judge),
        "mean": meter(trial.mean),
        "counts": ", ".join(
            f"{found} {name}" for name in ("scored", "trivial", "unscored") if (found := trial.count(name))
        ),
        "spread": None if trial.spread is None else f"{trial.spread:.1f}",
        "spent": _spent(trial),
        "rows": list(_rows(trial)),
    }


def _rows(trial: Trial) -> Iterator[dict[str, Any]]:
    """The lowest scores first: they say what the claim holds against a message."""
    ordered = sorted(trial.messages, key=lambda one: (one.score is None, one.score or 0.0))
    for one in ordered:
        verdict = one.shown
        yield {
            "score": _score(one),
            "text": display.folded(one.message.text, 160),
            "where": display.link(transcript_url(one.message), str(one.message.channel)),
            "at": display.moment(one.message.sent_at),
            "why": display.folded(verdict.reasoning if verdict.status == "scored" else verdict.reason, 200),
            "quote": display.visible(verdict.justification) if verdict.justification else "",
        }


def _score(one: Tried) -> SafeString:
    status = one.shown.status
    if status == "scored":
        return meter(one.score, digits=0)
    return display.badge(status, "warning" if status == "unscored" else "plain", one.shown.reason)


def _cost(found: TrialEstimate) -> SafeString:
    if not found.billed:
        return format_html("{}", "which costs nothing")
    tokens = f"about {found.input_tokens:,} tokens in and {found.output_tokens:,} out"
    return format_html(
        "{}, {}", tokens, display.money(found.cost_usd, unpriced=0 if found.cost_usd is not None else found.calls)
    )


def _spent(trial: Trial) -> SafeString:
    spent = trial.spent
    if not spent.calls:
        return format_html("{}", "no call was made, it cost nothing")
    unpriced_only = spent.unpriced == spent.calls
    cost = display.money(None if unpriced_only else spent.cost_usd, unpriced=spent.unpriced)
    calls = f"{counted(spent.calls, 'call')}, {spent.input_tokens:,} tokens in, {spent.output_tokens:,} out"
    return format_html("{}, {}", calls, cost)
