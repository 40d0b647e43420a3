"""Drift over time and by position on an agent's page, and the alerts that schedules raised."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.markers import builds
from agents.admin.transcript import channel_url, position_url
from agents.builds import Tag, first_of_tags
from agents.kit.admin.access import user_of
from agents.kit.alerting import alert_url
from agents.kit.console import display
from agents.kit.console.charts import Line, Mean, Point, line_chart, markers_of
from agents.kit.console.forms import report_done
from agents.kit.console.panels import table
from agents.kit.console.site import ReadOnlyAdmin
from agents.kit.text.wording import counted, interval_text, signed
from agents.models import Agent
from evaluation.admin.display import MEASURE, TONES, dimension_badge, evaluation_link, judged_by, meter
from evaluation.calibration.admin.trust import trust
from evaluation.change.evidence import Judged
from evaluation.change.history import ROLLING, History, Scored, histories
from evaluation.change.models import Baseline, DriftAlert
from evaluation.change.over_time import acknowledge_drifts
from evaluation.change.position import PositionDimension, position_profile
from evaluation.models import EvaluationRun, EvaluationSchedule

MOST_CHARTS = 12
LATELY = timedelta(days=14)
MOST_POINTS = 200  # of a line; more are averaged by day
MOST_JUDGED = 2_000  # messages of an evaluation by position that a page waits for


def drift_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The agent's scores over time, a chart per dimension, judge and procedure, or how to get some."""
    tags = first_of_tags([agent.pk])
    drawn = histories(agents=[agent.pk], tags=tags)
    scored = [one for one in drawn if one.now is not None]
    context = {
        "charts": history_charts(request, agent, scored[:MOST_CHARTS], tags),
        "more": max(0, len(scored) - MOST_CHARTS),
        "unscored": [(dimension_badge(one.dimension), judged_by(one.judged)) for one in drawn if one.now is None],
        "slug": agent.slug,
        "evaluate_url": reverse("admin:evaluation_agent_evaluate", args=[agent.pk])
        if request.user.has_perm(MEASURE)
        else "",
        "alerts_url": display.list_url(DriftAlert, agent__id__exact=agent.pk),
        "schedules_url": display.list_url(EvaluationSchedule),
    }
    return render_to_string("admin/change/drift/panel.html", context)


def history_charts(
    request: HttpRequest, agent: Agent, drawn: Sequence[History], tags: Mapping[tuple[int, Tag], datetime]
) -> list[dict[str, Any]]:
    """Return a chart for each, with the baseline, and with what happened to the agent meanwhile."""
    if not drawn:
        return []
    first, last = axis_of(drawn)
    markers = markers_of(request, [agent.pk], first, last, known=builds(request, tags, first, last))
    levels = levels_of([agent.pk])
    charts = []
    for one in drawn:
        shown = one.daily(MOST_POINTS)
        said = said_of(shown)
        label = f"{one.dimension.replace('_', ' ')} by {one.judged.judge}: {said}"
        line = history_line(request, shown, one.dimension, level=levels.get((agent.pk, one.judged, one.dimension)))
        charts.append(
            {
                "dimension": dimension_badge(one.dimension),
                "now": meter(one.now),
                "judge": judged_by(one.judged),
                "said": said,
                "chart": line_chart([line], label=label, unit="of 9", markers=markers, since=first, until=last),
            }
        )
    return charts


def axis_of(drawn: Iterable[History]) -> tuple[datetime, datetime]:
    """From the first point to the last; to now where that is not long ago, so that what was changed since is seen."""
    ends = [(one.points[0].at, one.points[-1].at) for one in drawn]
    first, last, now = min(at for at, _ in ends), max(at for _, at in ends), timezone.now()
    return first, now if last < now < last + LATELY else last


def history_line(request: HttpRequest, history: History, name: str, *, band: bool = True, **line: Any) -> Line:
    """A history as a line, with the interval of its mean as a band; its points lead to what was judged, for those who may read it.

    Args:
        band: Whether it has one.
        line: More of the line: `level`, `note`, `url`.
    """
    points = []
    channels = {point.channel for point in history.points if point.channel is not None}
    transcripts = {channel: channel_url(channel) for channel in channels}
    may_read = request.user.has_perm("agents.view_message")
    for point in history.points:
        where = _where(point, transcripts) if may_read else {}
        points.append(Point(at=point.at, value=point.score, **where))
    means = []
    for one in history.rolled:
        within = one.interval if band else None
        ends = {} if within is None else {"low": within.low, "high": within.high}
        means.append(Mean(at=one.at, value=one.mean, starts=one.starts, **ends))
    return Line(name=name, points=points, means=means, **line)


def _where(point: Scored, transcripts: Mapping[int, str]) -> dict[str, Any]:
    """Return where a point leads, and what its hint says of that; `transcripts` are addresses by channel."""
    if point.message is None or point.channel is None:
        url = reverse("admin:evaluation_evaluationrun_change", args=[point.run])
        return {"url": url, "note": ", opens the evaluation"}
    note = f", mean of {point.of} messages, opens the lowest" if point.of > 1 else ", opens the message"
    return {"url": position_url(transcripts[point.channel], point.position), "note": note}


def said_of(history: History) -> str:
    """What the points of a chart are, how many have no score, and what is not drawn."""
    scored = len(history.points) - history.unscored
    unit = "day" if history.by_day else "message" if history.rolled else "evaluation"
    parts = [f"{counted(scored, unit)}" + (" (mean of each)" if history.by_day else "")]
    if history.unscored:
        parts.append(f"{history.unscored:,} unscored")
    if history.rolled:
        parts.append(f"line: mean of {ROLLING} messages, band: its 95 % interval")
    if history.older:
        parts.append("the newest only")
    return "; ".join(parts)


def levels_of(agents: Collection[int]) -> dict[tuple[int, Judged, str], float | None]:
    """The scores of their baselines, by agent, judge and procedure, and dimension."""
    fields = ("agent_id", "judge", "procedure", "dimension", "score")
    rows = Baseline.objects.filter(agent__in=agents).order_by().values_list(*fields)
    return {(pk, Judged(judge=judge, procedure=how), name): score for pk, judge, how, name, score in rows}


def position_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The newest evaluation that was sampled by position: scores by stretch of the conversation."""
    runs = EvaluationRun.objects.filter(agent=agent, status=EvaluationRun.Status.COMPLETED).exclude(position_bins=[])
    run = runs.order_by("-created_at", "-pk").first()
    context: dict[str, Any] = {"slug": agent.slug}
    if request.user.has_perm(MEASURE):
        url = reverse("admin:evaluation_agent_evaluate", args=[agent.pk])
        context["ask_url"] = f"{url}?dimensions=adherence&samples=60&by=position"
    if run is not None:
        at = display.moment(run.finished_at)
        context |= {"run": evaluation_link(run.pk), "at": at, "judge": judged_by(run)}
        if run.sample_size > MOST_JUDGED:
            context["too_large"] = run.sample_size
        else:
            context["dimensions"] = [_by_position(dimension) for dimension in position_profile(run).dimensions.values()]
    return render_to_string("admin/change/drift/by_position.html", context)


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
    own_filters: ClassVar = {"acknowledged": ("acknowledged_at", admin.EmptyFieldListFilter)}
    list_select_related = ("agent", "schedule", "acknowledged_by")
    actions = ("acknowledge",)  # type: ignore[assignment]

    def get_panels(self, request: HttpRequest, obj: DriftAlert) -> list[SafeString]:
        panels = super().get_panels(request, obj)
        way = Judged(judge=obj.judge, procedure=obj.procedure)
        tags = first_of_tags([obj.agent_id])
        drawn = histories(agents=[obj.agent_id], tags=tags, dimensions=[obj.dimension], judged=way)
        charts = history_charts(request, obj.agent, [one for one in drawn if one.now is not None], tags)
        context: dict[str, object] = {"evaluation": evaluation_link(obj.evaluation_run_id)}
        changed = f"what changed in {obj.agent.display_name}, and what to do"
        context["trust"] = trust(obj.judge, obj.procedure, [obj.dimension], request.user, agent=obj.agent.slug)
        context["changed"] = display.link(f"{display.page_url(obj.agent)}#change", changed)
        if obj.acknowledged_at is None and obj.alert_id is not None and self.has_acknowledge_permission(request):
            url = alert_url(obj.alert_id)
            context["waiting"] = display.link(url, "acknowledge the alert") if url else ""
        return [
            *panels,
            *(render_to_string("admin/change/drift/alert.html", {**context, "chart": c}) for c in charts),
        ]

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        may = request.user.has_perm
        return may("alerts.change_alert") or may("change.change_driftalert")  # the latter where nothing sends alerts

    @admin.action(description="Acknowledge", permissions=["acknowledge"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[DriftAlert]) -> None:
        done = acknowledge_drifts(queryset, user=user_of(request))
        report_done(self, request, "alert", "acknowledged", done=done, chosen=queryset.count())

    @admin.display(description="fell from, to")
    def change(self, alert: DriftAlert) -> SafeString:
        return format_html('<span class="pl-pair">{} → {}</span>', f"{alert.before:.1f}", meter(alert.after))

    judge_mark = display.column("judge", judged_by, ordering="judge")

    state = display.column("state", display.acknowledgement, ordering="acknowledged_at")
