"""A session of the gate: each attempt at one message with its verdicts and the feedback; and its line on other pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.panels import Span, waterfall
from agents.kit.models import LLMCall
from agents.models import Message, Run
from correction.admin.display import attempt_badge, ending_badge, failed_first, results
from correction.models import CorrectionLog, GateDimensionResult, GateSession, Outcome

_CALL_FAILED = (
    GateDimensionResult.Status.TIMEOUT,
    GateDimensionResult.Status.ERROR,
    GateDimensionResult.Status.OVERLOAD,
)

# Of what a person typed on the gate's page to try it: no agent wrote it.
TYPED_TAGS = {"from": "console"}
MARK_PERMISSION = "correction.change_gatedimensionresult"


def session_waterfall(attempts: Sequence[CorrectionLog]) -> SafeString:
    """Draw the attempts at one message on one scale of time, from their results as they were fetched.

    An attempt is logged when it was judged; its dimensions are judged at the same time, from its beginning.
    """
    started = min(_judging_began(log) for log in attempts)
    spans = []
    for log in attempts:
        start = (_judging_began(log) - started).total_seconds()
        spans.append(_attempt_span(log, start))
        spans += [_dimension_span(result, start) for result in log.dimension_results.all()]
    total = (max(log.created_at for log in attempts) - started).total_seconds()
    remark = "Between the attempts the agent wrote its next draft." if len(attempts) > 1 else ""
    return waterfall(spans, title="How long it took", total=total, remark=remark)


def _judging_began(log: CorrectionLog) -> datetime:
    return log.created_at - timedelta(milliseconds=log.duration_ms)


def _attempt_span(log: CorrectionLog, start: float) -> Span:
    """Return the bar of an attempt that began `start` seconds after the first; a problem where it was sent back or forced through."""
    badge = attempt_badge(log)
    return Span(
        label=format_html('<a class="pl-link" href="#attempt-{}">Attempt {}</a>', log.attempt, log.attempt),
        kind="attempt",
        start=start,
        seconds=log.duration_ms / 1000,
        problem=badge if log.outcome in (Outcome.CORRECTED, Outcome.FORCED_THROUGH) else "",
        status=badge,
    )


def _dimension_span(result: GateDimensionResult, start: float) -> Span:
    """Return the bar of a dimension of an attempt that began `start` seconds after the first; a problem where its call failed."""
    problem: SafeString | str = ""
    if result.status in _CALL_FAILED:
        problem = display.badge(result.get_status_display(), "warning")
    return Span(
        label=display.visible(result.dimension.replace("_", " ")),
        kind="judge",
        start=start,
        seconds=result.duration_ms / 1000,
        is_part=True,
        problem=problem,
    )


def session_context(log: CorrectionLog, *, may_mark: bool, may_read: bool) -> dict[str, Any]:
    """Return what the template shows of the session that `log` is an attempt of: all its attempts, with times and calls.

    Args:
        may_mark: Whether the user may mark verdicts as right or false alarm.
        may_read: Whether the user may read messages; else drafts, and what quotes them, are left out.
    """
    sessions = GateSession.objects.select_related("agent", "channel", "run__agent", "message__channel")
    session = sessions.get(pk=log.session_id)
    logs = CorrectionLog.objects.filter(session=session).select_related("session", "persona_version")
    attempts = list(logs.prefetch_related("dimension_results__marked_by").order_by("attempt"))
    if not may_read:
        for attempt in attempts:
            attempt.blank_quotes()
            for result in attempt.dimension_results.all():
                result.blank_quotes()
    sent_text = next((attempt.judged_text for attempt in attempts if attempt.committed), None)
    return {
        "session": session,
        "opened": log.attempt,
        "outcome": ending_badge(session),
        "calls": display.link(display.list_url(LLMCall, work_id=session.work_id), "the calls it made"),
        "duration": sum(attempt.duration_ms for attempt in attempts),
        "waterfall": session_waterfall(attempts),
        "attempts": [_attempt_context(attempt, sent_text) for attempt in attempts],
        "may_mark": may_mark,
        "may_read": may_read,
    }


def _attempt_context(attempt: CorrectionLog, sent_text: str | None) -> dict[str, Any]:
    """Return one attempt with the words that differ from what was sent; without them where nothing, or this text, was sent.

    Args:
        sent_text: None: nothing was sent (yet).
    """
    difference = None
    if sent_text is not None and attempt.judged_text != sent_text:
        difference = display.word_diff(attempt.judged_text, sent_text)
    return {
        "log": attempt,
        "outcome": attempt_badge(attempt),
        "is_other": difference is not None,
        "diff": difference,
        "results": failed_first(attempt.dimension_results.all()),
    }


def gate_notes(request: HttpRequest, messages: list[Message]) -> dict[int, SafeString]:
    """Return notes for the transcript, by the message's key: how it ended at the gate, what failed, a link to its session. Two queries.

    A message has a note for each of its sessions; one that the gate did not look at has none.
    """
    logs = CorrectionLog.objects.filter(session__message__in=messages).select_related("session").defer("payload")
    logs = logs.order_by("session_id", "attempt").prefetch_related("dimension_results")
    attempts_by_session: dict[tuple[int, int], list[CorrectionLog]] = {}  # by message and session
    for log in logs:
        if log.session.message_id is not None:
            attempts_by_session.setdefault((log.session.message_id, log.session_id), []).append(log)
    notes: dict[int, list[tuple[SafeString]]] = {}
    for (message_id, _), attempts in attempts_by_session.items():
        notes.setdefault(message_id, []).append((_session_note(attempts),))
    return {message_id: format_html_join(" ", "{}", of_message) for message_id, of_message in notes.items()}


def _session_note(attempts: Sequence[CorrectionLog]) -> SafeString:
    """Say how a session ended and what the sent attempt failed."""
    sent = next((log for log in attempts if log.committed), attempts[-1])
    failed = [result for result in sent.dimension_results.all() if not result.passed]
    tries = f"gate, {len(attempts)} attempts" if len(attempts) > 1 else "gate"
    return format_html(
        '<span class="pl-gate-note">{} {} {}</span>',
        ending_badge(sent.session), results(failed) if failed else "", display.page_of(sent, tries),
    )  # fmt: skip


def gate_panel(request: HttpRequest, message: Message) -> SafeString:
    """Say on the page of one message how it ended at the gate."""
    note = gate_notes(request, [message]).get(message.pk)
    return format_html('<section class="pl-panel"><h2>Gate</h2>{}</section>', note) if note else SafeString("")


def run_panel(request: HttpRequest, run: Run) -> SafeString:
    """Show on the page of a turn the drafts that the gate looked at in it, in their order."""
    logs = CorrectionLog.objects.filter(session__run=run).select_related("session").order_by("pk")
    logs = logs.prefetch_related("dimension_results")
    drafts = [(log, attempt_badge(log), results(log.dimension_results.all())) for log in logs]
    return render_to_string("admin/correction/log/run.html", {"drafts": drafts})
