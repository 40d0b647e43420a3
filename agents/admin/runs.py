"""Turns of agents, step by step: a log. A turn that has not ended can be asked to stop."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.transcript import channel_link, transcript_url
from agents.console import display
from agents.console.display import Tone
from agents.console.logs import LogAdmin
from agents.console.panels import Kind, Span, waterfall
from agents.models import LLMCall, Run, RunMessage, RunStep
from agents.turn.orchestrator import cancel

MOST_CALLS = 100  # of judges and other models beside the agent's own
STAGE_TONES: dict[str, Tone] = {"ran": "good", "skipped": "plain", "failed": "bad"}
TITLES = {"system": "System prompt", "user": "What it was asked", "assistant": "A stage answered in its place"}


def run_waterfall(run: Run, steps: Sequence[RunStep]) -> SafeString:
    """The turn's steps on one scale of time; nothing for a turn that has not begun. One query."""
    begun = run.started_at
    if begun is None or not (steps or run.trace):
        return SafeString("")
    own = {_dict(step.detail).get("call") for step in steps}
    rows = LLMCall.objects.filter(run=run).order_by("pk")
    rows = rows.only("created_at", "latency_ms", "purpose", "dimension", "mechanism", "status")
    calls = [call for call in rows[:MOST_CALLS] if call.pk not in own]
    total = _since(begun, run.finished_at or timezone.now())
    spans = []  # step, when it began, seconds
    for step in steps:  # one is stored when it ends
        seconds = (step.duration_ms or 0) / 1000
        spans.append((step, max(0.0, _since(begun, step.created_at) - seconds), seconds))
    first = min((start for _, start, _ in spans), default=total)
    bars = [*_stages(run.trace, ("received", "prepare"), at=0.0), *_calls(calls, begun, 0.0, first)]
    for step, start, seconds in spans:
        bars.append(_bar(step, start, seconds))
        bars += _stages(_dict(step.detail).get("stages"), ("review", "committed"), at=start, is_part=True)
        bars += _calls(calls, begun, start, start + seconds, is_part=True)
    last = _stages(run.trace, ("finish",), at=0.0)
    bars += _stages(run.trace, ("finish",), at=max(0.0, total - sum(bar.seconds for bar in last)))
    remark = "The turn goes on." if run.finished_at is None else ""
    return waterfall(bars, title="Where the time went", total=total, remark=remark)


def _since(begun: datetime, at: datetime) -> float:
    return (at - begun) / timedelta(seconds=1)


def _dict(value: Any) -> dict[str, Any]:
    """A JSON object as it is stored; empty for anything else."""
    return value if isinstance(value, dict) else {}


def _list(content: Any, name: str) -> list[Any]:
    """A list in a JSON object; empty when there is none."""
    entries = _dict(content).get(name)
    return entries if isinstance(entries, list) else []


def _bar(step: RunStep, start: float, seconds: float) -> Span:
    detail = _dict(step.detail)
    if step.kind == "model_call":
        kind: Kind = "model"
        name, word = "model call", str(detail.get("status") or "ok")
        failed = word != "ok"
    else:
        kind, name, word = "tool", str(detail.get("tool") or step.kind), "sent back"
        failed = detail.get("committed") is False
    status = display.badge(word, display.STATUS_TONES.get(word, "warning")) if failed else ""
    label = format_html('<a class="pl-link" href="#step-{}">{} {}</a>', step.number, step.number, display.visible(name))
    return Span(label=label, kind=kind, start=start, seconds=seconds, failed=failed, status=status)


def _stages(trace: Any, phases: Sequence[str], *, at: float, is_part: bool = False) -> list[Span]:
    """Stages run one after the other; those that only looked and had nothing to do are left to the table of stages."""
    bars = []
    for entry in trace if isinstance(trace, list) else []:
        if str(_dict(entry).get("phase")) not in phases:
            continue
        ms, state = entry.get("ms"), entry.get("status")
        seconds = float(ms) / 1000 if isinstance(ms, int | float) else 0.0
        if state != "skipped":
            phase = format_html('<span class="pl-subtle">{}</span>', display.visible(entry.get("phase") or ""))
            label = format_html("{} {}", display.visible(entry.get("stage", "")), phase)
            problem: dict[str, Any] = (
                {"failed": True, "status": display.badge("failed", "bad")} if state == "failed" else {}
            )
            bars.append(Span(label=label, kind="stage", start=at, seconds=seconds, is_part=is_part, **problem))
        at += seconds
    return bars


def _calls(
    calls: Sequence[LLMCall], begun: datetime, since: float, until: float, *, is_part: bool = False
) -> list[Span]:
    """The calls whose answer came in a stretch of time."""
    bars = []
    for call in calls:
        answered, seconds = _since(begun, call.created_at), call.latency_ms / 1000
        if since <= answered <= until:
            label = display.page_of(call, " ".join(filter(None, (call.purpose, call.dimension or call.mechanism))))
            start = max(since, answered - seconds)
            failed = call.status != LLMCall.Status.OK
            problem: dict[str, Any] = {"failed": True, "status": display.status_badge(call)} if failed else {}
            bars.append(Span(label=label, kind="judge", start=start, seconds=seconds, is_part=is_part, **problem))
    return bars


def timeline_context(run: Run) -> dict[str, Any]:
    """What the template shows of a turn, in three queries."""
    steps = list(RunStep.objects.filter(run=run).order_by("number"))
    exchange = list(RunMessage.objects.filter(run=run).select_related("message").order_by("number"))
    calls = [_dict(call) for entry in exchange for call in _list(entry.content, "tool_calls")]
    asked = {str(call.get("id")): _dict(call.get("input")) for call in calls}
    by_step: dict[int, list[RunMessage]] = {}
    for entry in exchange:
        if entry.step_id is not None:
            by_step.setdefault(entry.step_id, []).append(entry)
    return {
        "shown": [_shown(entry) for entry in exchange if entry.step_id is None],
        "steps": [_step(step, by_step.get(step.pk, []), asked) for step in steps],
        "waterfall": run_waterfall(run, steps),
        "stages": [_stage(entry) for entry in run.trace if isinstance(entry, dict)],
    }


def _shown(entry: RunMessage) -> dict[str, Any]:
    """A part of the prompt, or what a stage answered in place of the model."""
    texts = [str(block.get("text", "")) for block in _list(entry.content, "blocks") if isinstance(block, dict)]
    text = "\n\n".join(texts)
    sections = [
        (section.get("heading", ""), section.get("stage"))
        for section in _list(entry.content, "sections")
        if isinstance(section, dict)
    ]
    return {
        "title": TITLES.get(entry.role, entry.role),
        "size": f"{len(text):,} characters",
        "text": display.block(text) if texts else display.json_block(entry.content),
        "sections": [
            display.badge(heading, "accent", f"added by {stage}") if stage else display.badge(heading)
            for heading, stage in sections
        ],
    }


def _step(step: RunStep, entries: list[RunMessage], asked: dict[str, Any]) -> dict[str, Any]:
    detail = _dict(step.detail)
    shown: dict[str, Any] = {
        "number": step.number,
        "kind": step.kind.replace("_", " "),
        "duration": "" if step.duration_ms is None else f"{step.duration_ms:,} ms",
        "raw": "",
    }
    if step.kind == "model_call":
        return shown | _model_call(detail, entries)
    if step.kind == "tool_call":
        return shown | _tool_call(detail, entries, asked)
    return shown | {"raw": display.json_block(step.detail)}


def _model_call(detail: dict[str, Any], entries: list[RunMessage]) -> dict[str, Any]:
    status, call = str(detail.get("status", "")), detail.get("call")
    said = "\n\n".join(filter(str.strip, (str(_dict(entry.content).get("text", "")) for entry in entries)))
    return {
        "status": display.badge(status, display.STATUS_TONES.get(status, "plain")) if status else "",
        "model": display.visible(detail.get("model", "")),
        "tools": [display.visible(tool) for tool in _list(detail, "tools")],
        "error": display.visible(detail.get("error") or ""),
        "said": display.block(said),
        "has_said": bool(said),
        "call": display.page_of(LLMCall(pk=call), "its call") if isinstance(call, int) else "",
    }


def _tool_call(detail: dict[str, Any], entries: list[RunMessage], asked: dict[str, Any]) -> dict[str, Any]:
    content, message = (_dict(entries[0].content), entries[0].message) if entries else ({}, None)
    given = asked.get(str(content.get("call_id")), {})
    if detail.get("committed") is True:
        became = display.badge("sent", "good")
    elif detail.get("committed") is False:
        became = display.badge("sent back", "warning", "a stage did not let it pass; the feedback went to the agent")
    else:
        became = display.badge("not done", "bad") if detail.get("is_error") else display.badge("done", "good")
    return {
        "tool": display.visible(detail.get("tool", "")),
        "status": became,
        "outcome": display.visible(str(detail.get("outcome") or "").replace("_", " ")),
        "text": display.block(str(given.get("text", ""))) if given.get("text") else "",
        "given": [(display.visible(name), display.visible(value)) for name, value in given.items() if name != "text"],
        "answer": display.folded(str(content.get("text", "")), 120) if content.get("text") else "",
        "message": display.link(transcript_url(message), "Read it in its conversation") if message else "",
        "feedback": display.block(str(detail.get("feedback") or "")) if detail.get("feedback") else "",
    }


def _stage(entry: dict[str, Any]) -> dict[str, Any]:
    status, counters = str(entry.get("status", "")), _dict(entry.get("counters"))
    return {
        **{name: display.visible(entry.get(name) or "") for name in ("phase", "stage", "why")},
        "status": display.badge(status, STAGE_TONES.get(status, "plain")),
        "ms": display.visible(entry.get("ms", "")),
        "counters": [display.visible(f"{name.replace('_', ' ')} {value}") for name, value in counters.items()],
    }


CANCELLING = "agents.change_run"


@admin.register(Run)
class RunAdmin(LogAdmin[Run]):
    list_select_related = ("agent", "channel", "trigger")

    def get_panels(self, request: HttpRequest, obj: Run) -> list[SafeString]:
        shown = render_to_string("admin/agents/run/timeline.html", self._context(request, obj), request)
        return [SafeString(shown), *super().get_panels(request, obj)]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.cancel_view)
        return [path("<int:run_id>/cancel/", view, name="agents_run_cancel"), *super().get_urls()]

    def cancel_view(self, request: HttpRequest, run_id: int) -> HttpResponse:
        """Ask a turn to stop (POST)."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request) or not request.user.has_perm(CANCELLING):
            raise PermissionDenied
        run = self.get_object(request, str(run_id))
        if run is None:
            raise Http404(f"There is no run {run_id}.")
        run = cancel(run)
        if run.status == Run.Status.CANCELLED:
            self.message_user(request, f"Run {run.pk} is cancelled.", messages.SUCCESS)
        elif run.status in Run.FINAL:
            self.message_user(request, f"Run {run.pk} has ended already: {run.get_status_display()}.", messages.WARNING)
        else:
            self.message_user(request, f"Run {run.pk} ends before its next step.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:agents_run_change", args=[run.pk]))

    def _context(self, request: HttpRequest, run: Run) -> dict[str, Any]:
        may_cancel = run.status not in Run.FINAL and not run.cancel_requested and request.user.has_perm(CANCELLING)
        shown = timeline_context(run)
        return {
            **shown,
            "live": "" if run.status in Run.FINAL else reverse("run-detail", args=[run.pk]),
            "agent": display.agent_chip(run.agent),
            "channel": channel_link(run.channel) if run.channel else display.EMPTY,
            "state": display.status_badge(run),
            "stop_reason": run.get_stop_reason_display(),
            "answered": self.answers(run) if run.trigger else "",
            "took": self.took(run),
            "depth": run.depth,
            "prompt": display.block(run.prompt) if run.prompt.strip() else "",
            "error": display.visible(run.error),
            "calls": display.link(display.list_url(LLMCall, work_id=f"run:{run.pk}"), "the calls it made"),
            "running": run.status == Run.Status.RUNNING,
            "waiting": run.status == Run.Status.PENDING,
            "cancelling": run.cancel_requested and run.status not in Run.FINAL,
            "cancel_url": reverse("admin:agents_run_cancel", args=[run.pk]) if may_cancel else "",
        }

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
