"""Turns of agents, step by step: a log. A turn that has not ended can be asked to stop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
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
from agents.kit.console.panels import Span, waterfall
from agents.kit.console.site import console_action
from agents.kit.models import LLMCall
from agents.models import Run, RunMessage, RunStep
from agents.turn.orchestrator import cancel

MOST_CALLS = 100  # of judges and other models beside the agent's own
TITLES = {"system": "System prompt", "user": "What it was asked", "assistant": "A stage answered in its place"}
CANCELLING = "agents.change_run"


def run_waterfall(run: Run, steps: Sequence[RunStep]) -> SafeString:
    """The turn's steps on one scale of time; nothing for a turn that has not begun. One query."""
    begun = run.started_at
    if begun is None or not (steps or run.trace):
        return SafeString("")
    own = {step.detail.get("call") for step in steps}
    rows = LLMCall.objects.filter(run=run).order_by("pk")
    rows = rows.only("created_at", "latency_ms", "purpose", "dimension", "mechanism", "status")
    calls = [call for call in rows[:MOST_CALLS] if call.pk not in own]

    def at(moment: datetime) -> float:
        return (moment - begun) / timedelta(seconds=1)

    def stages(trace: list[dict[str, Any]], *phases: str, start: float, is_part: bool = False) -> Iterator[Span]:
        """Stages run one after the other; those that only looked and had nothing to do are left to the table of stages."""
        for entry in trace:
            if entry["phase"] not in phases:
                continue
            seconds = entry["ms"] / 1000
            if entry["status"] != "skipped":
                label = format_html(
                    '{} <span class="pl-subtle">{}</span>', display.visible(entry["stage"]), entry["phase"]
                )
                problem = display.badge("failed", "bad") if entry["status"] == "failed" else ""
                yield Span(label=label, kind="stage", start=start, seconds=seconds, is_part=is_part, problem=problem)
            start += seconds

    def judged(since: float, until: float, *, is_part: bool = False) -> Iterator[Span]:
        """The calls whose answer came in a stretch of time."""
        for call in calls:
            answered, seconds = at(call.created_at), call.latency_ms / 1000
            if since <= answered <= until:
                name = " ".join(filter(None, (call.purpose, call.dimension or call.mechanism)))
                yield Span(
                    label=display.page_of(call, name), kind="judge", start=max(since, answered - seconds), seconds=seconds,
                    is_part=is_part, problem=display.status_badge(call) if call.status != LLMCall.Status.OK else "",
                )  # fmt: skip

    total = at(run.finished_at or timezone.now())
    spans = []  # step, when it began, seconds
    for step in steps:  # one is stored when it ends
        seconds = (step.duration_ms or 0) / 1000
        spans.append((step, max(0.0, at(step.created_at) - seconds), seconds))
    first = min((start for _, start, _ in spans), default=total)
    bars = [*stages(run.trace, "received", "prepare", start=0.0), *judged(0.0, first)]
    for step, start, seconds in spans:
        bars.append(_bar(step, start, seconds))
        bars += stages(step.detail.get("stages", []), "review", "committed", start=start, is_part=True)
        bars += judged(start, start + seconds, is_part=True)
    lasted = (
        sum(entry["ms"] for entry in run.trace if entry["phase"] == "finish" and entry["status"] != "skipped") / 1000
    )
    bars += stages(run.trace, "finish", start=max(0.0, total - lasted))
    remark = "The turn goes on." if run.finished_at is None else ""
    return waterfall(bars, title="Where the time went", total=total, remark=remark)


def _bar(step: RunStep, start: float, seconds: float) -> Span:
    is_call, status = step.kind == "model_call", step.detail.get("status") or "ok"
    name = "model call" if is_call else step.detail.get("tool") or step.kind
    problem: SafeString | str = display.status(status) if is_call and status != "ok" else ""
    if not is_call and step.detail.get("committed") is False:
        problem = display.badge("sent back", "warning")
    label = format_html('<a class="pl-link" href="#step-{}">{} {}</a>', step.number, step.number, display.visible(name))
    return Span(label=label, kind="model" if is_call else "tool", start=start, seconds=seconds, problem=problem)


def timeline_context(run: Run) -> dict[str, Any]:
    """What the template shows of a turn, in three queries: the parts of its prompt, and steps with what was said in each."""
    steps: list[Any] = list(RunStep.objects.filter(run=run).order_by("number"))
    exchange = list(RunMessage.objects.filter(run=run).select_related("message").order_by("number"))
    given = {call["id"]: call["input"] for entry in exchange for call in entry.content.get("tool_calls", [])}
    by_step: dict[int | None, list[RunMessage]] = defaultdict(list)
    for entry in exchange:
        by_step[entry.step_id].append(entry)
    for step in steps:
        entries = by_step[step.pk]
        if step.kind == "model_call":
            step.said = "\n\n".join(filter(str.strip, (entry.content.get("text", "") for entry in entries)))
            step.call = LLMCall(pk=step.detail["call"]) if step.detail.get("call") else None
        elif entries:
            asked = given.get(entries[0].content.get("call_id"), {})  # as a model wrote it: any names, any JSON
            step.draft = str(asked.get("text") or "")
            step.given = [(name, value) for name, value in asked.items() if name != "text"]
            step.answer = entries[0].content.get("text", "")
            step.place = transcript_url(entries[0].message) if entries[0].message else ""
    parts = [
        {
            "title": TITLES.get(entry.role, entry.role),
            "text": "\n\n".join(block["text"] for block in entry.content.get("blocks", [])),
            "content": entry.content,
        }
        for entry in by_step[None]
    ]
    return {"parts": parts, "steps": steps, "waterfall": run_waterfall(run, steps)}


@admin.register(Run)
class RunAdmin(LogAdmin[Run]):
    list_select_related = ("agent", "channel", "trigger")

    def get_panels(self, request: HttpRequest, obj: Run) -> list[SafeString]:
        may_cancel = obj.status not in Run.FINAL and not obj.cancel_requested and request.user.has_perm(CANCELLING)
        context = {
            **timeline_context(obj),
            "run": obj,
            "is_final": obj.status in Run.FINAL,
            "live": "" if obj.status in Run.FINAL else reverse("run-detail", args=[obj.pk]),
            "answered": self.answers(obj) if obj.trigger else "",
            "took": self.took(obj),
            "calls": display.link(display.list_url(LLMCall, work_id=f"run:{obj.pk}"), "the calls it made"),
            "cancel_url": self.url("cancel", obj) if may_cancel else "",
        }
        shown = render_to_string("admin/agents/run/timeline.html", context, request)
        return [SafeString(shown), *super().get_panels(request, obj)]

    @console_action("cancel", CANCELLING)
    def cancel_view(self, request: HttpRequest, row: Run) -> str:
        """Ask a turn to stop."""
        run = cancel(row)
        if run.status == Run.Status.CANCELLED:
            return f"Turn {run.pk} is cancelled."
        if run.status in Run.FINAL:
            raise ValueError(f"turn {run.pk} has ended already: {run.get_status_display()}")
        return f"Turn {run.pk} ends before its next step."

    @admin.display(description="answers")
    def answers(self, run: Run) -> SafeString:
        if run.trigger is not None:
            return display.link(transcript_url(run.trigger), display.shortened(run.trigger.text, 60) or "a message")
        return display.folded(run.prompt, 60)

    @admin.display(description="took")
    def took(self, run: Run) -> SafeString | str:
        if run.started_at is None or run.finished_at is None:
            return display.EMPTY
        return f"{(run.finished_at - run.started_at) / timedelta(seconds=1):,.1f} s"
