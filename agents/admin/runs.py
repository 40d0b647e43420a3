"""Turns of agents, step by step: a log. A turn that has not ended can be asked to stop."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.exports import RUNS
from agents.admin.filters import DateRangeFilter
from agents.admin.log_filters import AgentFilter, ErrorFilter, tag_filter
from agents.admin.logs import LogAdmin
from agents.admin.run_timeline import timeline_context
from agents.admin.transcript import transcript_url
from agents.models import LLMCall, Run
from agents.turn.orchestrator import cancel

CANCELLING = "agents.change_run"


@admin.register(Run)
class RunAdmin(LogAdmin[Run]):
    export = RUNS
    list_display = ("name", "who", "where", "state", "stop_reason", "answered", "started", "took")
    list_display_links = ("name",)
    list_filter = (
        "status",
        "stop_reason",
        ErrorFilter,
        ("agent", AgentFilter),
        tag_filter("channel__tags", "trigger__tags"),
        ("created_at", DateRangeFilter),
    )
    list_select_related = ("agent", "channel", "trigger")
    ordering = ("-pk",)
    fieldsets: ClassVar = (
        (
            "As it is stored",
            {
                "fields": (
                    "created",
                    "started",
                    "finished",
                    "attempt",
                    "lease_owner",
                    "idempotency_key",
                    "overrides_json",
                ),
                "classes": ("collapse",),
            },
        ),
    )

    created = display.time_of("created_at")
    started = display.time_of("started_at")
    finished = display.time_of("finished_at")

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
            "live": "" if run.status in Run.FINAL else reverse("agents:run", args=[run.pk]),
            "agent": self.who(run),
            "channel": self.where(run),
            "state": self.state(run),
            "stop_reason": run.get_stop_reason_display(),
            "answered": self.answered(run) if run.trigger else "",
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

    @admin.display(description="run", ordering="pk")
    def name(self, run: Run) -> SafeString:
        return format_html('<span class="pl-number">run {}</span>', run.pk)

    @admin.display(description="agent", ordering="agent")
    def who(self, run: Run) -> SafeString:
        return display.agent_chip(run.agent)

    @admin.display(description="channel", ordering="channel")
    def where(self, run: Run) -> SafeString:
        if run.channel is None:
            return display.EMPTY
        return display.link(reverse("admin:agents_channel_transcript", args=[run.channel.pk]), run.channel)

    @admin.display(description="status", ordering="status")
    def state(self, run: Run) -> SafeString:
        return display.status_badge(run)

    @admin.display(description="answers")
    def answered(self, run: Run) -> SafeString:
        if run.trigger is not None:
            return display.link(transcript_url(run.trigger), display.shortened(run.trigger.text, 60) or "a message")
        return display.folded(run.prompt, 60)

    @admin.display(description="took")
    def took(self, run: Run) -> SafeString | str:
        if run.started_at is None or run.finished_at is None:
            return display.EMPTY
        return f"{(run.finished_at - run.started_at) / timedelta(seconds=1):,.1f} s"

    @admin.display(description="overrides")
    def overrides_json(self, run: Run) -> SafeString:
        return display.json_block(run.overrides)
