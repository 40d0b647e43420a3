"""Scores over time, drawn: a chart per agent, dimension, schedule, judge and procedure, with the alerts raised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.models import Agent
from evaluation.admin.display import dimension_badge, judge_badge, meter, procedure_badge
from evaluation.change.over_time import Evaluation, Series, series_of
from evaluation.change.tables import newest_restart
from evaluation.coverage import Share, shares_of
from evaluation.models import DriftAlert, EvaluationRun, EvaluationSchedule
from evaluation.wording import counted

WIDTH, HEIGHT = 720, 150
LEFT, RIGHT, TOP, BOTTOM = 16, WIDTH - 8, 14, HEIGHT - 20
GRID = (0, 3, 6, 9)
MOST_CHARTS = 12
MOST_POINTS = 120


def drift_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The agent's series as charts, or how to get some."""
    found = series_of(agent)
    alerts = list(agent.drift_alerts.all()[:200])
    waiting = not found and EvaluationRun.objects.filter(agent=agent, schedule__isnull=False).exists()
    shares = shares_of({series.evaluations[-1].run for series in found[:MOST_CHARTS]})
    context = {
        "charts": [chart(series, alerts, shares) for series in found[:MOST_CHARTS]],
        "more": max(0, len(found) - MOST_CHARTS),
        "waiting": waiting,
        "slug": agent.slug,
        "alerts_url": display.list_url(DriftAlert, agent__id__exact=agent.pk),
        "schedules_url": display.list_url(EvaluationSchedule),
    }
    return render_to_string("admin/evaluation/drift/panel.html", context)


def chart(
    series: Series, alerts: Iterable[DriftAlert] = (), shares: Mapping[int, Mapping[str, Share]] | None = None
) -> dict[str, Any]:
    """What the template draws: the newest evaluations of a series on the fixed scale of 0 to 9."""
    shown = series.evaluations[-MOST_POINTS:]
    first, last = shown[0].time, shown[-1].time
    at = {point.run: _x(point.time, first, last) for point in shown}
    marks = [alert for alert in alerts if _belongs(alert, series) and alert.evaluation_run_id in at]
    judge = format_html("{} {}", judge_badge(series.judge), procedure_badge(series.procedure))
    return {
        "dimension": dimension_badge(series.dimension),
        "now": meter(shown[-1].score, share=(shares or {}).get(shown[-1].run, {}).get(series.dimension)),
        "judge": judge,
        "schedule": display.visible(series.schedule.name),
        "note": series.note,
        "restarted": display.visible(newest_restart(series)),
        "label": _label(series, shown, len(marks)),
        **{"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM},
        "grid": [{"score": score, "y": _y(score), "text": _text(float(_y(score)) + 4)} for score in GRID],
        "points": [_point(point, at[point.run]) for point in shown],
        "lines": _lines(shown, at),
        "restarts": [_text(at[point.run]) for point in shown[1:] if point.restarts],
        "alerts": [_mark(alert, at[alert.evaluation_run_id], series) for alert in marks],
        "table": [_row(point, marks) for point in reversed(shown)],
        "first": _day(first),
        "last": _day(last) if last > first else "",
    }


def _belongs(alert: DriftAlert, series: Series) -> bool:
    mine = (series.schedule.pk, series.dimension, series.judge, series.procedure)
    return (alert.schedule_id, alert.dimension, alert.judge, alert.procedure) == mine


def _point(point: Evaluation, x: float) -> dict[str, Any]:
    error = point.error
    sure = "" if error is None else f" ± {error:.2f}"
    return {
        "x": _text(x),
        "y": _y(point.score),
        "high": "" if error is None else _y(min(9.0, point.score + error)),
        "low": "" if error is None else _y(max(0.0, point.score - error)),
        "tested": point.tested,
        "title": f"{_day(point.time)}: {point.score:.2f}{sure}, evaluation {point.run}",
    }


def _row(point: Evaluation, marks: Iterable[DriftAlert]) -> dict[str, Any]:
    """The same point in words."""
    alerted = ["alert" for alert in marks if alert.evaluation_run_id == point.run]
    remarks = [*alerted, *(["starts anew"] if point.restarts else []), *([] if point.tested else ["not tested"])]
    return {
        "when": display.moment(point.time),
        "score": f"{point.score:.2f}",
        "error": "not known" if point.error is None else f"± {point.error:.2f}",
        "remarks": ", ".join(remarks) or display.EMPTY,
        "url": reverse("admin:evaluation_evaluationrun_change", args=[point.run]),
    }


def _lines(shown: Sequence[Evaluation], at: dict[int, float]) -> list[str]:
    """The points of each stretch in which nothing was changed, as a polyline takes them."""
    stretches: list[list[str]] = [[]]
    for point in shown:
        if point.restarts:
            stretches.append([])
        stretches[-1].append(f"{_text(at[point.run])},{_y(point.score)}")
    return [" ".join(stretch) for stretch in stretches if len(stretch) > 1]


def _mark(alert: DriftAlert, x: float, series: Series) -> dict[str, Any]:
    score = next(point.score for point in series.evaluations if point.run == alert.evaluation_run_id)
    return {
        "x": _text(x),
        "y": _text(float(_y(score)) - 5),
        "url": reverse("admin:evaluation_driftalert_change", args=[alert.pk]),
        "acknowledged": alert.acknowledged_at is not None,
        "title": f"alert: fell from {alert.before:.1f} to {alert.after:.1f} since {_day(alert.since)}",
    }


def _label(series: Series, shown: Sequence[Evaluation], alerts: int) -> str:
    scores = [point.score for point in shown]
    return (
        f"{series.dimension} by {series.judge}: {counted(len(shown), 'evaluation')} from {_day(shown[0].time)} to {_day(shown[-1].time)}, "
        f"scores {min(scores):.1f} to {max(scores):.1f}, now {scores[-1]:.1f}; {counted(alerts, 'alert')}"
    )


def _x(time: datetime, first: datetime, last: datetime) -> float:
    share = (time - first) / (last - first) if last > first else 0.5
    return LEFT + 6 + share * (RIGHT - LEFT - 12)


def _y(score: float) -> str:
    return _text(BOTTOM - score / 9 * (BOTTOM - TOP))


def _text(number: float | str) -> str:
    return f"{float(number):.1f}"


def _day(time: datetime) -> str:
    return f"{timezone.localtime(time):%Y-%m-%d}"
