"""A session of the gate as a timeline: each attempt at one message, what was found, what the agent was told, what was said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.transcript import transcript_url
from agents.console import display
from agents.console.display import word_diff
from agents.console.panels import Span, waterfall
from agents.models import LLMCall, Message, Run
from correction.admin.display import (
    Ending,
    against_threshold,
    attempt_badge,
    ending_of,
    endings,
    fired_badge,
    number,
    outcome_badge,
    results,
    source_badge,
    speaker,
)
from correction.models import CorrectionLog, GateDimensionResult, InterventionLog, Outcome
from evaluation.admin.display import judge_badge, meter

_LATE = (GateDimensionResult.Status.TIMEOUT, GateDimensionResult.Status.ERROR, GateDimensionResult.Status.OVERLOAD)


def session_waterfall(attempts: Sequence[CorrectionLog]) -> SafeString:
    """The attempts at one message on one scale of time. Reads their results as they were fetched."""
    begun = min(log.created_at - timedelta(milliseconds=log.duration_ms) for log in attempts)
    ending = ending_of(attempts)
    bars = [
        bar for log in attempts for bar in _attempt_bars(log, ending, (log.created_at - begun) / timedelta(seconds=1))
    ]
    total = (max(log.created_at for log in attempts) - begun) / timedelta(seconds=1)
    remark = "Between the attempts the agent wrote its next draft." if len(attempts) > 1 else ""
    return waterfall(bars, title="How long it took", total=total, remark=remark)


def _attempt_bars(log: CorrectionLog, ending: Ending, logged: float) -> list[Span]:
    """An attempt is logged when it was judged; its dimensions are judged side by side from its beginning."""
    seconds = log.duration_ms / 1000
    start = logged - seconds
    label = format_html('<a class="pl-link" href="#attempt-{}">Attempt {}</a>', log.attempt, log.attempt)
    failed = log.outcome in (Outcome.CORRECTED, Outcome.FORCED_THROUGH)
    status = attempt_badge(log, ending)
    whole = Span(label=label, kind="attempt", start=start, seconds=seconds, failed=failed, status=status)
    return [whole, *(_dimension_bar(result, start) for result in log.dimension_results.all())]


def _dimension_bar(result: GateDimensionResult, start: float) -> Span:
    is_late = result.status in _LATE
    return Span(
        label=display.visible(result.dimension.replace("_", " ")),
        kind="judge",
        start=start,
        seconds=result.duration_ms / 1000,
        is_part=True,
        failed=is_late,
        status=display.badge(result.get_status_display(), "warning") if is_late else SafeString(""),
    )


MARKING = "correction.change_gatedimensionresult"


def session_context(log: CorrectionLog, *, may_mark: bool) -> dict[str, Any]:
    """What the template shows of the session that `log` is an attempt of."""
    attempts = list(
        CorrectionLog.objects.filter(session=log.session)
        .select_related("agent", "channel", "run__agent", "message", "persona_version")
        .prefetch_related("dimension_results__marked_by")
        .order_by("attempt")
    )
    first = attempts[0]
    said = next((attempt for attempt in attempts if attempt.committed), None)
    ending = ending_of(attempts)
    return {
        "agent": speaker(first),
        "channel": _channel(first),
        "run": display.page_of(first.run) if first.run else display.EMPTY,
        "message": _message(first),
        "source": source_badge(first),
        "outcome": outcome_badge(ending.outcome),
        "session": str(log.session),
        "calls": display.link(display.list_url(LLMCall, work_id=log.work_id), "the calls it made"),
        "duration": f"{sum(attempt.duration_ms for attempt in attempts):,} ms of judging",
        "waterfall": session_waterfall(attempts),
        "attempts": [_attempt(attempt, said, ending, opened=attempt.pk == log.pk) for attempt in attempts],
        "may_mark": may_mark,
    }


def _channel(log: CorrectionLog) -> SafeString:
    if log.channel is None:
        return display.EMPTY
    return display.link(reverse("admin:agents_channel_transcript", args=[log.channel.pk]), log.channel)


def _message(log: CorrectionLog) -> SafeString:
    if log.message is None:
        is_external = log.source == CorrectionLog.Source.EXTERNAL
        return SafeString("said elsewhere, if at all" if is_external else "nothing was said")
    return display.link(transcript_url(log.message), display.shortened(log.message.text, 60) or "the message")


def _attempt(log: CorrectionLog, said: CorrectionLog | None, ending: Ending, *, opened: bool) -> dict[str, Any]:
    final = said.judged_text if said is not None else ""
    is_other = said is not None and said.pk != log.pk and final != log.judged_text
    return {
        "number": log.attempt,
        "opened": opened,
        "outcome": attempt_badge(log, ending),
        "committed": log.committed,
        "at": display.moment(log.created_at),
        "duration": f"{log.duration_ms:,} ms",
        "judge": judge_badge(log.judge) if log.judge else "",
        "persona": f"persona v{log.persona_version.number}" if log.persona_version else "",
        "score_sum": "" if log.score_sum is None else f"{log.score_sum:g}",
        "text": display.block(log.judged_text),
        "original": display.block(log.original_text) if log.original_text != log.judged_text else "",
        "payload": display.json_block(log.payload) if log.payload else "",
        "tags": display.tags(log.tags) if log.tags else "",
        "is_other": is_other,
        "diff": word_diff(log.judged_text, final) if is_other else None,
        "feedback": display.block(log.feedback) if log.feedback else "",
        "results": results_context(log),
    }


def results_context(log: CorrectionLog) -> list[dict[str, Any]]:
    """What the template shows of an attempt's dimensions, failed ones first."""
    return [_result(result) for result in _failed_first(log.dimension_results.all())]


def _failed_first(shown: Iterable[GateDimensionResult]) -> list[GateDimensionResult]:
    return sorted(shown, key=lambda result: (result.passed, result.dimension))


def _result(result: GateDimensionResult) -> dict[str, Any]:
    return {
        "pk": result.pk,
        "verdict": against_threshold(result),
        "meter": meter(result.score) if result.status == GateDimensionResult.Status.SCORED else "",
        "threshold": number(result.threshold),
        "status": result.get_status_display(),
        "reason": display.visible(result.reason),
        "judge": judge_badge(result.judge) if result.judge else "",
        "proposition": display.visible(result.proposition_id),
        "reasoning": display.visible(result.reasoning),
        "recommendations": display.visible(result.recommendations),
        "parts": [_part(part) for part in result.parts if isinstance(part, dict)],
        "call": display.page_of(LLMCall(pk=result.call_id), "its call") if result.call_id else "",
        "duration": f"{result.duration_ms:,} ms",
        "failed": not result.passed,
        "mark": result.mark,
        "mark_label": result.get_mark_display(),
        "marked": _marked(result),
    }


def _part(part: dict[str, Any]) -> dict[str, Any]:
    score = part.get("score")
    return {
        "id": display.visible(part.get("id", "")),
        "judge": judge_badge(str(part.get("judge") or "")),
        "status": display.visible(part.get("status", "")),
        "score": f"{score:g}" if isinstance(score, int | float) else "–",
        "reasoning": display.visible(part.get("reasoning") or part.get("reason") or ""),
    }


def _marked(result: GateDimensionResult) -> list[Any]:
    who = display.isolated(result.marked_by) if result.marked_by else ""
    return [part for part in (who, display.moment(result.marked_at) if result.marked_at else "") if part]


MARK_FORM = "marks"  # the id of the form on a page of messages that the buttons belong to
MOST_INTERVENTIONS = 50  # of a turn
MOST_COMPARED = 2_500  # characters of a draft and what was said
MOST_DIFFS = 20  # of a page: each takes time that grows with the square of the texts


class Comparing:
    """What compares drafts with what was said, for one page: at most `MOST_DIFFS` times."""

    def __init__(self) -> None:
        self.left = MOST_DIFFS

    def of(self, draft: str, said: str) -> tuple[SafeString | None, str]:
        """The difference, or why there is none to see here."""
        if len(draft) + len(said) > MOST_COMPARED:
            return None, "Too long to compare here"
        if not self.left:
            return None, "Not compared here, as there is much on this page"
        self.left -= 1
        diff = word_diff(draft, said)
        return diff, "" if diff is not None else "Too long to compare here"


Sessions = dict[int, dict[object, list[CorrectionLog]]]


def gate_notes(request: HttpRequest, messages: list[Message]) -> dict[int, SafeString]:
    """For the transcript: per message that the gate looked at, how it went; opened, its drafts and verdicts.

    Few queries for a page, however many messages it has.
    """
    sessions = _sessions(messages)
    at = request.GET.get("at") if request.GET.get("opened") == "gate" else None
    notes, comparing = {}, Comparing()
    for message in messages:
        if message.pk in sessions:
            back = reverse("admin:agents_channel_transcript", args=[message.channel_id])
            back = f"{back}?{urlencode({'at': message.position, 'opened': 'gate'})}"
            opened = at == str(message.position)
            notes[message.pk] = _note(
                request, message, sessions[message.pk], comparing, back=back, form=MARK_FORM, opened=opened
            )
    return notes


def gate_panel(request: HttpRequest, message: Message) -> SafeString:
    """For the page of one message, whose own form the buttons belong to."""
    sessions = _sessions([message]).get(message.pk)
    if not sessions:
        return SafeString("")
    back = reverse("admin:agents_message_change", args=[message.pk])
    note = _note(request, message, sessions, Comparing(), back=back, form="", opened=True)
    return format_html('<section class="pl-panel"><h2>Gate</h2>{}</section>', note)


def run_panel(request: HttpRequest, run: Run) -> SafeString:
    """For the page of a turn: the drafts that the gate looked at in it, in their order, and the interventions before it."""
    return format_html("{}{}", _gate_of_run(run), _interventions_of_run(request, run))


def _interventions_of_run(request: HttpRequest, run: Run) -> SafeString:
    if not request.user.has_perm("correction.view_interventionlog"):
        return SafeString("")
    logs = InterventionLog.objects.filter(run=run).defer("preconditions").order_by("pk")[:MOST_INTERVENTIONS]
    lines = format_html_join(
        "",
        "<li>{} {} {}</li>",
        (
            (
                display.page_of(log, log.name.replace("_", " ")),
                fired_badge(log.fired),
                display.folded(log.nudge or log.why, 120),
            )
            for log in logs
        ),
    )
    return _list_panel("Interventions", lines)


def _gate_of_run(run: Run) -> SafeString:
    logs = list(CorrectionLog.objects.filter(run=run).prefetch_related("dimension_results").order_by("pk"))
    ended = endings(logs)
    lines = format_html_join(
        "",
        "<li>{} {} {}</li>",
        (
            (
                display.page_of(log, f"attempt {log.attempt}"),
                attempt_badge(log, ended[log.session]),
                results(log.dimension_results.all()),
            )
            for log in logs
        ),
    )
    return _list_panel("Gate", lines)


def _list_panel(title: str, lines: SafeString) -> SafeString:
    if not lines:
        return lines
    return format_html('<section class="pl-panel"><h2>{}</h2><ul class="pl-lined">{}</ul></section>', title, lines)


def _sessions(messages: list[Message]) -> Sessions:
    """The attempts at each message, by session, in their order."""
    logs = (
        CorrectionLog.objects.filter(message__in=messages)
        .defer("payload", "tags")
        .prefetch_related("dimension_results__marked_by")
        .order_by("message_id", "session", "attempt")
    )
    sessions: Sessions = defaultdict(lambda: defaultdict(list))
    for log in logs:
        if log.message_id is not None:
            sessions[log.message_id][log.session].append(log)
    return sessions


def _note(
    request: HttpRequest,
    message: Message,
    sessions: dict[object, list[CorrectionLog]],
    comparing: Comparing,
    *,
    back: str,
    form: str,
    opened: bool,
) -> SafeString:
    context = {
        "position": message.position,
        "opened": opened,
        "sessions": [_noted_session(message, attempts, comparing) for attempts in sessions.values()],
        "may_mark": request.user.has_perm(MARKING),
        "mark_form": form,
        "mark_query": f"?{urlencode({'next': back})}",
    }
    return render_to_string("admin/correction/log/note.html", context)


def _noted_session(message: Message, attempts: list[CorrectionLog], comparing: Comparing) -> dict[str, Any]:
    said = next((log for log in attempts if log.committed), attempts[-1])
    ending = ending_of(attempts)
    failed = [result for result in said.dimension_results.all() if not result.passed]
    return {
        "label": outcome_badge(ending.outcome),
        "failed": results(failed) if failed else "",
        "attempts": [_noted_attempt(message, log, ending, comparing) for log in attempts],
        "page": display.page_of(said, "The whole session"),
    }


def _noted_attempt(message: Message, log: CorrectionLog, ending: Ending, comparing: Comparing) -> dict[str, Any]:
    is_other = log.judged_text != message.text
    diff, uncompared = comparing.of(log.judged_text, message.text) if is_other else (None, "")
    return {
        "number": log.attempt,
        "outcome": attempt_badge(log, ending),
        "committed": log.committed,
        "duration": f"{log.duration_ms:,} ms",
        "text": display.block(log.judged_text) if is_other else "",
        "diff": diff,
        "uncompared": uncompared,
        "in_session": display.page_of(log, "in the session") if uncompared else "",
        "results": results_context(log),
        "feedback": display.folded(log.feedback, 120) if log.feedback else "",
    }
