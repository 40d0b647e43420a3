"""Batches that are out or were collected: what waits for an answer at half the price. A log."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.exports import BATCHES
from agents.admin.filters import DateRangeFilter, RecentValuesFilter
from agents.admin.log_filters import ErrorFilter
from agents.admin.logs import LogAdmin
from agents.models import LLMBatch, LLMBatchRequest, LLMCall


@admin.register(LLMBatch)
class LLMBatchAdmin(LogAdmin[LLMBatch]):
    export = BATCHES
    list_display = ("name", "state", "work", "model", "answers", "next_look", "expires", "handed_in")
    list_display_links = ("name",)
    list_filter = ("status", ("model", RecentValuesFilter), ErrorFilter, ("created_at", DateRangeFilter))
    search_fields = ("batch_id__exact", "work_id__exact")
    search_help_text = "the server's id of the batch, or the work it serves, exactly"
    fieldsets = (
        (None, {"fields": ("state", "error_text", "work", "round", "answers", "results", "calls")}),
        ("At the server", {"fields": ("batch_id", "provider_status", "role", "model", "base_url", "expires")}),
        ("Times", {"fields": ("handed_in", "looks", "next_look", "finished", "cancel_requested")}),
    )

    handed_in = display.time_of("created_at", "handed in")
    next_look = display.time_of("next_look_at", "next look")
    expires = display.time_of("expires_at", "expires")
    finished = display.time_of("finished_at")
    cancel_requested = display.time_of("cancel_requested_at", "asked to cancel")

    @admin.display(description="batch", ordering="pk")
    def name(self, batch: LLMBatch) -> SafeString:
        return display.lines(f"#{batch.pk}", batch.batch_id or "not known at the server yet")

    @admin.display(description="status", ordering="status")
    def state(self, batch: LLMBatch) -> SafeString:
        return display.status_badge(batch)

    @admin.display(description="work", ordering="work_id")
    def work(self, batch: LLMBatch) -> SafeString:
        return display.visible(batch.work_id.replace("_", " ").replace(":", " "))

    @admin.display(description="answered", ordering="answered")
    def answers(self, batch: LLMBatch) -> str:
        return f"{batch.answered:,} of {batch.requests:,}"

    @admin.display(description="error")
    def error_text(self, batch: LLMBatch) -> SafeString:
        return display.block(batch.error) if batch.error else display.EMPTY

    @admin.display(description="results")
    def results(self, batch: LLMBatch) -> SafeString:
        found = batch.rows.order_by("result").values_list("result").annotate(n=Count("pk"))
        labels = dict(LLMBatchRequest.Result.choices) | {"": "waiting"}
        return format_html_join(", ", "{} {}", ((f"{n:,}", labels.get(result, result)) for result, n in found)) or (
            display.EMPTY
        )

    @admin.display(description="ledger")
    def calls(self, batch: LLMBatch) -> SafeString:
        return display.link(display.list_url(LLMCall, work_id=batch.work_id), "the calls of this work")
