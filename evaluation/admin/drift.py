"""Drift over time and by position on an agent's page, and the alerts that schedules raised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.access import user_of
from agents.admin.alerts import alert_state
from agents.alerts import acknowledge
from agents.console import display
from agents.console.charts import Line, Marker, Point, line_chart
from agents.console.forms import tell_done
from agents.console.panels import table
from agents.console.site import ReadOnlyAdmin
from agents.models import Agent, Alert
from evaluation.admin.display import MEASURE, TONES, dimension_badge, evaluation_link, judged_by, meter
from evaluation.change.over_time import Series, series_of
from evaluation.change.position import PositionDimension, position_profile
from evaluation.models import DriftAlert, EvaluationRun, EvaluationSchedule
from evaluation.runs.summary import Share, shares_of
from evaluation.wording import counted, interval_text, signed

MOST_CHARTS = 12
MOST_POINTS = 120
MOST_JUDGED = 2_000  # messages of an evaluation by position that a page waits for


def drift_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The agent's series as charts, or how to get some."""
    series = series_of(agent)
    context = {
        "charts": _charts(series[:MOST_CHARTS], agent.drift_alerts.all()[:200]),
        "more": max(0, len(series) - MOST_CHARTS),
        "waiting": not series and EvaluationRun.objects.filter(agent=agent, schedule__isnull=False).exists(),
        "slug": agent.slug,
        "alerts_url": display.list_url(DriftAlert, agent__id__exact=agent.pk),
        "schedules_url": display.list_url(EvaluationSchedule),
    }
    return render_to_string("admin/evaluation/drift/panel.html", context)


def _charts(series: Iterable[Series], alerts: Iterable[DriftAlert]) -> list[dict[str, Any]]:
    shown, raised = list(series), list(alerts)
    shares = shares_of({one.readings[-1].run for one in shown})
    return [_chart(one, [alert for alert in raised if _is_of(alert, one)], shares) for one in shown]


def _is_of(alert: DriftAlert, series: Series) -> bool:
    mine = (series.schedule.pk, series.dimension, series.judge, series.procedure)
    return (alert.schedule_id, alert.dimension, alert.judge, alert.procedure) == mine


def _chart(series: Series, alerts: Iterable[DriftAlert], shares: Mapping[int, Mapping[str, Share]]) -> dict[str, Any]:
    """The newest evaluations of a series on the fixed scale of 0 to 9, with its alerts and where it starts again."""
    shown = series.readings[-MOST_POINTS:]
    times = {point.run: point.time for point in shown}
    marks = [alert for alert in alerts if alert.evaluation_run_id in times]
    markers = [
        Marker(
            at=times[alert.evaluation_run_id],
            title=f"alert: fell from {alert.before:.1f} to {alert.after:.1f} since {timezone.localtime(alert.since):%Y-%m-%d}",
            url=reverse("admin:evaluation_driftalert_change", args=[alert.pk]),
            kind="alert",
        )
        for alert in marks
    ]
    because = {restart.run: restart.because for restart in series.restarts}
    markers += [
        Marker(at=point.time, title=f"starts again: {because.get(point.run, 'something was changed')}", kind="persona")
        for point in shown[1:]
        if point.restarts
    ]
    points = [
        Point(
            at=point.time,
            value=point.score,
            error=point.error,
            hollow=not point.tested,
            url=reverse("admin:evaluation_evaluationrun_change", args=[point.run]),
        )
        for point in shown
    ]
    first, last = (f"{timezone.localtime(point.time):%Y-%m-%d}" for point in (shown[0], shown[-1]))
    label = (
        f"{series.dimension} by {series.judge}: {counted(len(shown), 'evaluation')} from {first} to {last}, now {shown[-1].score:.1f}; "
        f"{counted(len(marks), 'alert')}"
    )
    return {
        "dimension": dimension_badge(series.dimension),
        "now": meter(shown[-1].score, share=shares.get(shown[-1].run, {}).get(series.dimension)),
        "judge": judged_by(series),
        "schedule": display.visible(series.schedule.name),
        "note": series.note,
        "chart": line_chart(
            [Line(name=series.dimension, points=points)],
            label=label,
            unit="of 9",
            shown="{:.1f}".format,
            markers=markers,
        ),
    }


def position_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The newest evaluation that was sampled by position: scores by stretch of the conversation."""
    runs = EvaluationRun.objects.filter(agent=agent, status=EvaluationRun.Status.COMPLETED).exclude(position_bins=[])
    run = runs.order_by("-created_at", "-pk").first()
    context: dict[str, Any] = {"slug": agent.slug}
    if request.user.has_perm(MEASURE):
        url = reverse("admin:evaluation_agent_evaluate", args=[agent.pk])
        context["ask_url"] = f"{url}?dimensions=adherence&samples=60&by=on"
    if run is not None:
        at = display.moment(run.finished_at)
        context |= {"run": evaluation_link(run.pk), "at": at, "judge": judged_by(run)}
        if run.sample_size > MOST_JUDGED:
            context["too_large"] = run.sample_size
        else:
            context["dimensions"] = [_by_position(dimension) for dimension in position_profile(run).dimensions.values()]
    return render_to_string("admin/evaluation/drift/by_position.html", context)


def _by_position(dimension: PositionDimension) -> dict[str, Any]:
    change = dimension.within
    return {
        "dimension": dimension_badge(dimension.dimension),
        "bins": table(
            ("Positions", "Score", "95 % interval", "Messages", "Conversations", "Unscored"),
            [
                (
                    row.positions,
                    meter(row.score, share=row.share),
                    interval_text(row.interval, sign=False),
                    *(f"{count:,}" for count in (row.messages, row.conversations, row.unscored)),
                )
                for row in dimension.bins
            ],
            label="Scores by position",
        ),
        "verdict": display.badge(change.verdict, TONES[change.verdict]),
        "change": signed(change.delta) if change.delta is not None else "",
        "interval": interval_text(change.interval) if change.interval is not None else "",
        "first": change.first,
        "last": change.last,
        "conversations": counted(change.conversations, "conversation"),
        "reason": display.visible(change.interval_note or change.reason),
    }


@admin.register(DriftAlert)
class DriftAlertAdmin(ReadOnlyAdmin[DriftAlert]):
    own_filters: ClassVar = {"acknowledged": ("alert__acknowledged_at", admin.EmptyFieldListFilter)}
    list_select_related = ("agent", "schedule", "alert__acknowledged_by")
    actions = ("acknowledge",)  # type: ignore[assignment]

    def get_panels(self, request: HttpRequest, obj: DriftAlert) -> list[SafeString]:
        panels = super().get_panels(request, obj)
        if obj.schedule is None:
            return panels
        series = series_of(obj.agent, schedule=obj.schedule, dimension=obj.dimension)
        charts = _charts([one for one in series if _is_of(obj, one)], [obj])
        return [*panels, *(render_to_string("admin/evaluation/drift/alert.html", {"chart": one}) for one in charts)]

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("agents.change_alert")

    @admin.action(description="Acknowledge", permissions=["acknowledge"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[DriftAlert]) -> None:
        done = acknowledge(Alert.objects.filter(drifts__in=queryset), user=user_of(request))
        tell_done(self, request, "alert", "acknowledged", done=done, chosen=queryset.count())

    @admin.display(description="fell from, to")
    def change(self, alert: DriftAlert) -> SafeString:
        return format_html('<span class="pl-pair">{} → {}</span>', f"{alert.before:.1f}", meter(alert.after))

    judge_mark = display.column("judge", judged_by, ordering="judge")

    @admin.display(description="state", ordering="alert__acknowledged_at")
    def state(self, drift: DriftAlert) -> SafeString:
        return alert_state(drift.alert) if drift.alert is not None else display.badge("new", "bad")
