"""A gate session's time: its attempts, the dimensions judged side by side in each, and the agent's writing between them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.waterfall import Bar, waterfall
from correction.admin.display import Ending, attempt_badge, ending_of
from correction.models import CorrectionLog, GateDimensionResult, Outcome

_LATE = (GateDimensionResult.Status.TIMEOUT, GateDimensionResult.Status.ERROR, GateDimensionResult.Status.OVERLOAD)


def session_waterfall(attempts: Sequence[CorrectionLog]) -> SafeString:
    """The attempts at one message on one scale of time. Reads their results as they were fetched."""
    begun = min(log.created_at - timedelta(milliseconds=log.duration_ms) for log in attempts)
    ending = ending_of(attempts)
    bars = [bar for log in attempts for bar in _attempt(log, ending, (log.created_at - begun) / timedelta(seconds=1))]
    total = (max(log.created_at for log in attempts) - begun) / timedelta(seconds=1)
    remark = "Between the attempts the agent wrote its next draft." if len(attempts) > 1 else ""
    return waterfall(bars, title="How long it took", total=total, remark=remark)


def _attempt(log: CorrectionLog, ending: Ending, logged: float) -> list[Bar]:
    """An attempt is logged when it was judged; its dimensions are judged side by side from its beginning."""
    seconds = log.duration_ms / 1000
    start = logged - seconds
    label = format_html('<a class="pl-link" href="#attempt-{}">Attempt {}</a>', log.attempt, log.attempt)
    failed = log.outcome in (Outcome.CORRECTED, Outcome.FORCED_THROUGH)
    status = attempt_badge(log, ending)
    whole = Bar(label=label, kind="attempt", start=start, seconds=seconds, failed=failed, status=status)
    return [whole, *(_dimension(result, start) for result in log.dimension_results.all())]


def _dimension(result: GateDimensionResult, start: float) -> Bar:
    is_late = result.status in _LATE
    return Bar(
        label=display.visible(result.dimension.replace("_", " ")),
        kind="judge",
        start=start,
        seconds=result.duration_ms / 1000,
        is_part=True,
        failed=is_late,
        status=display.badge(result.get_status_display(), "warning") if is_late else SafeString(""),
    )
