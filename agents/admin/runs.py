"""Turns of agents, step by step: a log. A turn that has not ended can be asked to stop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.transcript import transcript_url
from agents.kit.console import display
from agents.kit.console.logs import LogAdmin
from agents.kit.console.panels import Kind, Span, waterfall
from agents.kit.console.site import console_action
from agents.kit.models import LLMCall
from agents.models import Run, RunMessage, RunStep
from agents.turn.orchestrator import cancel

MOST_CALLS = 100  # of judges and other models beside the agent's own
TITLES = {"system": "System prompt", "user": "What it was asked", "assistant": "A stage answered in its place"}
CANCELLING = "agents.change_run"


def run_waterfall(run: Run, steps: Sequence[RunStep]) -> SafeString:
    """Return the turn's steps on one scale of time; empty for a turn that has not begun. One query.

    Below each step stand its parts: stages and calls of judges. Before the first step stands what prepared the turn, at the end what the
    stages did when it had ended: the trace has no moments, so that their time is counted back from the end.
    """
    started = run.started_at
    if started is None or not (steps or run.trace):
        return SafeString("")
    calls = _calls_of_judges(run, steps)
    total = _seconds_since(started, run.finished_at or timezone.now())
    # A step is stored when it ends.
    starts = [max(0.0, _seconds_since(started, step.created_at) - _seconds_of_step(step)) for step in steps]
    first_start = min(starts, default=total)
    spans = [
        *_stage_spans(run.trace, ("received", "prepare"), start=0.0, is_part=False),
        *_call_spans(calls, started, since=0.0, until=first_start, is_part=False),
    ]
    for step, start in zip(steps, starts, strict=True):
        spans.append(_step_span(step, start))
        spans += _stage_spans(step.detail.get("stages", []), ("review", "committed"), start=start, is_part=True)
        spans += _call_spans(calls, started, since=start, until=start + _seconds_of_step(step), is_part=True)
    finishing = [entry for entry in run.trace if entry["phase"] == "finish"]
    finishing_seconds = sum(entry["ms"] for entry in finishing if entry["status"] != "skipped") / 1000
    spans += _stage_spans(finishing, ("finish",), start=max(0.0, total - finishing_seconds), is_part=False)
    remark = "The turn goes on." if run.finished_at is None else ""
    return waterfall(spans, title="Where the time went", total=total, remark=remark)


def _calls_of_judges(run: Run, steps: Sequence[RunStep]) -> list[LLMCall]:
    """Return the first model calls that the turn caused, without those of the agent itself, which are steps."""
    own_calls = {step.detail.get("call") for step in steps}
    calls = LLMCall.objects.filter(run=run).order_by("pk")
    calls = calls.only("created_at", "latency_ms", "purpose", "dimension", "mechanism", "status")
    return [call for call in calls[:MOST_CALLS] if call.pk not in own_calls]


def _seconds_since(started: datetime, moment: datetime) -> float:
    return (moment - started) / timedelta(seconds=1)


def _seconds_of_step(step: RunStep) -> float:
    return (step.duration_ms or 0) / 1000


def _stage_spans(
    trace: Sequence[Mapping[str, Any]], phases: Collection[str], *, start: float, is_part: bool
) -> Iterator[Span]:
    """Yield the stages of some phases, which run one after the other; skipped ones are left to the table of stages.

    Args:
        start: When the first of them began, in seconds since the turn began.
        is_part: Whether they belong to the step above them.
    """
    for entry in trace:
        if entry["phase"] not in phases:
            continue
        seconds = entry["ms"] / 1000
        if entry["status"] != "skipped":
            stage = display.visible(entry["stage"])
            label = format_html('{} <span class="pl-subtle">{}</span>', stage, entry["phase"])
            problem = display.badge("failed", "bad") if entry["status"] == "failed" else ""
            yield Span(label=label, kind="stage", start=start, seconds=seconds, is_part=is_part, problem=problem)
        start += seconds


def _call_spans(
    calls: Sequence[LLMCall], started: datetime, *, since: float, until: float, is_part: bool
) -> Iterator[Span]:
    """Yield the calls that were answered in a stretch of time, in seconds since the turn began; one begins no earlier than the stretch."""
    for call in calls:
        seconds = call.latency_ms / 1000
        answered = _seconds_since(started, call.created_at)
        if not since <= answered <= until:
            continue
        name = f"{call.purpose} {call.dimension or call.mechanism}".strip()
        yield Span(
            label=display.page_of(call, name),
            kind="judge",
            start=max(since, answered - seconds),
            seconds=seconds,
            is_part=is_part,
            problem="" if call.status == LLMCall.Status.OK else display.status_badge(call),
        )


def _step_span(step: RunStep, start: float) -> Span:
    """Return the span of a model call or of a tool, linked to the step below; a failed call, or a draft sent back, has a badge."""
    is_call = step.kind == "model_call"
    problem: SafeString | str = ""
    if is_call:
        name = "model call"
        status = step.detail.get("status") or "ok"
        if status != "ok":
            problem = display.status(status)
    else:
        name = step.detail.get("tool") or step.kind
        if step.detail.get("committed") is False:
            problem = display.badge("sent back", "warning")
    label = format_html('<a class="pl-link" href="#step-{}">{} {}</a>', step.number, step.number, display.visible(name))
    kind: Kind = "model" if is_call else "tool"
    return Span(label=label, kind=kind, start=start, seconds=_seconds_of_step(step), problem=problem)


def timeline_context(run: Run) -> dict[str, Any]:
    """Return what the template shows of a turn, in three queries: the parts of its prompt, and steps with what was said in each.

    A step of a tool whose answer was deleted shows neither draft nor answer.
    """
    steps: list[Any] = list(RunStep.objects.filter(run=run).order_by("number"))
    exchange = list(RunMessage.objects.filter(run=run).select_related("message").order_by("number"))
    inputs_of_calls: dict[str, Any] = {}
    entries_of_step: dict[int | None, list[RunMessage]] = defaultdict(list)
    for entry in exchange:
        entries_of_step[entry.step_id].append(entry)
        for call in entry.content.get("tool_calls", []):
            inputs_of_calls[call["id"]] = call["input"]
    for step in steps:
        entries = entries_of_step[step.pk]
        if step.kind == "model_call":
            texts = [entry.content.get("text", "") for entry in entries]
            step.said = "\n\n".join(text for text in texts if text.strip())
            step.call = LLMCall(pk=step.detail["call"]) if step.detail.get("call") else None
        elif entries:
            answer = entries[0]
            inputs = inputs_of_calls.get(answer.content.get("call_id"), {})  # as a model wrote it: any names, any JSON
            step.draft = str(inputs.get("text") or "")
            step.given = [(name, value) for name, value in inputs.items() if name != "text"]
            step.answer = answer.content.get("text", "")
            step.place = transcript_url(answer.message) if answer.message else ""
    parts = []
    # Of no step are the prompt, a reminder, and what a stage answered in the model's place.
    for entry in entries_of_step[None]:
        blocks = [block["text"] for block in entry.content.get("blocks", [])]
        title = TITLES.get(entry.role, entry.role)
        parts.append({"title": title, "text": "\n\n".join(blocks), "content": entry.content})
    return {"parts": parts, "steps": steps, "waterfall": run_waterfall(run, steps)}


def _unread(run: Any) -> bool:
    """Return whether the user may not read messages."""
    return bool(run.unread)


@admin.register(Run)
class RunAdmin(LogAdmin[Run]):
    list_select_related = ("agent", "channel", "trigger")

    def get_panels(self, request: HttpRequest, obj: Run) -> list[SafeString]:
        """Show the turn step by step above the other panels. Until it ends the page renews itself (`live`), and it can be stopped.

        Users who may not read messages see neither the steps, which quote them, nor what the stages did.
        """
        is_final = obj.status in Run.FINAL
        may_cancel = not is_final and not obj.cancel_requested and request.user.has_perm(CANCELLING)
        context = {
            **({} if _unread(obj) else timeline_context(obj)),
            "run": obj,
            "unread": _unread(obj),
            "is_final": is_final,
            "live": "" if is_final else reverse("run-detail", args=[obj.pk]),
            "answered": self.answers(obj) if obj.trigger else "",
            "took": self.took(obj),
            "calls": display.link(display.list_url(LLMCall, work_id=f"run:{obj.pk}"), "the calls it made"),
            "cancel_url": self.url("cancel", obj) if may_cancel else "",
        }
        timeline = render_to_string("admin/agents/run/timeline.html", context, request)
        return [SafeString(timeline), *super().get_panels(request, obj)]

    @console_action("cancel", CANCELLING)
    def cancel_view(self, request: HttpRequest, row: Run) -> str:
        """Ask a turn to stop; a ValueError where it has ended otherwise already."""
        run = cancel(row)
        if run.status == Run.Status.CANCELLED:
            return f"Turn {run.pk} is cancelled."
        if run.status in Run.FINAL:
            raise ValueError(f"turn {run.pk} has ended already: {run.get_status_display()}")
        return f"Turn {run.pk} ends before its next step."

    @admin.display(description="answers")
    def answers(self, run: Run) -> SafeString:
        if run.trigger is not None:
            text = "" if _unread(run) else display.shortened(run.trigger.text, 60)
            return display.link(transcript_url(run.trigger), text or "a message")
        return display.folded(run.prompt, 60)

    @admin.display(description="took")
    def took(self, run: Run) -> SafeString | str:
        if run.started_at is None or run.finished_at is None:
            return display.EMPTY
        return f"{(run.finished_at - run.started_at) / timedelta(seconds=1):,.1f} s"
