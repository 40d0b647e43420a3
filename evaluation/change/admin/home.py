"""What comparing shows on the console's first page: who drifts, and what is missing to know."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from django.db.models import Exists, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.admin.markers import builds
from agents.builds import first_of_tags
from agents.kit.console import display
from agents.kit.console.charts import COLOURS, Line, Marker, MarkerSource, add_markers, line_chart, markers_of
from agents.kit.console.home import Answers, HomePart, Questions, add_home, number_link, step
from agents.kit.text.wording import counted
from agents.models import Agent
from evaluation.admin.display import judged_by
from evaluation.change.admin.drift import MOST_POINTS, axis_of, history_line, levels_of
from evaluation.change.admin.drift_overview import MOST_AGENTS, STATES, by_name, judge_name, usual_overview
from evaluation.change.history import ROLLING, History, histories
from evaluation.change.models import Baseline, DriftAlert
from evaluation.change.overview import AgentDrift, State, tag_name
from evaluation.change.sentences import numbers_of, short_name
from evaluation.models import COUNTED, Dimension, EvaluationRun, EvaluationSchedule

DIMENSIONS = [(value, label) for value, label in Dimension.choices if value not in COUNTED]
MOST_LINES, USUAL_LINES = COLOURS, 5
MOST_OFFERED = 60  # agents to choose from
MOST_RUNS, MOST_DRAWN = 50, 400  # the newest evaluations and messages of all that are drawn together
MOST_ALERTS = 30
NAMED = 4
COMPARED: tuple[State, ...] = ("drifted", "possibly drifted", "steady", "improved", "not enough data")  # states
LOOKED_AT = 300  # agents, for one without a baseline


def _without_baseline() -> QuerySet[Agent]:
    """Active agents that nothing can be compared with, among the newest."""
    has = Baseline.objects.filter(agent=OuterRef("pk"))
    newest = Agent.objects.in_use().order_by("-pk").values("pk")[:LOOKED_AT]
    return Agent.objects.filter(~Exists(has), pk__in=newest)


def count_baselines(request: HttpRequest) -> Questions:
    """Ask whether agents have no baseline, whether any has, and whether a schedule measures again."""
    return {
        "agents without baseline": Exists(_without_baseline()),
        "baselines": Exists(Baseline.objects.all()),
        "schedules": Exists(EvaluationSchedule.objects.all()),
    }


def no_baseline(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Active agents have no baseline: a few of them by name."""
    if not answers["agents without baseline"]:
        return None
    without = list(_without_baseline().order_by("display_name").only("display_name")[: NAMED + 1])
    names = format_html_join(", ", "{}", ((display.isolated(agent.display_name),) for agent in without[:NAMED]))
    who = format_html("{} and others", names) if len(without) > NAMED else names
    text = format_html(
        "Without one there is nothing to compare with. Missing: {}. In the list: choose agents, then “Capture baseline”.",
        who,
    )
    return step(
        "Agents have no baseline",
        text,
        command="manage.py capture_baseline --agents all",
        url=display.list_url(Agent, is_active__exact=1),
        label="Choose agents",
    )


def no_schedule(request: HttpRequest, answers: Answers) -> SafeString | None:
    """There are baselines, but no schedule measures again."""
    if answers["schedules"] or not answers["baselines"]:
        return None
    may = request.user.has_perm("evaluation.add_evaluationschedule")
    return step(
        "Nothing is measured again",
        "A schedule measures every night and raises an alert when a score falls and stays low.",
        command="manage.py schedule add nightly --every 1d --at 03:00",
        url=reverse("admin:evaluation_evaluationschedule_add") if may else "",
        label="Add a schedule",
    )


# -- who drifts, since when, and the scores of their messages
def ask_last_measured(request: HttpRequest) -> Questions:
    """Ask when an agent was measured last."""
    measured = EvaluationRun.objects.filter(status=EvaluationRun.Status.COMPLETED, agent__isnull=False)
    last = measured.order_by("-created_at").annotate(at=Coalesce("finished_at", "created_at"))
    return {"last measured": Subquery(last.values("at")[:1])}


def drifting_now(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Who drifted and since when, how many did not or are not known, and a few agents' scores over time.

    What the form does not offer is as if it were not given.
    """
    if not request.user.has_perm("agents.view_agent"):
        return None
    agents = list(by_name().filter(is_active=True).only("slug", "display_name", "avatar_color")[:MOST_AGENTS])
    now = usual_overview(agents, most=MOST_LINES)
    drifted, overview = now.states.get("drifted", 0), reverse("admin:evaluation_drift_overview")
    fallen = [drift for drift in now.drifts if drift.state == "drifted"]
    context = {
        "drifted": drifted,
        "compared": sum(now.states.get(state, 0) for state in COMPARED),
        "number": number_link(f"{overview}?state=drifted", f"{drifted:,}"),
        "agents": counted(sum(now.states.values()), "agent"),
        "bounded": MOST_AGENTS if sum(now.states.values()) == MOST_AGENTS else 0,
        "fallen": _since_when(fallen),
        "others": drifted - len(fallen),
        "states": [
            display.link(f"{overview}?state={quote(state)}", f"{now.states[state]:,} {state}")
            for state in STATES
            if state != "drifted" and now.states.get(state)
        ],
        "last": display.moment(answers["last measured"]) if answers["last measured"] else "",
        "overview_url": overview,
        **(
            _drawn(request, agents[:MOST_OFFERED], now.drifts)
            if request.user.has_perm("evaluation.view_evaluationrun")
            else {}
        ),
    }
    return render_to_string("admin/change/home.html", context)


def _since_when(fallen: Sequence[AgentDrift]) -> list[dict[str, Any]]:
    """Who fell, by since when: the first message of a tag that all their messages have now, else the baseline; most agents first."""
    groups: dict[str, dict[str, Any]] = {}
    for drift in fallen:
        name, at = drift.baseline_name, None
        if drift.main is not None and drift.main.since is not None:
            name, at = tag_name(drift.main.since), drift.main.since_at
        group = groups.setdefault(name, {"since": display.visible(name), "at": None, "who": []})
        group["at"] = min(filter(None, (group["at"], at)), default=None)
        group["who"].append(_fallen(drift))
    return sorted(groups.values(), key=lambda group: -len(group["who"]))


def _fallen(drift: AgentDrift) -> SafeString:
    """An agent, linked to its card, with the proposition that fell most and its scores."""
    url = f"{reverse('admin:agents_agent_change', args=[drift.agent.pk])}#change"
    name, scores = "", ""
    if (main := drift.main) is not None:
        name, scores = short_name(main.proposition, drift.agent.slug, main.dimension), numbers_of(main.result)
    return format_html(
        '{} <a class="pl-link pl-number" href="{}">{} {}</a>',
        agent_chip(drift.agent),
        url,
        display.visible(name),
        scores,
    )


def _drawn(request: HttpRequest, offered: Sequence[Agent], drifts: Sequence[AgentDrift]) -> dict[str, Any]:
    """Return the chart with its form: those who lost most, or those who were chosen of the ones that are offered."""
    asked, label_of = request.GET, dict(DIMENSIONS)
    dimension = asked.get("dimension", "")
    dimension = dimension if dimension in label_of else Dimension.ADHERENCE.value
    chosen = [agent for agent in offered if agent.slug in asked.getlist("agent")][:MOST_LINES]
    agents = chosen or [drift.agent for drift in drifts if drift.state != "never measured"][:USUAL_LINES]
    if not agents:  # nothing has a baseline: whoever was measured last
        newest = EvaluationRun.objects.filter(
            status=EvaluationRun.Status.COMPLETED, agent__isnull=False, simulated=False
        )
        by_time = newest.order_by("-created_at").values_list("agent_id", flat=True)
        last_measured = list(dict.fromkeys(by_time[:MOST_OFFERED]))[:USUAL_LINES]
        agents = list(Agent.objects.filter(pk__in=last_measured))
    pks = [agent.pk for agent in agents]
    tags = first_of_tags(pks) if pks else {}
    measured = histories(agents=pks, tags=tags, dimensions=[dimension], most_runs=MOST_RUNS, most=MOST_DRAWN)
    drawn = [one for one in measured if one.now is not None]
    ways = list(dict.fromkeys(one.judged for one in drawn))
    usual = next((drift.judged for drift in drifts if drift.judged in ways), next(iter(ways), None))
    way = next((way for way in ways if str(way) == asked.get("judge")), usual)
    by_agent = {one.agent: one.daily(MOST_POINTS // len(agents)) for one in drawn if one.judged == way}
    shown = [(agent, by_agent[agent.pk]) for agent in agents if agent.pk in by_agent]
    chart: SafeString | str = ""
    if shown:
        first, last = axis_of(one for _, one in shown)
        levels = _levels(drifts, by_agent, dimension)
        chart = line_chart(
            [_line(request, agent, one, levels.get(agent.pk)) for agent, one in shown],
            label=f"{label_of[dimension]} over time, 0 to 9",
            unit="of 9",
            markers=markers_of(request, list(by_agent), first, last, known=builds(request, tags, first, last)),
            since=first,
            until=last,
        )
    return {
        "dimensions": [(value, name, value == dimension) for value, name in DIMENSIONS],
        "ways": [(str(one), judge_name(one), one == way) for one in ways],
        "choices": [(agent.slug, display.isolated(agent.display_name), agent in chosen) for agent in offered],
        "most": MOST_LINES,
        "chart": chart,
        "what": f"{label_of[dimension]} of {len(shown)} of {len(offered)} agents: each dot is a message, the line the mean of {ROLLING}, "
        f"dotted the baseline{'; the newest only' if any(history.older for _, history in shown) else ''}.",
        "judge": judged_by(way) if way else "",
        "empty": f"{label_of[dimension]} has no score{' of these agents' if agents else ''} yet.",
        "agents_url": display.list_url(Agent, is_active__exact=1),
        "runs_url": display.list_url(EvaluationRun),
    }


def _levels(drifts: Sequence[AgentDrift], drawn: Mapping[int, History], dimension: str) -> dict[int, float | None]:
    """Return the baselines' scores by agent, of which those of the usual judge are read already."""
    known = {drift.agent.pk: drift for drift in drifts}
    if all(pk in known and known[pk].judged == history.judged for pk, history in drawn.items()):
        return {pk: known[pk].baseline_scores.get(dimension) for pk in drawn}
    levels = levels_of(drawn)
    return {pk: levels.get((pk, history.judged, dimension)) for pk, history in drawn.items()}


def _line(request: HttpRequest, agent: Agent, history: History, level: float | None) -> Line:
    """An agent's line; in the legend its newest mean and how much has no score."""
    unscored = f" · {history.unscored:,} unscored" if history.unscored else ""
    now = format_html('<span class="pl-number">{}</span>{}', f"{history.now:.1f}", unscored)
    url = reverse("admin:agents_agent_change", args=[agent.pk])
    return history_line(request, history, agent.display_name, level=level, note=now, url=url, band=False)


def alert_markers(agents: Collection[int], start: datetime, end: datetime) -> list[Marker]:
    """Each alert that was raised for one of these agents, where the fall began."""
    rows = DriftAlert.objects.filter(agent__in=agents, since__range=(start, end)).select_related("agent")
    return [
        Marker(
            at=alert.since,
            title=f"{alert.agent.display_name}: {alert.dimension.replace('_', ' ')} fell from {alert.before:.1f} to {alert.after:.1f}",
            url=reverse("admin:change_driftalert_change", args=[alert.pk]),
            kind="alert",
        )
        for alert in rows.order_by("-pk")[:MOST_ALERTS]
    ]


add_home(
    HomePart(place="setup", order=50, permission="change.view_baseline", asks=count_baselines, render=no_baseline),
    HomePart(
        place="setup",
        order=60,
        permission="evaluation.view_evaluationschedule",
        asks=count_baselines,
        render=no_schedule,
    ),
    HomePart(place="first", order=10, permission="change.view_baseline", asks=ask_last_measured, render=drifting_now),
)
add_markers(MarkerSource(permission="change.view_driftalert", find=alert_markers))
