"""A session of the gate as a timeline: each attempt at one message, what was found, what the agent was told, what was said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.urls import reverse
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.text_diff import word_diff
from agents.admin.transcript import transcript_url
from agents.models import LLMCall
from correction.admin.display import (
    Ending,
    against_threshold,
    attempt_badge,
    ending_of,
    number,
    outcome_badge,
    source_badge,
    speaker,
)
from correction.admin.session_waterfall import session_waterfall
from correction.models import CorrectionLog, GateDimensionResult
from evaluation.admin.display import judge_badge, meter

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
    return [_result(found) for found in _failed_first(log.dimension_results.all())]


def _failed_first(found: Iterable[GateDimensionResult]) -> list[GateDimensionResult]:
    return sorted(found, key=lambda result: (result.passed, result.dimension))


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
