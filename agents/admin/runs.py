"""Turns of agents, step by step: a log. A turn that has not ended can be asked to stop."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.admin.transcript import transcript_url
from agents.console import display
from agents.console.logs import LogAdmin
from agents.console.site import console_action
from agents.models import LLMCall, Run, RunMessage, RunStep
from agents.turn.orchestrator import cancel

TITLES = {"system": "System prompt", "user": "What it was asked", "assistant": "A stage answered in its place"}
CANCELLING = "agents.change_run"


def timeline_context(run: Run) -> dict[str, Any]:
    """What the template shows of a turn, in two queries: the parts of its prompt, and steps with what was said in each."""
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
    return {"parts": parts, "steps": steps}


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
