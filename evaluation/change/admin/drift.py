"""Drift over time and by position on an agent's page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from agents.admin.markers import builds
from agents.admin.transcript import channel_url, position_url
from agents.builds import Tag, first_said_with_tag
from agents.kit.console import display
from agents.kit.console.charts import (
    MOST_OF_A_KIND,
    Line,
    Marker,
    MarkerSource,
    Mean,
    Point,
    add_markers,
    line_chart,
    markers_of,
)
from agents.kit.console.panels import table
from agents.kit.text.wording import counted, interval_text, signed
from agents.models import Agent
from evaluation.admin.display import MEASURE, TONES, dimension_badge, evaluation_link, judged_by, meter
from evaluation.calibration.admin.trust import not_usable, passport_badge
from evaluation.calibration.labels import Key
from evaluation.calibration.passport import passport_of, passports
from evaluation.calibration.stored import agreements_of
from evaluation.change.admin.sentinel import judge_notices
from evaluation.change.evidence import JudgeAndProcedure
from evaluation.change.history import ROLLING, History, Scored, histories
from evaluation.change.models import Baseline, DriftAlert
from evaluation.change.position import PositionDimension, position_profile
from evaluation.models import EvaluationRun, EvaluationSchedule

MOST_CHARTS = 12
MOST_POINTS = 200  # of a line; more are averaged by day
MOST_JUDGED = 2_000  # messages of an evaluation by position that a page waits for
RECENT = timedelta(days=14)
BIN_HEADINGS = ("Positions", "Score", "95 % interval", "Messages", "Conversations", "Unscored")


# -- over time
def drift_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """Return the agent's scores over time, a chart per dimension, judge and procedure, 12 at most, or how to get some.

    Histories in which nothing has a score are named without a chart.
    """
    # When it first said something with a tag: the rolling mean starts again there.
    tags = first_said_with_tag([agent.pk])
    measured = histories(agents=[agent.pk], tags=tags)
    scored = [history for history in measured if history.now is not None]
    unscored = [history for history in measured if history.now is None]
    evaluate_url = ""
    if request.user.has_perm(MEASURE):
        evaluate_url = reverse("admin:evaluation_agent_evaluate", args=[agent.pk])
    context = {
        "judge_changed": judge_notices([history.judged.judge for history in measured]),
        "charts": history_charts(request, agent, scored[:MOST_CHARTS], tags),
        "more": max(0, len(scored) - MOST_CHARTS),
        "unscored": [(dimension_badge(history.dimension), judged_by(history.judged)) for history in unscored],
        "slug": agent.slug,
        "evaluate_url": evaluate_url,
        "alerts_url": display.list_url(DriftAlert, agent__id__exact=agent.pk),
        "schedules_url": display.list_url(EvaluationSchedule),
    }
    return render_to_string("admin/change/drift/panel.html", context)


def history_charts(
    request: HttpRequest, agent: Agent, drawn: Sequence[History], tags: Mapping[tuple[int, Tag], datetime]
) -> list[dict[str, Any]]:
    """Return a chart for each history, with the baseline, and with what happened to the agent meanwhile; all on one axis of time.

    Args:
        drawn: Of this agent; each has a score.
        tags: When the agent first said something with a tag of a build, see `first_said_with_tag`; a mark stands there.
    """
    if not drawn:
        return []
    first, last = _axis_of(drawn)
    markers = markers_of(request, [agent.pk], first, last, known=builds(request, tags, first, last))
    baseline_scores = baseline_scores_of([agent.pk])
    agreements = agreements_of({history.judged.judge for history in drawn})
    charts = []
    for history in drawn:
        key = Key(history.judged.judge, history.judged.procedure, history.dimension)
        passport = passport_of(key, agreements.get(key), agent=agent.slug)
        daily = history.daily(MOST_POINTS)
        summary = points_text(daily)
        baseline_score = baseline_scores.get((agent.pk, history.judged, history.dimension))
        line = _history_line(request, daily, level=baseline_score)
        charts.append(
            {
                "dimension": dimension_badge(history.dimension),
                "judge": judged_by(history.judged),
                "passport": passport_badge(passport),
                "summary": summary,
                "chart": line_chart(
                    [line],
                    label=f"{history.dimension.replace('_', ' ')} by {history.judged.judge}: {summary}",
                    unit="of 9",
                    markers=markers,
                    since=first,
                    until=last,
                ),
            }
        )
    return charts


def dimension_chart(
    request: HttpRequest, agent: Agent, dimension: str, judged: JudgeAndProcedure
) -> dict[str, Any] | None:
    """Return the chart of one dimension by one judge and procedure (see `history_charts`); None where nothing of it has a score."""
    tags = first_said_with_tag([agent.pk])
    measured = histories(agents=[agent.pk], tags=tags, dimensions=[dimension], judged=judged)
    scored = [history for history in measured if history.now is not None]
    charts = history_charts(request, agent, scored, tags)
    return charts[0] if charts else None


def _axis_of(drawn: Collection[History]) -> tuple[datetime, datetime]:
    """Return the times of the first point and of the last.

    The axis ends now where the last point is recent, so that what was changed since is seen.
    """
    first = min(history.points[0].at for history in drawn)
    last = max(history.points[-1].at for history in drawn)
    now = timezone.now()
    if last < now < last + RECENT:
        return first, now
    return first, last


def _history_line(request: HttpRequest, history: History, *, level: float | None) -> Line:
    """Return a history as a line; its points lead to what was judged, for those who may read it. `level` is the baseline's score."""
    channels = {point.channel for point in history.points if point.channel is not None}
    transcripts = {channel: channel_url(channel) for channel in channels}
    may_read = request.user.has_perm("agents.view_message")
    points = []
    for scored in history.points:
        point = Point(at=scored.at, value=scored.score)
        if may_read:
            point = replace(point, url=_judged_url(scored, transcripts), note=_point_note(scored))
        points.append(point)
    means = []
    for rolling_mean in history.rolling_means:
        mean = Mean(at=rolling_mean.at, value=rolling_mean.mean, starts=rolling_mean.starts)
        interval = rolling_mean.interval
        if interval is not None:
            mean = replace(mean, low=interval.low, high=interval.high)
        means.append(mean)
    return Line(name=history.dimension, points=points, means=means, level=level)


def _judged_url(scored: Scored, transcripts: Mapping[int, str]) -> str:
    """Return where a point leads: to its message, or to the evaluation of a window; `transcripts` are addresses by channel."""
    if scored.message is None or scored.channel is None:
        return reverse("admin:evaluation_evaluationrun_change", args=[scored.run])
    return position_url(transcripts[scored.channel], scored.position)


def _point_note(scored: Scored) -> str:
    """Return what the hint of a point says of where it leads."""
    if scored.message is None or scored.channel is None:
        return ", opens the evaluation"
    if scored.messages > 1:
        return f", mean of {scored.messages} messages, opens the lowest"
    return ", opens the message"


def points_text(history: History) -> str:
    """Return what the points of a chart are, how many have no score, and what is not drawn."""
    scored = len(history.points) - history.unscored
    if history.by_day:
        sentences = [f"{counted(scored, 'day')} (mean of each)"]
    elif history.rolling_means:
        sentences = [counted(scored, "message")]
    else:
        sentences = [counted(scored, "evaluation")]
    if history.unscored:
        sentences.append(f"{history.unscored:,} unscored")
    if history.rolling_means:
        sentences.append(f"line: mean of {ROLLING} messages, band: its 95 % interval")
    if history.older:
        sentences.append("the newest only")
    return "; ".join(sentences)


def baseline_scores_of(agents: Collection[int]) -> dict[tuple[int, JudgeAndProcedure, str], float | None]:
    """Return the scores of baselines by agent, judge with procedure, and dimension."""
    scores = {}
    for baseline in Baseline.objects.filter(agent__in=agents).order_by():
        judged = JudgeAndProcedure(judge=baseline.judge, procedure=baseline.procedure)
        scores[baseline.agent_id, judged, baseline.dimension] = baseline.score
    return scores


def alert_markers(agents: Collection[int], start: datetime, end: datetime) -> list[Marker]:
    """Return a marker for the newest alerts (30) of these agents whose fall began in this time; it stands where it began."""
    alerts = DriftAlert.objects.filter(agent__in=agents, since__range=(start, end)).select_related("agent")
    markers = []
    for alert in alerts.order_by("-pk")[:MOST_OF_A_KIND]:
        dimension = alert.dimension.replace("_", " ")
        markers.append(
            Marker(
                at=alert.since,
                title=(
                    f"{alert.agent.display_name}: {dimension} fell from {alert.before:.1f} to {alert.after:.1f}"
                    f", noticed in evaluation {alert.evaluation_run_id}"
                ),
                url=reverse("admin:change_driftalert_change", args=[alert.pk]),
                kind="alert",
            )
        )
    return markers


add_markers(MarkerSource(permission="change.view_driftalert", find=alert_markers))


# -- by position
def position_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """Return the newest evaluation that was sampled by position: scores by stretch of the conversation; or how to get one.

    Of one with more than 2,000 judged messages the page only says that it is too large.
    """
    context: dict[str, Any] = {"slug": agent.slug}
    if request.user.has_perm(MEASURE):
        url = reverse("admin:evaluation_agent_evaluate", args=[agent.pk])
        context["ask_url"] = f"{url}?dimensions=adherence&samples=60&by=position"
    completed = EvaluationRun.objects.filter(agent=agent, status=EvaluationRun.Status.COMPLETED)
    run = completed.exclude(position_bins=[]).order_by("-created_at", "-pk").first()
    if run is not None:
        context["run"] = evaluation_link(run.pk)
        context["at"] = display.moment(run.finished_at)
        context["judge"] = judged_by(run)
        if run.sample_size > MOST_JUDGED:
            context["too_large"] = run.sample_size
        else:
            profile = position_profile(run)
            context["not_usable"] = not_usable(
                passports(run.judge, run.procedure, profile.dimensions, agent=agent.slug)
            )
            context["dimensions"] = [_position_context(dimension) for dimension in profile.dimensions.values()]
    return render_to_string("admin/change/drift/by_position.html", context)


def _position_context(dimension: PositionDimension) -> dict[str, Any]:
    """Return for the template the scores of a dimension by position, and how it changed within conversations."""
    rows: list[tuple[object, ...]] = []
    for row in dimension.bins:
        score = meter(row.score, share=row.share)
        interval = interval_text(row.interval, sign=False)
        rows.append(
            (row.positions, score, interval, f"{row.messages:,}", f"{row.conversations:,}", f"{row.unscored:,}")
        )
    change = dimension.within
    return {
        "dimension": dimension_badge(dimension.dimension),
        "bins": table(BIN_HEADINGS, rows, label="Scores by position"),
        "verdict": display.badge(change.verdict, TONES[change.verdict]),
        "change": signed(change.delta) if change.delta is not None else "",
        "interval": interval_text(change.interval) if change.interval is not None else "",
        "first": change.first,
        "last": change.last,
        "conversations": counted(change.conversations, "conversation"),
        "reason": display.visible(change.interval_note or change.reason),
    }
