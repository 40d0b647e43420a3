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
from agents.builds import Tag, first_said_with_tag
from agents.kit.console import display
from agents.kit.console.charts import COLOURS, Line, Marker, MarkerSource, add_markers, line_chart, markers_of
from agents.kit.console.home import Answers, HomePart, Questions, add_home, number_link, step
from agents.kit.text.wording import counted
from agents.models import Agent
from evaluation.admin.display import judged_by
from evaluation.calibration.admin.trust import not_usable
from evaluation.change.admin.drift import MOST_POINTS, axis_of, baseline_scores_of, history_line
from evaluation.change.admin.drift_overview import (
    MOST_AGENTS,
    STATES,
    by_name,
    judge_name,
    passports_of_drifts,
    usual_overview,
)
from evaluation.change.evidence import Judged
from evaluation.change.history import ROLLING, History, histories
from evaluation.change.models import Baseline, DriftAlert
from evaluation.change.overview import AgentDrift, Overview, State, tag_name
from evaluation.change.sentences import numbers_of, short_name
from evaluation.models import COUNTED, Dimension, EvaluationRun, EvaluationSchedule

DIMENSION_NAMES = {value: label for value, label in Dimension.choices if value not in COUNTED}
MOST_LINES = COLOURS
USUAL_LINES = 5  # where no agent was chosen
MOST_OFFERED = 60  # agents to choose from
MOST_RUNS = 50  # the newest evaluations of all agents that are drawn
MOST_MESSAGES = 400  # the newest messages of all agents that are drawn
MOST_ALERTS = 30
MOST_NAMED = 4  # agents without a baseline
MOST_CHECKED = 300  # the newest agents, for one without a baseline
COMPARED: tuple[State, ...] = ("drifted", "possibly drifted", "steady", "improved", "not enough data")


# -- what to set up
def _without_baseline() -> QuerySet[Agent]:
    """Return active agents that nothing can be compared with, among the newest."""
    own_baselines = Baseline.objects.filter(agent=OuterRef("pk"))
    newest = Agent.objects.in_use().order_by("-pk").values("pk")[:MOST_CHECKED]
    return Agent.objects.filter(~Exists(own_baselines), pk__in=newest)


def ask_for_baselines(request: HttpRequest) -> Questions:
    """Ask whether agents have no baseline, whether any has, and whether a schedule measures again."""
    return {
        "agents without baseline": Exists(_without_baseline()),
        "baselines": Exists(Baseline.objects.all()),
        "schedules": Exists(EvaluationSchedule.objects.all()),
    }


def no_baseline(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return the step for active agents without a baseline, a few of them by name; None without any."""
    if not answers["agents without baseline"]:
        return None
    agents = list(_without_baseline().order_by("display_name").only("display_name")[: MOST_NAMED + 1])
    named = [display.isolated(agent.display_name) for agent in agents[:MOST_NAMED]]
    names = format_html_join(", ", "{}", ((name,) for name in named))
    if len(agents) > MOST_NAMED:
        names = format_html("{} and others", names)
    text = format_html(
        "Without one there is nothing to compare with. Missing: {}. In the list: choose agents, then “Capture baseline”.",
        names,
    )
    return step(
        "Agents have no baseline",
        text,
        command="manage.py capture_baseline --agents all",
        url=display.list_url(Agent, is_active__exact=1),
        label="Choose agents",
    )


def no_schedule(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return the step for baselines without a schedule that measures again; None where there is one."""
    if answers["schedules"] or not answers["baselines"]:
        return None
    url = ""
    if request.user.has_perm("evaluation.add_evaluationschedule"):
        url = reverse("admin:evaluation_evaluationschedule_add")
    return step(
        "Nothing is measured again",
        "A schedule measures every night and raises an alert when a score falls and stays low.",
        command="manage.py schedule add nightly --every 1d --at 03:00",
        url=url,
        label="Add a schedule",
    )


# -- who drifts, and since when
def ask_last_measured(request: HttpRequest) -> Questions:
    """Ask when an agent was measured last."""
    measured = EvaluationRun.objects.filter(status=EvaluationRun.Status.COMPLETED, agent__isnull=False)
    last = measured.order_by("-created_at").annotate(at=Coalesce("finished_at", "created_at"))
    return {"last measured": Subquery(last.values("at")[:1])}


def drifting_now(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return who drifted and since when, how many did not or are not known, and a few agents' scores over time.

    None for those who may not see agents; without scores for those who may not see evaluations.
    """
    if not request.user.has_perm("agents.view_agent"):
        return None
    agents = list(by_name().filter(is_active=True).only("slug", "display_name", "avatar_color")[:MOST_AGENTS])
    overview = usual_overview(agents, most=MOST_LINES)
    count = sum(overview.states.values())
    drifted = overview.states.get("drifted", 0)
    named = [drift for drift in overview.drifts if drift.state == "drifted"]
    overview_url = reverse("admin:evaluation_drift_overview")
    context: dict[str, Any] = {
        "drifted": drifted,
        "compared": sum(overview.states.get(state, 0) for state in COMPARED),
        "number": number_link(f"{overview_url}?state=drifted", f"{drifted:,}"),
        "agents": counted(count, "agent"),
        "bounded": MOST_AGENTS if count == MOST_AGENTS else 0,  # there may be more agents
        "not_usable": _not_usable_line(overview.drifts),
        "fallen": _by_since_when(named),
        "others": drifted - len(named),
        "states": _other_states(overview, overview_url),
        "last": display.moment(answers["last measured"]) if answers["last measured"] else "",
        "overview_url": overview_url,
    }
    if request.user.has_perm("evaluation.view_evaluationrun"):
        context |= _chart_context(request, agents[:MOST_OFFERED], overview.drifts)
    return render_to_string("admin/change/home.html", context)


def _not_usable_line(drifts: Sequence[AgentDrift]) -> SafeString:
    """Return that the judge of these agents is surely not usable; empty where it is not known to be."""
    judged = next((drift.judged for drift in drifts if drift.judged is not None), None)
    return not_usable(passports_of_drifts(judged, drifts))


def _other_states(overview: Overview, overview_url: str) -> list[SafeString]:
    """Return links to the agents in each state but the one of the heading."""
    links = []
    for state in STATES:
        count = overview.states.get(state, 0)
        if count and state != "drifted":
            links.append(display.link(f"{overview_url}?state={quote(state)}", f"{count:,} {state}"))
    return links


def _by_since_when(drifted: Sequence[AgentDrift]) -> list[dict[str, Any]]:
    """Return who fell, grouped by since when: the first message of a tag that all their messages have now, else the baseline.

    The group with most agents comes first; `at` is the earliest such message of its agents, None for a baseline.
    """
    groups: dict[str, dict[str, Any]] = {}
    for drift in drifted:
        name, at = drift.baseline_name, None
        if drift.main is not None and drift.main.since is not None:
            name, at = tag_name(drift.main.since), drift.main.since_at
        group = groups.setdefault(name, {"since": display.visible(name), "at": at, "who": []})
        if at is not None and (group["at"] is None or at < group["at"]):
            group["at"] = at
        group["who"].append(_fallen_agent(drift))
    return sorted(groups.values(), key=lambda group: -len(group["who"]))


def _fallen_agent(drift: AgentDrift) -> SafeString:
    """Return an agent, linked to its card, with the proposition that fell most and its scores."""
    url = f"{reverse('admin:agents_agent_change', args=[drift.agent.pk])}#change"
    name = ""
    scores = ""
    if drift.main is not None:
        name = short_name(drift.main.proposition, drift.agent.slug, drift.main.dimension)
        scores = numbers_of(drift.main.result)
    return format_html(
        '{} <a class="pl-link pl-number" href="{}">{} {}</a>',
        agent_chip(drift.agent),
        url,
        display.visible(name),
        scores,
    )


# -- the scores of their messages
def _chart_context(request: HttpRequest, offered: Sequence[Agent], drifts: Sequence[AgentDrift]) -> dict[str, Any]:
    """Return the chart with its form: of those who lost most, or of those who were chosen of the ones that are offered.

    What the form does not offer is as if it were not given.
    """
    dimension = _chosen_dimension(request)
    label = DIMENSION_NAMES[dimension]
    chosen = _chosen_agents(request, offered)
    agents = chosen or _agents_who_lost_most(drifts) or _agents_measured_last()
    keys = [agent.pk for agent in agents]
    # When each first said something with a tag: a rolling mean starts again there.
    tags = first_said_with_tag(keys) if keys else {}
    measured = histories(agents=keys, tags=tags, dimensions=[dimension], most_runs=MOST_RUNS, most=MOST_MESSAGES)
    scored = [history for history in measured if history.now is not None]
    judges = list(dict.fromkeys(history.judged for history in scored))
    judged = _chosen_judge(request, judges, drifts)
    drawn = {}
    for history in scored:
        if history.judged == judged:
            drawn[history.agent] = history.daily(MOST_POINTS // len(agents))  # by day where it has more points
    context: dict[str, Any] = {
        "dimensions": [(value, name, value == dimension) for value, name in DIMENSION_NAMES.items()],
        "judges": [(str(judge), judge_name(judge), judge == judged) for judge in judges],
        "choices": [(agent.slug, display.isolated(agent.display_name), agent in chosen) for agent in offered],
        "most": MOST_LINES,
        "agents_url": display.list_url(Agent, is_active__exact=1),
        "runs_url": display.list_url(EvaluationRun),
    }
    if drawn:
        context["judge"] = judged_by(judged)
        context["chart"] = _chart(request, agents, drawn, drifts, dimension, tags)
        context["caption"] = _caption(label, drawn.values(), len(offered))
    elif agents:
        context["empty"] = f"{label} has no score of these agents yet."
    else:
        context["empty"] = f"{label} has no score yet."
    return context


def _chosen_dimension(request: HttpRequest) -> str:
    chosen = request.GET.get("dimension", "")
    return chosen if chosen in DIMENSION_NAMES else Dimension.ADHERENCE.value


def _chosen_agents(request: HttpRequest, offered: Sequence[Agent]) -> list[Agent]:
    slugs = request.GET.getlist("agent")
    return [agent for agent in offered if agent.slug in slugs][:MOST_LINES]


def _agents_who_lost_most(drifts: Sequence[AgentDrift]) -> list[Agent]:
    return [drift.agent for drift in drifts if drift.state != "never measured"][:USUAL_LINES]


def _agents_measured_last() -> list[Agent]:
    """Return the agents of the newest evaluations: nothing has a baseline yet."""
    completed = EvaluationRun.objects.filter(
        status=EvaluationRun.Status.COMPLETED, agent__isnull=False, simulated=False
    )
    newest_first = completed.order_by("-created_at").values_list("agent_id", flat=True)[:MOST_OFFERED]
    newest = list(dict.fromkeys(newest_first))[:USUAL_LINES]
    return list(Agent.objects.filter(pk__in=newest))


def _chosen_judge(request: HttpRequest, judges: Sequence[Judged], drifts: Sequence[AgentDrift]) -> Judged | None:
    """Return the judge that was asked for, else that of the overview, else the first; None where nothing was scored."""
    for judged in judges:
        if str(judged) == request.GET.get("judge"):
            return judged
    for drift in drifts:
        if drift.judged in judges:
            return drift.judged
    return judges[0] if judges else None


def _chart(
    request: HttpRequest,
    agents: Sequence[Agent],
    drawn: Mapping[int, History],
    drifts: Sequence[AgentDrift],
    dimension: str,
    tags: Mapping[tuple[int, Tag], datetime],
) -> SafeString:
    """Return the chart with a line per agent, and with what happened to them meanwhile."""
    first, last = axis_of(drawn.values())
    baseline_scores = _baseline_scores(drifts, drawn, dimension)
    lines = []
    for agent in agents:
        if agent.pk in drawn:
            lines.append(_line(request, agent, drawn[agent.pk], baseline_scores.get(agent.pk)))
    return line_chart(
        lines,
        label=f"{DIMENSION_NAMES[dimension]} over time, 0 to 9",
        unit="of 9",
        markers=markers_of(request, list(drawn), first, last, known=builds(request, tags, first, last)),
        since=first,
        until=last,
    )


def _caption(label: str, drawn: Collection[History], offered: int) -> str:
    """Return what the chart shows, in a sentence."""
    newest_only = "; the newest only" if any(history.older for history in drawn) else ""
    return (
        f"{label} of {len(drawn)} of {offered} agents: each dot is a message, the line the mean of {ROLLING}, "
        f"dotted the baseline{newest_only}."
    )


def _baseline_scores(
    drifts: Sequence[AgentDrift], drawn: Mapping[int, History], dimension: str
) -> dict[int, float | None]:
    """Return the baselines' scores by agent; where all are by the judge of the overview, they are read already."""
    drift_of = {drift.agent.pk: drift for drift in drifts}
    # The overview has the baselines of its own judge only.
    read_already = all(pk in drift_of and drift_of[pk].judged == history.judged for pk, history in drawn.items())
    if read_already:
        return {pk: drift_of[pk].baseline_scores.get(dimension) for pk in drawn}
    scores = baseline_scores_of(drawn)
    return {pk: scores.get((pk, history.judged, dimension)) for pk, history in drawn.items()}


def _line(request: HttpRequest, agent: Agent, history: History, baseline_score: float | None) -> Line:
    """Return an agent's line; in the legend its newest mean and how much has no score."""
    unscored = f" · {history.unscored:,} unscored" if history.unscored else ""
    note = format_html('<span class="pl-number">{}</span>{}', f"{history.now:.1f}", unscored)
    url = reverse("admin:agents_agent_change", args=[agent.pk])
    return history_line(request, history, agent.display_name, level=baseline_score, note=note, url=url, has_band=False)


def alert_markers(agents: Collection[int], start: datetime, end: datetime) -> list[Marker]:
    """Return a marker for the newest alerts (30) of these agents whose fall began in this time; it stands where it began."""
    alerts = DriftAlert.objects.filter(agent__in=agents, since__range=(start, end)).select_related("agent")
    markers = []
    for alert in alerts.order_by("-pk")[:MOST_ALERTS]:
        dimension = alert.dimension.replace("_", " ")
        markers.append(
            Marker(
                at=alert.since,
                title=f"{alert.agent.display_name}: {dimension} fell from {alert.before:.1f} to {alert.after:.1f}",
                url=reverse("admin:change_driftalert_change", args=[alert.pk]),
                kind="alert",
            )
        )
    return markers


add_home(
    HomePart(place="setup", order=50, permission="change.view_baseline", asks=ask_for_baselines, render=no_baseline),
    HomePart(
        place="setup",
        order=60,
        permission="evaluation.view_evaluationschedule",
        asks=ask_for_baselines,
        render=no_schedule,
    ),
    HomePart(place="first", order=10, permission="change.view_baseline", asks=ask_last_measured, render=drifting_now),
)
add_markers(MarkerSource(permission="change.view_driftalert", find=alert_markers))
