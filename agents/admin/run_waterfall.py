"""A turn's time: what the stages prepared, each model call and tool with what happened inside it, and how the turn ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.display import Tone
from agents.admin.waterfall import Bar, Kind, waterfall
from agents.models import LLMCall, Run, RunStep

MOST_CALLS = 100  # of judges and other models beside the agent's own
STAGE_TONES: dict[str, Tone] = {"ran": "good", "skipped": "plain", "failed": "bad"}
BEFORE, AFTER = ("received", "prepare"), ("finish",)


def run_waterfall(run: Run, steps: Sequence[RunStep]) -> SafeString:
    """The turn's steps on one scale of time; nothing for a turn that has not begun. One query."""
    begun = run.started_at
    if begun is None or not (steps or run.trace):
        return SafeString("")
    end = run.finished_at or timezone.now()
    calls = _other_calls(run, steps)
    first = min((_span(step, begun)[0] for step in steps), default=_since(begun, end))
    bars = [*_stages(run.trace, BEFORE, at=0.0), *_calls(calls, begun, 0.0, first)]
    for step in steps:
        start, seconds = _span(step, begun)
        bars.append(_step(step, start, seconds))
        detail = step.detail if isinstance(step.detail, dict) else {}
        bars += _stages(detail.get("stages"), ("review", "committed"), at=start, is_part=True)
        bars += _calls(calls, begun, start, start + seconds, is_part=True)
    last = _stages(run.trace, AFTER, at=0.0)
    took = sum(bar.seconds for bar in last)
    bars += _stages(run.trace, AFTER, at=max(0.0, _since(begun, end) - took))
    remark = "The turn goes on." if run.finished_at is None else ""
    return waterfall(bars, title="Where the time went", total=_since(begun, end), remark=remark)


def _since(begun: datetime, at: datetime) -> float:
    return (at - begun) / timedelta(seconds=1)


def _span(step: RunStep, begun: datetime) -> tuple[float, float]:
    """When a step began and how long it took: it is stored when it ends."""
    seconds = (step.duration_ms or 0) / 1000
    return max(0.0, _since(begun, step.created_at) - seconds), seconds


def _step(step: RunStep, start: float, seconds: float) -> Bar:
    detail = step.detail if isinstance(step.detail, dict) else {}
    kind: Kind = "model" if step.kind == "model_call" else "tool"
    name = step.kind.replace("_", " ") if kind == "model" else str(detail.get("tool") or step.kind)
    failed = detail.get("status") not in (None, "ok") if kind == "model" else detail.get("committed") is False
    status: SafeString = SafeString("")
    if failed:
        label = str(detail.get("status")) if kind == "model" else "sent back"
        status = display.badge(label, display.STATUS_TONES.get(label, "warning"))
    label = format_html('<a class="pl-link" href="#step-{}">{} {}</a>', step.number, step.number, display.visible(name))
    return Bar(label=label, kind=kind, start=start, seconds=seconds, failed=failed, status=status)


def _stages(trace: Any, phases: Sequence[str], *, at: float, is_part: bool = False) -> list[Bar]:
    """Stages run one after the other; those that only looked and had nothing to do are left to the table of stages."""
    bars = []
    for entry in trace if isinstance(trace, list) else []:
        if not isinstance(entry, dict) or str(entry.get("phase")) not in phases:
            continue
        seconds = _milliseconds(entry) / 1000
        status = str(entry.get("status", ""))
        if status != "skipped":
            bars.append(
                Bar(
                    label=format_html("{} {}", display.visible(entry.get("stage", "")), _subtle(entry.get("phase"))),
                    kind="stage",
                    start=at,
                    seconds=seconds,
                    is_part=is_part,
                    failed=status == "failed",
                    status=display.badge("failed", "bad") if status == "failed" else SafeString(""),
                )
            )
        at += seconds
    return bars


def _milliseconds(entry: Mapping[str, Any]) -> float:
    found = entry.get("ms")
    return float(found) if isinstance(found, int | float) else 0.0


def _other_calls(run: Run, steps: Sequence[RunStep]) -> list[LLMCall]:
    own = {step.detail.get("call") for step in steps if isinstance(step.detail, dict)}
    found: QuerySet[LLMCall] = LLMCall.objects.filter(run=run).order_by("pk")
    found = found.only("created_at", "latency_ms", "purpose", "dimension", "mechanism", "status")
    return [call for call in found[:MOST_CALLS] if call.pk not in own]


def _calls(
    calls: Sequence[LLMCall], begun: datetime, since: float, until: float, *, is_part: bool = False
) -> list[Bar]:
    """The calls whose answer came in a stretch of time."""
    bars = []
    for call in calls:
        answered = _since(begun, call.created_at)
        if since <= answered <= until:
            seconds = call.latency_ms / 1000
            name = " ".join(filter(None, (call.purpose, call.dimension or call.mechanism)))
            failed = call.status != LLMCall.Status.OK
            bars.append(
                Bar(
                    label=display.page_of(call, name),
                    kind="judge",
                    start=max(since, answered - seconds),
                    seconds=seconds,
                    is_part=is_part,
                    failed=failed,
                    status=display.status_badge(call) if failed else SafeString(""),
                )
            )
    return bars


def _subtle(text: object) -> SafeString:
    return format_html('<span class="pl-subtle">{}</span>', display.visible(text or ""))
