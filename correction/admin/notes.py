"""What the gate did to a message, shown beside it in its conversation and on its page."""

from __future__ import annotations

from collections import defaultdict

from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin import display
from agents.models import Message, Run
from correction.admin.display import outcome_badge, results
from correction.models import CorrectionLog, Outcome


def gate_notes(messages: list[Message]) -> dict[int, SafeString]:
    """For the transcript: per message that the gate looked at, how it went, linked to the session. Two queries for a page."""
    logs = (
        CorrectionLog.objects.filter(message__in=messages)
        .only("session", "attempt", "outcome", "committed", "message_id", "source")
        .prefetch_related("dimension_results")
        .order_by("message_id", "session", "attempt")
    )
    sessions: dict[int, dict[object, list[CorrectionLog]]] = defaultdict(lambda: defaultdict(list))
    for log in logs:
        if log.message_id is not None:
            sessions[log.message_id][log.session].append(log)
    return {
        pk: format_html(*_joined([_note(attempts) for attempts in found.values()])) for pk, found in sessions.items()
    }


def gate_panel(request: HttpRequest, message: Message) -> SafeString:
    """For the page of one message."""
    note = gate_notes([message]).get(message.pk)
    return format_html('<section class="pl-panel">Gate: {}</section>', note) if note else SafeString("")


def run_panel(request: HttpRequest, run: Run) -> SafeString:
    """For the page of a turn: the drafts that the gate looked at in it, in their order."""
    logs = CorrectionLog.objects.filter(run=run).prefetch_related("dimension_results").order_by("pk")
    lines = format_html_join(
        "",
        "<li>{} {} {}</li>",
        (
            (
                display.page_of(log, f"attempt {log.attempt}"),
                outcome_badge(log.outcome),
                results(log.dimension_results.all()),
            )
            for log in logs
        ),
    )
    return format_html('<section class="pl-panel"><h2>Gate</h2><ul>{}</ul></section>', lines) if lines else lines


def _joined(notes: list[SafeString]) -> tuple[str, ...]:
    return (" ".join(["{}"] * len(notes)), *notes)


def _note(attempts: list[CorrectionLog]) -> SafeString:
    """``corrected ×2`` rather than *passed after retry*: beside a message one wants to know how often it was sent back."""
    said = next((log for log in attempts if log.committed), attempts[-1])
    sent_back = sum(log.outcome == Outcome.CORRECTED for log in attempts)
    if said.outcome == Outcome.PASSED_AFTER_RETRY:
        label = display.badge(f"corrected ×{max(sent_back, 1)}", "good", "sent back with feedback, then passed")
    else:
        label = outcome_badge(said.outcome)
    failed = [result for result in said.dimension_results.all() if not result.passed]
    url = display.page_of(said, "gate")
    return format_html('<span class="pl-gate">{} {} {}</span>', label, results(failed) if failed else "", url)
