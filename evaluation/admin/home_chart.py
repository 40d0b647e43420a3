"""Drift over time on the first page: a line per agent, against its baseline, with what was changed on the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.charts import COLOURS, Line, Marker, Point, line_chart
from agents.admin.home_parts import since
from agents.admin.markers import MarkerSource, add_markers, markers_of
from agents.models import Agent
from evaluation.admin.display import coverage_mark, judge_badge, procedure_badge
from evaluation.change.evidence import Judged
from evaluation.change.history import History, Reading, histories, measured_lately
from evaluation.coverage import Share, shares_of
from evaluation.models import COUNTED, Dimension, DriftAlert, EvaluationRun, EvaluationSchedule, Method, is_heuristic
from evaluation.wording import counted

DAYS = (7, 30, 90, 180, 365)
USUAL_DAYS = 30
DIMENSIONS = [(value, label) for value, label in Dimension.choices if value not in COUNTED]
MOST_LINES = COLOURS
MOST_ALERTS = 30


@dataclass(frozen=True, slots=True)
class Choice:
    """What the form above the chart asks for; anything it does not offer is as if it were not said."""

    dimension: str
    days: int
    way: str
    agents: tuple[str, ...]

    @classmethod
    def of(cls, request: HttpRequest) -> Choice:
        asked = request.GET
        dimension = asked.get("dimension", "")
        days = asked.get("days", "")
        return cls(
            dimension=dimension if dimension in dict(DIMENSIONS) else Dimension.ADHERENCE.value,
            days=int(days) if days in {str(one) for one in DAYS} else USUAL_DAYS,
            way=asked.get("judge", "")[:300],
            agents=tuple(slug[:64] for slug in asked.getlist("agent")[:MOST_LINES]),
        )


def drift_chart(request: HttpRequest) -> SafeString:
    """The chart with its form, or how to get a first measurement."""
    choice = Choice.of(request)
    start, end = since(24 * choice.days), timezone.now()
    lately = measured_lately(since=start)
    way = next((way for way in lately.ways if str(way) == choice.way), lately.ways[0] if lately.ways else None)
    offered = lately.agents.get(way, ()) if way is not None else ()
    found = [] if way is None else histories(agents=offered, judged=way, dimension=choice.dimension, since=start)
    chosen = [history for history in found if history.agent.slug in choice.agents]
    shown = (chosen or found)[:MOST_LINES]
    context = {
        "dimensions": [(value, label, value == choice.dimension) for value, label in DIMENSIONS],
        "days": [(days, counted(days, "day"), days == choice.days) for days in DAYS],
        "ways": [(str(one), _way_name(one), one == way) for one in lately.ways],
        "agents": [
            (history.agent.slug, display.isolated(history.agent.display_name), history in chosen)
            for history in _by_name(found)
        ],
        "most": MOST_LINES,
        "judge": "" if way is None else format_html("{} {}", judge_badge(way.judge), procedure_badge(way.procedure)),
        "sentence": _sentence(shown, len(found), chosen=bool(chosen)),
        "chart": _chart(request, shown, choice, start, end) if shown else "",
        "empty": f"Nothing was measured in the last {counted(choice.days, 'day')}."
        if way is None
        else f"{Dimension(choice.dimension).label} was not measured in the last {counted(choice.days, 'day')} by this judge.",
        "runs_url": display.list_url(EvaluationRun),
        "schedules_url": display.list_url(EvaluationSchedule),
    }
    return render_to_string("admin/home/drift.html", context)


def _chart(
    request: HttpRequest, shown: Sequence[History], choice: Choice, start: datetime, end: datetime
) -> SafeString:
    agents = [history.agent.pk for history in shown]
    dimension = Dimension(choice.dimension).label
    shares = shares_of({history.newest.run for history in shown if history.newest is not None})
    of_run = {run: found.get(choice.dimension) for run, found in shares.items()}
    return line_chart(
        [_line(history, of_run) for history in shown],
        label=f"{dimension} over the last {counted(choice.days, 'day')}, 0 to 9",
        unit="of 9",
        shown="{:.1f}".format,
        markers=markers_of(request, agents, start, end),
        since=start,
        until=end,
    )


def _line(history: History, shares: Mapping[int, Share | None]) -> Line:
    agent = history.agent
    return Line(
        name=agent.display_name,
        points=[_point(agent, reading) for reading in history.readings],
        note=_now(history, shares),
        url=reverse("admin:agents_agent_change", args=[agent.pk]),
        level=history.baseline,
    )


def _point(agent: Agent, reading: Reading) -> Point:
    url = reverse("admin:evaluation_evaluationrun_change", args=[reading.run])
    return Point(at=reading.at, value=reading.score, error=reading.error, url=url)


def _now(history: History, shares: Mapping[int, Share | None]) -> SafeString:
    """The newest score in the legend, with the share scored."""
    newest = history.newest
    if newest is None:
        return display.badge("not scored", "warning")
    return format_html(
        '<span class="pl-number">{}</span>{}', f"{newest.score:.1f}", coverage_mark(shares.get(newest.run))
    )


def _sentence(shown: Sequence[History], there: int, *, chosen: bool) -> str:
    """Which agents are shown, of how many."""
    if not shown:
        return ""
    missing = sum(history.left_out for history in shown)
    older = f" {counted(missing, 'older evaluation')} of no schedule not drawn." if missing else ""
    if chosen or there <= MOST_LINES:
        return f"{counted(len(shown), 'agent')}. Dotted: their baselines.{older}"
    return f"The {len(shown)} of {there} agents that lie furthest below their baselines (dotted).{older}"


def _by_name(found: Sequence[History]) -> list[History]:
    return sorted(found, key=lambda history: history.agent.display_name.casefold())


def _way_name(way: Judged) -> str:
    name = f"{way.judge} (heuristic)" if is_heuristic(way.judge) else way.judge
    return name if way.procedure == Method.PLUMBLINE else f"{name}, {way.procedure}"


def alert_markers(agents: Collection[int], start: datetime, end: datetime) -> list[Marker]:
    """Each alert that was raised for one of these agents."""
    rows = DriftAlert.objects.filter(agent__in=agents, created_at__range=(start, end)).select_related("agent")
    return [
        Marker(
            at=alert.created_at,
            title=f"{alert.agent.display_name}: {alert.dimension.replace('_', ' ')} fell from {alert.before:.1f} to {alert.after:.1f}",
            url=reverse("admin:evaluation_driftalert_change", args=[alert.pk]),
            kind="alert",
        )
        for alert in rows.order_by("-pk")[:MOST_ALERTS]
    ]


add_markers(MarkerSource(permission="evaluation.view_driftalert", find=alert_markers))
