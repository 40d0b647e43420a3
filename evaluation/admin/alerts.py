"""Drift alerts: what fell, since when, and who has seen it."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.access import user_of
from agents.admin.confirming import tell_done
from agents.admin.filters import RecentValuesFilter
from agents.admin.log_filters import AgentFilter, RelatedFilter
from agents.adminsite import ReadOnlyAdmin
from evaluation.admin.display import dimension_badge, judge_badge, meter, procedure_badge
from evaluation.admin.drift_chart import chart
from evaluation.change.over_time import series_of
from evaluation.coverage import shares_of
from evaluation.models import DriftAlert


class ScheduleFilter(RelatedFilter):
    hint = "the schedule's name"
    parameter_name = "schedule_name"


@admin.register(DriftAlert)
class DriftAlertAdmin(ReadOnlyAdmin[DriftAlert]):
    list_display = ("what", "who", "dimension_mark", "change", "began", "schedule_link", "judge_mark", "state")
    list_display_links = ("what",)
    list_filter = (
        ("acknowledged_at", admin.EmptyFieldListFilter),
        ("dimension", RecentValuesFilter),
        ("judge", RecentValuesFilter),
        ("agent", AgentFilter),
        ("schedule", ScheduleFilter),
        "created_at",
    )
    list_select_related = ("agent", "schedule", "acknowledged_by")
    ordering = ("-pk",)
    actions = ("acknowledge",)  # type: ignore[assignment]
    fields = (
        *("who", "dimension_mark", "change", "began", "run", "schedule_link", "judge_mark"),
        *("created", "state"),
    )

    began = display.time_of("since", "low since")
    created = display.time_of("created_at", "raised")

    def get_panels(self, request: HttpRequest, obj: DriftAlert) -> list[SafeString]:
        return [*super().get_panels(request, obj), *self._chart(obj)]

    def _chart(self, alert: DriftAlert) -> list[SafeString]:
        """The series it was raised in."""
        if alert.schedule is None:
            return []
        found = series_of(alert.agent, schedule=alert.schedule, dimension=alert.dimension)
        same = [s for s in found if (s.judge, s.procedure) == (alert.judge, alert.procedure)]
        shares = shares_of({series.evaluations[-1].run for series in same})
        charts = [chart(series, [alert], shares) for series in same]
        return [render_to_string("admin/evaluation/drift/alert.html", {"chart": drawn}) for drawn in charts]

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("evaluation.change_driftalert")

    @admin.action(description="Acknowledge", permissions=["acknowledge"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[DriftAlert]) -> None:
        new = DriftAlert.objects.filter(pk__in=queryset.values("pk"), acknowledged_at__isnull=True)
        chosen = queryset.count()
        done = new.update(acknowledged_at=timezone.now(), acknowledged_by=user_of(request))
        tell_done(self, request, "alert", "acknowledged", done=done, chosen=chosen)

    @admin.display(description="alert", ordering="pk")
    def what(self, alert: DriftAlert) -> SafeString:
        return display.lines(f"alert {alert.pk}", display.moment(alert.created_at))

    @admin.display(description="agent", ordering="agent")
    def who(self, alert: DriftAlert) -> SafeString:
        return display.agent_chip(alert.agent)

    @admin.display(description="dimension", ordering="dimension")
    def dimension_mark(self, alert: DriftAlert) -> SafeString:
        return dimension_badge(alert.dimension)

    @admin.display(description="fell from, to")
    def change(self, alert: DriftAlert) -> SafeString:
        return format_html('<span class="pl-pair">{} → {}</span>', f"{alert.before:.1f}", meter(alert.after))

    @admin.display(description="schedule", ordering="schedule")
    def schedule_link(self, alert: DriftAlert) -> SafeString:
        return display.EMPTY if alert.schedule is None else display.page_of(alert.schedule)

    @admin.display(description="noticed in")
    def run(self, alert: DriftAlert) -> SafeString:
        return display.page_of(alert.evaluation_run, f"evaluation {alert.evaluation_run_id}")

    @admin.display(description="judge", ordering="judge")
    def judge_mark(self, alert: DriftAlert) -> SafeString:
        return format_html("{} {}", judge_badge(alert.judge), procedure_badge(alert.procedure))

    @admin.display(description="state", ordering="acknowledged_at")
    def state(self, alert: DriftAlert) -> SafeString:
        if alert.acknowledged_at is None:
            return display.badge("new", "bad")
        by = alert.acknowledged_by.get_username() if alert.acknowledged_by else ""
        return display.lines(display.badge("acknowledged", "good"), display.moment(alert.acknowledged_at), by)
