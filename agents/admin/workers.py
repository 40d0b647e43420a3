"""The processes that do queued work: which live, and what each has in hand. A log."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.filters import RecentValuesFilter
from agents.console.site import ReadOnlyAdmin
from agents.models import WorkerHeartbeat
from agents.work.worker import alive


@admin.register(WorkerHeartbeat)
class WorkerAdmin(ReadOnlyAdmin[WorkerHeartbeat]):
    list_display = ("name", "kind", "state", "in_hand", "pieces", "calls", "seen", "started")
    list_filter = ("kind", ("host", RecentValuesFilter))
    search_fields = ("name",)
    fieldsets = (
        (None, {"fields": ("name", "kind", "state", "queues", "in_hand", "pieces", "calls", "seen", "started")}),
    )

    seen = display.time_of("seen_at")
    started = display.time_of("started_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkerHeartbeat]:
        lives = alive().filter(pk=OuterRef("pk"))
        return super().get_queryset(request).annotate(lives=Exists(lives))

    @admin.display(description="state")
    def state(self, worker: WorkerHeartbeat) -> str:
        if worker.stopped_at is not None:
            return "stopped"
        return (
            "alive" if getattr(worker, "lives", False) else f"silent since {timezone.localtime(worker.seen_at):%H:%M}"
        )

    @admin.display(description="in hand")
    def in_hand(self, worker: WorkerHeartbeat) -> str | SafeString:
        return worker.doing or display.EMPTY

    @admin.display(description="done", ordering="done")
    def pieces(self, worker: WorkerHeartbeat) -> str:
        return f"{worker.done:,}"

    @admin.display(description="model calls in flight")
    def calls(self, worker: WorkerHeartbeat) -> str:
        return f"{worker.slots_in_use} of {worker.slots}"
