"""The drift overview: one card per agent, those who lost most first; and the same with every proposition on the agent's own page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.builds import Tag
from agents.kit.console import display
from agents.kit.console.display import Tone
from agents.kit.console.filters import number_in
from agents.kit.console.panels import table
from agents.kit.console.site import Button, ModelAdmin, Select, TextInput
from agents.kit.text.tags import TAG_KEY
from agents.kit.text.wording import signed
from agents.models import Agent
from evaluation.admin.display import MEASURE, dimension_badge, judged_by, meter, of_words
from evaluation.calibration.admin.trust import trust
from evaluation.change.change import ChangeResult
from evaluation.change.evidence import Judged, judged_ways
from evaluation.change.models import Baseline, Change
from evaluation.change.overview import AgentDrift, Overview, State, drift_overview
from evaluation.change.sentences import candidate_words, sentence_of, short_name, why_drifted
from evaluation.models import EvaluationScore, Method, is_heuristic
from evaluation.runs.summary import Share, percent

INVERTED = "an anti-pattern: 9 means not at all"
PAGE = 12  # cards
MOST_PROPOSITIONS = 60  # propositions in the table of an agent's page; the largest falls
MOST_AGENTS = 200  # ranked at once
NEEDED = ("change.view_baseline", "agents.view_agent")
ACTIVE = (("", "active agents"), ("all", "all agents"), ("no", "inactive agents"))
STATES: dict[State, tuple[Tone, str]] = {
    "drifted": ("bad", "a proposition or a dimension fell by more than chance explains, among all that were compared"),
    "possibly drifted": ("warning", "a proposition fell by half a point or more; too little was judged to be sure"),
    "not enough data": (
        "plain",
        "nothing surely fell, but too little was judged to call it steady, or much less is scored than in the baseline",
    ),
    "steady": ("good", "each dimension surely stayed within half a point"),
    "improved": ("good", "a proposition rose by more than chance explains, and none surely fell"),
    "not comparable": ("plain", "no proposition was scored both in the baseline and the candidate"),
    "not measured since": ("plain", "there is a baseline, and no newer measurement"),
    "no baseline": ("plain", "there is a measurement, and no baseline"),
    "never measured": ("plain", "by this judge"),
}


# -- what to do next
class Step(NamedTuple):
    """Something to do: a label that leads somewhere, and why."""

    label: str
    url: str
    why: str = ""


Finder = Callable[[HttpRequest, Sequence[AgentDrift]], Mapping[int, Sequence[Step]]]
_finders: list[Finder] = []


def add_steps(finder: Finder) -> None:
    """Have `finder` offer steps, by the agent's primary key; it must not need more queries for more cards."""
    _finders.append(finder)


def _measuring_steps(request: HttpRequest, drift: AgentDrift) -> list[Step]:
    """Read what fell, measure what is not known, capture a baseline of what was meant to change."""
    state = drift.state
    steps = []
    if state in ("drifted", "possibly drifted") and request.user.has_perm("evaluation.view_evaluationscore"):
        url = scores_behind(drift.main)
        steps.append(Step("Read what was judged", url, "its judgements now, with the judge's reasons"))
    if not request.user.has_perm(MEASURE):
        return steps
    capture = reverse("admin:evaluation_agent_capture", args=[drift.agent.pk])
    evaluate = reverse("admin:evaluation_agent_evaluate", args=[drift.agent.pk])
    if state in ("never measured", "no baseline"):
        steps.append(Step("Capture a baseline", capture, "so that there is something to compare with"))
    elif state in ("not measured since", "not comparable"):
        steps.append(Step("Evaluate now", evaluate, "nothing was measured since"))
    elif drift.persona_edited:
        why = "the persona was edited since; if the change was meant, measure from here on"
        steps.append(Step("Capture a new baseline", capture, why))
    elif state == "possibly drifted":
        steps.append(Step("Evaluate now", evaluate, "more messages would decide"))
    return steps


def scores_behind(row: Change | None) -> str:
    """The candidate's judgements of a proposition; without one all there are."""
    if row is None:
        return display.list_url(EvaluationScore)
    where = {"run": row.evaluation_run_id, "dimension__exact": row.dimension, "proposition_id": row.proposition}
    return display.list_url(EvaluationScore, **where)


def compare_url(**asked: object) -> str:
    """The page that compares; `asked` are the form's fields."""
    given = {name: value for name, value in asked.items() if value not in ("", None)}
    return f"{reverse('admin:evaluation_evaluationrun_compare')}?{urlencode(given)}"


def _compare_url(drift: AgentDrift) -> str:
    """Where the two measurements of an agent stand proposition by proposition; empty where there are not two."""
    if not (drift.baseline_runs and drift.candidate_runs and drift.judged):
        return ""
    before = {run.pk for run in drift.baseline_runs.values()}
    now = {run.pk for run in drift.candidate_runs.values()}
    return compare_url(  # several by dimension: those of today
        agent=drift.agent.slug,
        judge=drift.judged,
        baseline=before.pop() if len(before) == 1 else "",
        candidate=now.pop() if len(now) == 1 else "",
    )


# -- cards
def shown_cards(request: HttpRequest, drifts: Sequence[AgentDrift]) -> list[dict[str, Any]]:
    """The agents for the template, with what to do next, the most urgent first."""
    steps: dict[int, list[Step]] = defaultdict(list)
    for drift in drifts:
        steps[drift.agent.pk] += _measuring_steps(request, drift)
    for finder in _finders:
        for agent, more in finder(request, drifts).items():
            steps[agent] += more
    return [_shown(drift, steps[drift.agent.pk]) for drift in drifts]


def _shown(drift: AgentDrift, steps: Sequence[Step]) -> dict[str, Any]:
    quotes = ("Baseline", drift.baseline_quote), ("Now", drift.candidate_quote)
    return {
        "drift": drift,
        "badge": display.badge(drift.state, *STATES[drift.state]),
        "sentence": sentence_of(drift),
        "sure": why_drifted(drift),
        "scores_url": scores_behind(drift.main),
        "compare_url": _compare_url(drift),
        "quotes": [(name, quote) for name, quote in quotes if quote is not None],
        "dimensions": [
            (
                change.dimension,
                _number(change, change.baseline, change.baseline_share, change.baseline_hits),
                _number(change, change.candidate, change.share, change.hits),
                signed(change.delta),
            )
            for change in drift.dimensions
        ],
        "now": candidate_words(drift),
        "now_runs": sorted({run.pk for run in drift.candidate_runs.values()}),
        "steps": steps[:3],
    }


# -- filters
def judge_name(way: Judged) -> str:
    """A judge and its procedure for a list of choices."""
    name = f"{way.judge} (heuristic)" if is_heuristic(way.judge) else way.judge
    return name if way.procedure == Method.PLUMBLINE else f"{name}, {way.procedure}"


class OverviewForm(forms.Form):
    """Whom to show, and which two measurements to compare; empty fields mean what usually is meant."""

    judge = forms.ChoiceField(required=False, widget=Select, help_text="of baseline and candidate")
    baseline = forms.CharField(
        required=False, max_length=300, widget=TextInput, help_text="a tag such as build=40; empty: the baseline"
    )
    candidate = forms.CharField(
        required=False,
        max_length=300,
        widget=TextInput,
        help_text="a tag such as build=41; empty: the newest evaluation",
    )
    active = forms.ChoiceField(required=False, choices=ACTIVE, widget=Select, label="Agents")
    q = forms.CharField(
        required=False, max_length=120, widget=TextInput, label="Name", help_text="part of a name or id"
    )
    state = forms.ChoiceField(required=False, choices=[("", "any"), *((s, s) for s in STATES)], widget=Select)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ways = {str(way): way for way in judged_ways()}
        self.fields["judge"].choices = [(name, judge_name(way)) for name, way in self.ways.items()]  # type: ignore[attr-defined]

    def clean_baseline(self) -> Tag | None:
        return read_tag(self.cleaned_data["baseline"])

    def clean_candidate(self) -> Tag | None:
        return read_tag(self.cleaned_data["candidate"])

    @property
    def judged(self) -> Judged | None:
        """The one asked for, else the first; None where nothing was ever measured."""
        return self.ways.get(self.cleaned_data.get("judge") or "", next(iter(self.ways.values()), None))

    def agents(self) -> QuerySet[Agent]:
        """Those asked for, by name."""
        chosen, agents = self.cleaned_data, by_name()
        if chosen["active"] != "all":
            agents = agents.filter(is_active=chosen["active"] != "no")
        if chosen["q"]:
            agents = agents.filter(Q(display_name__icontains=chosen["q"]) | Q(slug__icontains=chosen["q"]))
        return agents


def by_name() -> QuerySet[Agent]:
    return Agent.objects.listed().order_by("display_name", "slug")


def usual_overview(agents: Sequence[Agent], *, stop: int) -> Overview:
    """Return what the page counts where no filter is set, and the first agents: what the console's first page shows.

    Args:
        agents: The active ones, at most `MOST_AGENTS`.
        stop: How many to describe.
    """
    judged = next(iter(judged_ways()), None)
    return drift_overview(agents, judged, stop=stop, describe=False, are_all=len(agents) < MOST_AGENTS)


def read_tag(text: str) -> Tag | None:
    """``build=41`` as a pair; None for an empty text.

    Raises:
        ValidationError: It is no tag; names the text and what is allowed.
    """
    text = text.strip()
    if not text:
        return None
    key, is_tag, value = (part.strip() for part in text.partition("="))
    if not (is_tag and value and TAG_KEY.fullmatch(key)):
        raise ValidationError("“%(text)s” is no tag; write KEY=VALUE, e.g. build=41.", params={"text": text[:80]})
    return key, value


# -- the page
def overview_page(model_admin: ModelAdmin[Any], request: HttpRequest) -> HttpResponse:
    """The cards of a page, by the filters in the URL."""
    if not request.user.has_perms(NEEDED):
        raise PermissionDenied
    form = OverviewForm(request.GET)
    # The other fields stay folded unless one of them was used.
    context: dict[str, Any] = {"form": form, "filtered": any(form.data.get(n) for n in form.fields if n != "judge")}
    if form.is_valid():
        context |= _overview(request, form)
    return model_admin.page(request, "admin/change/overview/page.html", "Drift overview", **context)


def _overview(request: HttpRequest, form: OverviewForm) -> dict[str, Any]:
    agents, chosen, judged = list(form.agents()[: MOST_AGENTS + 1]), form.cleaned_data, form.judged
    number = max(1, number_in(request.GET, "page") or 1)
    overview = drift_overview(
        agents[:MOST_AGENTS],
        judged,
        baseline=chosen["baseline"],
        candidate=chosen["candidate"],
        state=chosen["state"] or None,
        start=(number - 1) * PAGE,
        stop=number * PAGE,
        quotes=request.user.has_perm("agents.view_message"),
    )
    return {
        "judge": judged_by(judged) if judged else "",
        "heuristic": judged is not None and is_heuristic(judged.judge),
        "trust": _trust(judged, overview.drifts, request.user),
        "cards": shown_cards(request, overview.drifts),
        "states": [
            (state, overview.states[state], tone, hint)
            for state, (tone, hint) in STATES.items()
            if state in overview.states
        ],
        "chosen": chosen["state"],
        "too_many": MOST_AGENTS if len(agents) > MOST_AGENTS else 0,
        "page": Paginator(range(overview.total), PAGE).get_page(number),
        "compares_tags": bool(chosen["baseline"] and chosen["candidate"]),
        "tags": [form.data.get(name, "") for name in ("baseline", "candidate")],
        "no_agents": not agents,
    }


def _trust(judged: Judged | None, drifts: Sequence[AgentDrift], user: Any) -> SafeString | str:
    """How far the judge of these agents can be trusted; of one agent also for that one."""
    if judged is None:
        return ""
    dimensions = sorted({change.dimension for drift in drifts for change in drift.dimensions})
    agent = drifts[0].agent.slug if len(drifts) == 1 else ""
    return trust(judged.judge, judged.procedure, dimensions, user, agent=agent)


# -- an agent's own page
def run_buttons(request: HttpRequest, agent: Agent) -> list[Button]:
    """What can be measured; each asks first."""
    return [
        Button(
            label=label,
            url=reverse(f"admin:evaluation_agent_{what}", args=[agent.pk]),
            why="estimates and asks first",
            main=what == "evaluate",
        )
        for what, label in (("evaluate", "Evaluate now"), ("capture", "Capture baseline"))
    ]


def change_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The agent's card with every proposition, by the judge that comes first on the overview among those of its baselines."""
    own = set(Baseline.objects.filter(agent=agent).order_by().values_list("judge", "procedure").distinct())
    judged = next((way for way in judged_ways() if (way.judge, way.procedure) in own), None) if own else None
    drift = drift_overview([agent], judged, quotes=request.user.has_perm("agents.view_message")).drifts[0]
    context = {
        "shown": shown_cards(request, [drift])[0],
        "judge": judged_by(judged) if judged else "",
        "trust": _trust(judged, [drift], request.user),
        "propositions": table(
            PROPOSITION_HEADS,
            [_proposition(drift, row) for row in drift.propositions[:MOST_PROPOSITIONS]],
            label="Every proposition",
        ),
        "more": max(0, len(drift.propositions) - MOST_PROPOSITIONS),
        "changed": drift.changed,
        "lost": [f"{lost} ({percent(lost.before)} → {percent(lost.now)})" for lost in drift.lost],
        "may_ask": request.user.has_perm(MEASURE),
        "overview_url": reverse("admin:evaluation_drift_overview"),
        "slug": agent.slug,
    }
    return SafeString(render_to_string("admin/change/overview/panel.html", context, request))


PROPOSITION_HEADS = ("Proposition", "Baseline", "Now", "Change", "Judged, baseline · now", "Verdict")


def _proposition(drift: AgentDrift, row: Change) -> tuple[object, ...]:
    result = row.result
    name = short_name(row.proposition, drift.agent.slug, row.dimension)
    inverted = display.badge("inverted", "plain", INVERTED) if row.inverted else ""
    link = display.link(scores_behind(row), name, f"the judgements of {row.proposition} now")
    before, now = row.baseline_scored, row.scored
    if result.of_words:  # of each message, also where no judge scored it
        before, now = row.baseline_n, row.n
    judged = f"{before:,} · {now:,}"
    return (
        format_html("{} {} {}", link, dimension_badge(row.dimension), inverted),
        _number(result, result.baseline, result.baseline_share, result.baseline_hits),
        _number(result, result.candidate, result.share, result.hits),
        signed(result.points),
        f"{judged}, {row.unscored:,} unscored" if row.unscored else judged,
        _verdict(result),
    )


def _verdict(result: ChangeResult) -> SafeString:
    if result.is_sure:
        return display.badge(result.verdict, "bad" if result.verdict == "drifted" else "good", "more than chance")
    if result.p_adjusted is None:
        return display.badge("judged once", "plain", "one judgement of a whole window decides nothing")
    return display.badge("within chance", "plain", f"p {result.p_adjusted:.2g}, corrected for all propositions here")


def _number(result: ChangeResult, score: float | None, share: Share | None, hits: Share | None) -> str:
    if hits is not None:
        return f"hits in {hits} messages"
    return of_words(score) if result.of_words else meter(score, share=share, why=result.reason)
