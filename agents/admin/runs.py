"""Turns of agents, step by step: a log."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.transcript import transcript_url
from agents.adminsite import ReadOnlyAdmin, ReadOnlyTabularInline
from agents.models import Run, RunMessage, RunStep


class StepInline(ReadOnlyTabularInline[RunStep, Run]):
    model = RunStep
    fields = ("number", "kind", "duration_ms", "detail_json")
    readonly_fields = fields

    @admin.display(description="detail")
    def detail_json(self, step: RunStep) -> SafeString:
        return display.json_block(step.detail)


class ExchangeInline(ReadOnlyTabularInline[RunMessage, Run]):
    model = RunMessage
    verbose_name_plural = "exchange with the model"
    fields = ("number", "role", "tool_name", "content_json")
    readonly_fields = fields

    @admin.display(description="content")
    def content_json(self, entry: RunMessage) -> SafeString:
        return display.json_block(entry.content)


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin[Run]):
    list_display = ("name", "who", "channel", "state", "stop_reason", "started", "finished")
    list_display_links = ("name",)
    list_filter = ("status", "stop_reason", ("agent", admin.RelatedFieldListFilter), "created_at")
    list_select_related = ("agent", "channel")
    inlines = (StepInline, ExchangeInline)
    fieldsets = (
        (None, {"fields": ("who", "channel", "answered", "state", "stop_reason", "error_text")}),
        ("Times", {"fields": ("created", "started", "finished", "attempt", "claimed_by")}),
        ("Pipeline", {"fields": ("trace_json", "overrides_json")}),
    )

    created = display.time_of("created_at")
    started = display.time_of("started_at")
    finished = display.time_of("finished_at")

    @admin.display(description="run", ordering="pk")
    def name(self, run: Run) -> str:
        return f"run {run.pk}"

    @admin.display(description="agent", ordering="agent")
    def who(self, run: Run) -> SafeString:
        return display.agent_chip(run.agent)

    @admin.display(description="status", ordering="status")
    def state(self, run: Run) -> SafeString:
        return display.status_badge(run)

    @admin.display(description="answers")
    def answered(self, run: Run) -> SafeString:
        return (
            display.EMPTY
            if run.trigger is None
            else display.link(transcript_url(run.trigger), display.shortened(run.trigger.text, 80))
        )

    @admin.display(description="error")
    def error_text(self, run: Run) -> SafeString:
        return display.block(run.error)

    @admin.display(description="trace")
    def trace_json(self, run: Run) -> SafeString:
        return display.json_block(run.trace)

    @admin.display(description="overrides")
    def overrides_json(self, run: Run) -> SafeString:
        return display.json_block(run.overrides)
