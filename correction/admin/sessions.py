"""A session of the gate: each attempt at one message with its verdicts and the feedback; and its line on other pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
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

_LATE = (GateDimensionResult.Status.TIMEOUT, GateDimensionResult.Status.ERROR, GateDimensionResult.Status.OVERLOAD)

MARKING = "correction.change_gatedimensionresult"


def session_waterfall(attempts: Sequence[CorrectionLog]) -> SafeString:
    """The attempts at one message on one scale of time. Reads their results as they were fetched.

    An attempt is logged when it was judged; its dimensions are judged at the same time, from its beginning.
    """
    begun = min(log.created_at - timedelta(milliseconds=log.duration_ms) for log in attempts)
    spans = []
    for log in attempts:
        start, badge = (log.created_at - begun).total_seconds() - log.duration_ms / 1000, attempt_badge(log)
        spans.append(
            Span(
                label=format_html('<a class="pl-link" href="#attempt-{}">Attempt {}</a>', log.attempt, log.attempt),
                kind="attempt",
                start=start,
                seconds=log.duration_ms / 1000,
                problem=badge if log.outcome in (Outcome.CORRECTED, Outcome.FORCED_THROUGH) else "",
                status=badge,
            )
        )
        for result in log.dimension_results.all():
            spans.append(
                Span(
                    label=display.visible(result.dimension.replace("_", " ")),
                    kind="judge",
                    start=start,
                    seconds=result.duration_ms / 1000,
                    is_part=True,
                    problem=display.badge(result.get_status_display(), "warning") if result.status in _LATE else "",
                )
            )
    total = (max(log.created_at for log in attempts) - begun).total_seconds()
    remark = "Between the attempts the agent wrote its next draft." if len(attempts) > 1 else ""
    return waterfall(spans, title="How long it took", total=total, remark=remark)


def session_context(log: CorrectionLog, *, may_mark: bool) -> dict[str, Any]:
    """What the template shows of the session that `log` is an attempt of; each attempt with the difference from what was sent."""
    session = GateSession.objects.select_related("agent", "channel", "run__agent", "message__channel").get(
        pk=log.session_id
    )
    logs = CorrectionLog.objects.filter(session=session).select_related("session", "persona_version")
    attempts = list(logs.prefetch_related("dimension_results__marked_by").order_by("attempt"))
    sent = next((attempt.judged_text for attempt in attempts if attempt.committed), None)
    return {
        "session": session,
        "opened": log.attempt,
        "outcome": ending_badge(session),
        "calls": display.link(display.list_url(LLMCall, work_id=session.work_id), "the calls it made"),
        "duration": sum(attempt.duration_ms for attempt in attempts),
        "waterfall": session_waterfall(attempts),
        "attempts": [
            {
                "log": one,
                "outcome": attempt_badge(one),
                "is_other": sent not in (None, one.judged_text),
                "diff": display.word_diff(one.judged_text, sent) if sent not in (None, one.judged_text) else None,
                "results": failed_first(one.dimension_results.all()),
            }
            for one in attempts
        ],
        "may_mark": may_mark,
    }


def gate_notes(request: HttpRequest, messages: list[Message]) -> dict[int, SafeString]:
    """For the transcript: how each message that the gate looked at ended, what failed, and the way to its session. Two queries."""
    logs = CorrectionLog.objects.filter(session__message__in=messages).select_related("session")
    logs = logs.order_by("session_id", "attempt")
    sessions: dict[int, dict[int, list[CorrectionLog]]] = defaultdict(lambda: defaultdict(list))
    for log in logs.defer("payload").prefetch_related("dimension_results"):
        if log.session.message_id is not None:
            sessions[log.session.message_id][log.session_id].append(log)
    return {pk: format_html_join(" ", "{}", ((_note(one),) for one in of.values())) for pk, of in sessions.items()}


def _note(attempts: list[CorrectionLog]) -> SafeString:
    sent = next((log for log in attempts if log.committed), attempts[-1])
    failed = [result for result in sent.dimension_results.all() if not result.passed]
    tries = f"gate, {len(attempts)} attempts" if len(attempts) > 1 else "gate"
    return format_html(
        '<span class="pl-gate-note">{} {} {}</span>',
        ending_badge(sent.session), results(failed) if failed else "", display.page_of(sent, tries),
    )  # fmt: skip


def gate_panel(request: HttpRequest, message: Message) -> SafeString:
    """The same for the page of one message."""
    note = gate_notes(request, [message]).get(message.pk)
    return format_html('<section class="pl-panel"><h2>Gate</h2>{}</section>', note) if note else SafeString("")


def run_panel(request: HttpRequest, run: Run) -> SafeString:
    """For the page of a turn: the drafts that the gate looked at in it, in their order."""
    logs = CorrectionLog.objects.filter(session__run=run).select_related("session").order_by("pk")
    logs = logs.prefetch_related("dimension_results")
    drafts = [(log, attempt_badge(log), results(log.dimension_results.all())) for log in logs]
    return render_to_string("admin/correction/log/run.html", {"drafts": drafts})
