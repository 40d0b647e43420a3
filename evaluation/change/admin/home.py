"""What comparing shows on the console's first page: who drifted, and what is missing to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.home import Answers, HomePart, Questions, add_home, step
from agents.kit.text.wording import counted
from agents.models import Agent
from agents.transcripts.imports.jobs import may_import
from evaluation.admin.display import judged_by
from evaluation.calibration.admin.trust import not_usable
from evaluation.change.admin.drift_overview import MOST_AGENTS, STATES, drift_sparkline, passports_of_drifts
from evaluation.change.evidence import JudgeAndProcedure, judged_ways
from evaluation.change.models import Baseline
from evaluation.change.overview import AgentDrift, Overview, State, drift_overview
from evaluation.change.sentences import sentence_of, since_of
from evaluation.models import EvaluationRun, EvaluationSchedule

MOST_ROWS = 20  # agents that drifted, each in a row; the others are in the overview
MOST_NAMED = 4  # agents without a baseline
MOST_CHECKED = 300  # the newest agents, for one without a baseline
COMPARED: tuple[State, ...] = ("drifted", "possibly drifted", "steady", "improved", "not enough data")


# -- what to set up
def _without_baseline() -> QuerySet[Agent]:
    """Return active agents that nothing can be compared with, among the newest."""
    own_baselines = Baseline.objects.filter(agent=OuterRef("pk"))
    newest = Agent.objects.watched().filter(is_active=True).order_by("-pk").values("pk")[:MOST_CHECKED]
    return Agent.objects.filter(~Exists(own_baselines), pk__in=newest)


def ask_for_baselines(request: HttpRequest) -> Questions:
    """Ask whether agents have no baseline, whether any has, and whether a schedule measures again; of the agents that are watched."""
    watched = Agent.objects.watched().order_by().values("pk")
    schedules = EvaluationSchedule.objects.filter(
        Q(agents=None) | Q(agents__in=watched)
    )  # without agents it is for all
    return {
        "agents without baseline": Exists(_without_baseline()),
        "baselines": Exists(Baseline.objects.filter(agent__in=watched)),
        "schedules": Exists(schedules),
    }


def no_baseline(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return the step for active agents without a baseline, a few of them by name; None without any."""
    if not answers["agents without baseline"]:
        return None
    agents = list(_without_baseline().order_by("display_name").only("display_name")[: MOST_NAMED + 1])
    listed = [display.isolated(agent.display_name) for agent in agents[:MOST_NAMED]]
    names = format_html_join(", ", "{}", ((name,) for name in listed))
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


# -- who drifted, since when, and what to do
class RowButton(NamedTuple):
    """A button in the row of an agent that drifted, for users with `permission`; `url` is a function of the agent."""

    label: str
    permission: str
    url: Callable[[Agent], str]


_row_buttons: list[RowButton] = []


def add_row_button(button: RowButton) -> None:
    """Have each row of an agent that drifted show this button after “Read”; apps above call it where they register their admin classes."""
    _row_buttons.append(button)


def ask_about_drift(request: HttpRequest) -> Questions:
    """Ask when a watched agent was measured last, whether the team has agents of its own, and whether there are examples."""
    watched = Agent.objects.watched().order_by().values("pk")
    measured = EvaluationRun.objects.filter(
        status=EvaluationRun.Status.COMPLETED, agent__in=watched, simulated=False
    ).order_by("-created_at")
    last = measured.annotate(at=Coalesce(F("finished_at"), F("created_at")))
    active = Agent.objects.in_use()
    return {
        "last measured": Subquery(last.values("at")[:1]),
        "own agents": Exists(Agent.objects.listed().filter(origin=Agent.Origin.OWN)),
        "example agents": Exists(active.filter(origin=Agent.Origin.SEED)),
    }


def drifted_agents(request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return a row for each agent that drifted: what and since when, its scores, what to do; and how many did not or are not known.

    None where there are no active agents, and for those who may not see agents; without scores for those who may not see evaluations.
    """
    if not request.user.has_perm("agents.view_agent"):
        return None
    agents = Agent.objects.watched().filter(is_active=True).order_by("display_name", "slug")
    listed = list(agents.only("slug", "display_name", "avatar_color")[:MOST_AGENTS])
    if not listed:
        return None
    has_examples_beside = answers["own agents"] and answers["example agents"]
    judged = _judge_of(listed)
    are_all = len(listed) < MOST_AGENTS and not has_examples_beside  # else the p values of others count, too
    overview = drift_overview(listed, judged, describe=False, are_all=are_all)
    fallen = [drift for drift in overview.drifts if drift.state == "drifted"]
    url = reverse("admin:evaluation_drift_overview")
    context = {
        "title": _title_of(overview, fallen),
        "rows": [_row_of(request, drift) for drift in fallen[:MOST_ROWS]],
        "drifted": len(fallen),
        "agents": overview.total,
        "compared": sum(overview.states.get(state, 0) for state in COMPARED),
        "more": max(0, len(fallen) - MOST_ROWS),
        "are_examples": not answers["own agents"],
        "leaves_out_examples": has_examples_beside,
        "states": _other_states(overview, url),
        "last": display.moment(answers["last measured"]) if answers["last measured"] else "",
        "most": MOST_AGENTS if len(listed) == MOST_AGENTS else 0,  # there may be more agents
        "overview_url": url,
        "agents_url": display.list_url(Agent, is_active__exact=1),
        "import_url": reverse("admin:agents_import_add") if may_import(user_of(request)) else "",
    }
    if judged is not None:
        context["judge"] = judged_by(judged)
        context["not_usable"] = not_usable(passports_of_drifts(judged, overview.drifts))
    return render_to_string("admin/change/home.html", context)


def _judge_of(agents: Sequence[Agent]) -> JudgeAndProcedure | None:
    """Return the judge and procedure by which most of these agents have a baseline; None without one. What was simulated is left out."""
    baselines = Baseline.objects.filter(agent__in=[agent.pk for agent in agents], evaluation_run__simulated=False)
    return next(iter(judged_ways(baselines)), None)


def _title_of(overview: Overview, fallen: Sequence[AgentDrift]) -> str:
    """Return in a sentence how many agents drifted, and since when where that is the same for all of them."""
    if fallen:
        sentence = f"{len(fallen):,} of {counted(overview.total, 'agent')} drifted"
        since = {since_of(drift) for drift in fallen}
        return f"{sentence} since {since.pop()}" if len(since) == 1 else sentence
    if any(state in overview.states for state in COMPARED):
        return "No agent is known to drift"
    return "Whether an agent drifts is not known yet"


def _row_of(request: HttpRequest, drift: AgentDrift) -> dict[str, object]:
    """Return what the template shows of an agent that drifted."""
    main = drift.main
    buttons = [("Read", f"{display.page_url(drift.agent)}#change")]
    for button in _row_buttons:
        if request.user.has_perm(button.permission):
            buttons.append((button.label, button.url(drift.agent)))
    row = {"agent": drift.agent, "sentence": sentence_of(drift), "buttons": buttons}
    if main is not None:
        row["since_at"] = main.since_at
        row["dimension"] = main.dimension
        if request.user.has_perm("evaluation.view_evaluationrun"):
            row["sparkline"] = drift_sparkline(main, since=since_of(drift))
    return row


def _other_states(overview: Overview, overview_url: str) -> list[SafeString]:
    """Return links to the agents in each state but that of the rows."""
    links = []
    for state in STATES:
        count = overview.states.get(state, 0)
        if count and state != "drifted":
            links.append(display.link(f"{overview_url}?state={quote(state)}", f"{count:,} {state}"))
    return links


add_home(
    HomePart(place="setup", order=50, permission="change.view_baseline", asks=ask_for_baselines, render=no_baseline),
    HomePart(
        place="setup",
        order=60,
        permission="evaluation.view_evaluationschedule",
        asks=ask_for_baselines,
        render=no_schedule,
    ),
    HomePart(place="first", order=10, permission="change.view_baseline", asks=ask_about_drift, render=drifted_agents),
)
