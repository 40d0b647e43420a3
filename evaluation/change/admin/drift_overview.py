"""The drift overview: one card per agent, those who lost most first; and the same with every proposition on the agent's own page."""

from __future__ import annotations

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
from agents.kit.console.charts import sparkline
from agents.kit.console.display import Tone
from agents.kit.console.filters import number_in
from agents.kit.console.panels import table
from agents.kit.console.site import Button, ModelAdmin, Select, TextInput
from agents.kit.text.tags import TAG_KEY
from agents.kit.text.wording import signed
from agents.models import Agent
from evaluation.admin.display import MEASURE, dimension_badge, judged_by, meter, of_words
from evaluation.calibration.admin.trust import not_usable, trust
from evaluation.calibration.passport import passports
from evaluation.change.admin.drift import dimension_chart
from evaluation.change.admin.sentinel import judge_notices
from evaluation.change.change import ChangeResult
from evaluation.change.evidence import JudgeAndProcedure, judged_ways
from evaluation.change.models import Baseline, Change
from evaluation.change.overview import AgentDrift, State, drift_overview
from evaluation.change.sentences import candidate_words, numbers_of, sentence_of, short_name, why_drifted
from evaluation.judge.passport import Passport
from evaluation.models import EvaluationRun, EvaluationScore, Method, is_heuristic
from evaluation.runs.shares import Share, percent
from evaluation.wording import p_text

INVERTED = "an anti-pattern: 9 means not at all"
CARDS_PER_PAGE = 12
MOST_STEPS = 3  # on a card
MOST_PROPOSITIONS = 60  # in the table of an agent's page; the largest falls
MOST_AGENTS = 200  # ranked at once
PERMISSIONS = ("change.view_baseline", "agents.view_agent")
PROPOSITION_HEADINGS = ("Proposition", "Baseline", "Now", "Change", "Judged, baseline · now", "Verdict")
ACTIVE_CHOICES = (("", "active agents"), ("all", "all agents"), ("no", "inactive agents"))
STATES: dict[State, tuple[Tone, str]] = {
    "drifted": ("bad", "a proposition or a dimension fell significantly among all that were compared"),
    "possibly drifted": ("warning", "a proposition fell by half a point or more; too little was judged to decide"),
    "not enough data": (
        "plain",
        "nothing fell significantly, but too little was judged to call it steady, or much less is scored than in the baseline",
    ),
    "steady": ("good", "each dimension stayed within half a point: its whole interval does"),
    "improved": ("good", "a proposition rose significantly, and none fell significantly"),
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


StepFinder = Callable[[HttpRequest, Sequence[AgentDrift]], Mapping[int, Sequence[Step]]]
_step_finders: list[StepFinder] = []


def add_steps(finder: StepFinder) -> None:
    """Have `finder` offer steps, by the agent's primary key; it must not need more queries for more cards."""
    _step_finders.append(finder)


def _steps_of(request: HttpRequest, drifts: Sequence[AgentDrift]) -> dict[int, list[Step]]:
    """Return what to do next by the agent's primary key, the most urgent first."""
    steps = {}
    for drift in drifts:
        steps[drift.agent.pk] = [*_reading_steps(request, drift), *_measuring_steps(request, drift)]
    for finder in _step_finders:
        for agent, further in finder(request, drifts).items():
            steps[agent] += further
    return steps


def _reading_steps(request: HttpRequest, drift: AgentDrift) -> list[Step]:
    """Return the way to the judgements behind a fall."""
    fell = drift.state in ("drifted", "possibly drifted")
    if not fell or not request.user.has_perm("evaluation.view_evaluationscore"):
        return []
    why = "its judgements now, with the judge's reasons"
    return [Step("Read what was judged", scores_behind(drift.main), why)]


def _measuring_steps(request: HttpRequest, drift: AgentDrift) -> list[Step]:
    """Return the one way to measure what is not known, or to capture a baseline of what was meant to change.

    Empty for those who may not measure, and where nothing is to be done.
    """
    if not request.user.has_perm(MEASURE):
        return []
    capture = reverse("admin:evaluation_agent_capture", args=[drift.agent.pk])
    evaluate = reverse("admin:evaluation_agent_evaluate", args=[drift.agent.pk])
    if drift.state in ("never measured", "no baseline"):
        return [Step("Capture a baseline", capture, "so that there is something to compare with")]
    if drift.state in ("not measured since", "not comparable"):
        return [Step("Evaluate now", evaluate, "nothing was measured since")]
    if drift.persona_edited:
        why = "the persona was edited since; if the change was meant, measure from here on"
        return [Step("Capture a new baseline", capture, why)]
    if drift.state == "possibly drifted":
        return [Step("Evaluate now", evaluate, "more messages would decide")]
    return []


# -- links
def scores_behind(change: Change | None) -> str:
    """Return the address of the candidate's judgements of a proposition; without one of all there are."""
    if change is None:
        return display.list_url(EvaluationScore)
    return display.list_url(
        EvaluationScore,
        run=change.evaluation_run_id,
        dimension__exact=change.dimension,
        proposition_id=change.proposition,
    )


def compare_url(**fields: object) -> str:
    """Return the address of the page that compares; `fields` are the form's fields."""
    parameters = {name: value for name, value in fields.items() if value not in ("", None)}
    return f"{reverse('admin:evaluation_evaluationrun_compare')}?{urlencode(parameters)}"


def _compare_url_of(drift: AgentDrift) -> str:
    """Return where the two measurements of an agent stand proposition by proposition; empty where there are not two."""
    if not (drift.baseline_runs and drift.candidate_runs and drift.judged):
        return ""
    return compare_url(
        agent=drift.agent.slug,
        judge=drift.judged,
        baseline=_only_run(drift.baseline_runs),
        candidate=_only_run(drift.candidate_runs),
    )


def _only_run(runs: Mapping[str, EvaluationRun]) -> int | None:
    """Return the primary key of the one evaluation of all dimensions; None where they have several: the page then takes the newest."""
    keys = {run.pk for run in runs.values()}
    return keys.pop() if len(keys) == 1 else None


# -- cards
def drift_cards(request: HttpRequest, drifts: Sequence[AgentDrift]) -> list[dict[str, Any]]:
    """Return the agents for the template, with what to do next."""
    steps = _steps_of(request, drifts)
    return [change_card(drift, steps[drift.agent.pk]) for drift in drifts]


def change_card(drift: AgentDrift, steps: Sequence[Step] = ()) -> dict[str, Any]:
    """Return what the template of a card shows of an agent."""
    quotes = [("Baseline", drift.baseline_quote), ("Now", drift.candidate_quote)]
    dimensions = []
    for change in drift.dimensions:
        before, now = _scores_of(change)
        dimensions.append((change.dimension, before, now, signed(change.shown_points)))
    return {
        "drift": drift,
        "badge": display.badge(drift.state, *STATES[drift.state]),  # with tone and hint
        "sentence": sentence_of(drift),
        "certainty": why_drifted(drift),
        "scores_url": scores_behind(drift.main),
        "compare_url": _compare_url_of(drift),
        "quotes": [(name, quote) for name, quote in quotes if quote is not None],
        "dimensions": dimensions,
        "now": candidate_words(drift),
        "now_runs": sorted({run.pk for run in drift.candidate_runs.values()}),
        "steps": steps[:MOST_STEPS],
    }


def drift_sparkline(row: Change, *, since: str) -> SafeString:
    """Return the scores of a proposition before and since; where they are not known one by one the two means."""
    before, now = row.baseline_course, row.course
    if row.result.of_words or not before or not now:
        before = [row.baseline or 0.0] * 2
        now = [row.candidate or 0.0] * 2
    dimension = row.dimension.replace("_", " ")
    return sparkline(before, now, label=f"{dimension} {numbers_of(row.result)} since {since}", event=since)


def _scores_of(change: ChangeResult) -> tuple[str, str]:
    """Return both scores, in the baseline and now, as cells of a table."""
    before = _score_cell(change, change.baseline, change.baseline_share, change.baseline_hits)
    now = _score_cell(change, change.candidate, change.share, change.hits)
    return before, now


def _score_cell(change: ChangeResult, score: float | None, share: Share | None, hits: Share | None) -> str:
    """Return a score as a cell: a meter, or hits, or the statistic of repeated words."""
    if hits is not None:
        return f"hits against it in {hits} messages"
    if change.of_words:
        return of_words(score)
    return meter(score, share=share, why=change.reason)


# -- filters
def judge_name(judged: JudgeAndProcedure) -> str:
    """Return a judge and its procedure for a list of choices."""
    name = f"{judged.judge} (heuristic)" if is_heuristic(judged.judge) else judged.judge
    return name if judged.procedure == Method.PLUMBLINE else f"{name}, {judged.procedure}"


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
    active = forms.ChoiceField(required=False, choices=ACTIVE_CHOICES, widget=Select, label="Agents")
    q = forms.CharField(
        required=False, max_length=120, widget=TextInput, label="Name", help_text="part of a name or id"
    )
    state = forms.ChoiceField(
        required=False, choices=[("", "any"), *((state, state) for state in STATES)], widget=Select
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.judges = {str(judged): judged for judged in judged_ways()}
        choices = [(name, judge_name(judged)) for name, judged in self.judges.items()]
        self.fields["judge"].choices = choices  # type: ignore[attr-defined]

    def clean_baseline(self) -> Tag | None:
        return read_tag(self.cleaned_data["baseline"])

    def clean_candidate(self) -> Tag | None:
        return read_tag(self.cleaned_data["candidate"])

    @property
    def judged(self) -> JudgeAndProcedure | None:
        """Return the judge that was asked for, else the first; None where nothing was ever measured."""
        chosen = self.judges.get(self.cleaned_data["judge"])
        if chosen is not None:
            return chosen
        return next(iter(self.judges.values()), None)

    @property
    def is_filtered(self) -> bool:
        """Return whether a field was used besides the judge: the others stay folded until then."""
        return any(self.data.get(name) for name in self.fields if name != "judge")

    def agents(self) -> QuerySet[Agent]:
        """Return the agents that were asked for, by name."""
        active, text = self.cleaned_data["active"], self.cleaned_data["q"]
        agents = by_name()
        if active != "all":
            agents = agents.filter(is_active=active != "no")
        if text:
            agents = agents.filter(Q(display_name__icontains=text) | Q(slug__icontains=text))
        return agents


def by_name() -> QuerySet[Agent]:
    return Agent.objects.listed().order_by("display_name", "slug")


def read_tag(text: str) -> Tag | None:
    """Return ``build=41`` as a pair; None for an empty text.

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
    """Show a page of cards, by the filters in the URL."""
    if not request.user.has_perms(PERMISSIONS):
        raise PermissionDenied
    form = OverviewForm(request.GET)
    context: dict[str, Any] = {"form": form, "filtered": form.is_filtered}
    if form.is_valid():
        context |= _overview_context(request, form)
    return model_admin.page(request, "admin/change/overview/page.html", "Drift overview", **context)


def _overview_context(request: HttpRequest, form: OverviewForm) -> dict[str, Any]:
    """Return what the page shows: the cards of one page, and how many agents are in each state."""
    agents = list(form.agents()[: MOST_AGENTS + 1])  # one more tells whether there are too many
    filters = form.cleaned_data
    judged = form.judged
    page = max(1, number_in(request.GET, "page") or 1)
    overview = drift_overview(
        agents[:MOST_AGENTS],
        judged,
        baseline=filters["baseline"],
        candidate=filters["candidate"],
        state=filters["state"] or None,
        start=(page - 1) * CARDS_PER_PAGE,
        stop=page * CARDS_PER_PAGE,
        quotes=request.user.has_perm("agents.view_message"),
    )
    judge_passports = passports_of_drifts(judged, overview.drifts)
    states = []
    for state, (tone, hint) in STATES.items():
        if state in overview.states:
            states.append((state, overview.states[state], tone, hint))
    context = {
        "not_usable": not_usable(judge_passports),
        "trust": trust(judge_passports, request.user),
        "cards": drift_cards(request, overview.drifts),
        "states": states,
        "chosen": filters["state"],
        "too_many": MOST_AGENTS if len(agents) > MOST_AGENTS else 0,
        "page": Paginator(range(overview.total), CARDS_PER_PAGE).get_page(page),
        "compares_tags": bool(filters["baseline"] and filters["candidate"]),
        "tags": [form.data.get(name, "") for name in ("baseline", "candidate")],
        "no_agents": not agents,
    }
    if judged is not None:
        context["judge"] = judged_by(judged)
        context["heuristic"] = is_heuristic(judged.judge)
        context["judge_changed"] = judge_notices([judged.judge])
    return context


def passports_of_drifts(judged: JudgeAndProcedure | None, drifts: Sequence[AgentDrift]) -> list[Passport]:
    """Return the passports of the judge of these agents; of one agent also with its own figure."""
    if judged is None:
        return []
    dimensions = {change.dimension for drift in drifts for change in drift.dimensions}
    agent = drifts[0].agent.slug if len(drifts) == 1 else ""
    return passports(judged.judge, judged.procedure, sorted(dimensions), agent=agent)


# -- an agent's own page
def run_buttons(request: HttpRequest, agent: Agent) -> list[Button]:
    """Return what can be measured; each page asks first."""
    why = "estimates and asks first"
    evaluate = reverse("admin:evaluation_agent_evaluate", args=[agent.pk])
    capture = reverse("admin:evaluation_agent_capture", args=[agent.pk])
    return [
        Button(label="Evaluate", url=evaluate, why=why, main=True),
        Button(label="Capture baseline", url=capture, why=why),
    ]


def change_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """Return the agent's card with every proposition, by the judge that comes first on the overview among those of its baselines."""
    judged = _first_judge_of(agent)
    drift = drift_overview([agent], judged, quotes=request.user.has_perm("agents.view_message")).drifts[0]
    judge_passports = passports_of_drifts(judged, [drift])
    rows = [_proposition_row(drift, change) for change in drift.propositions[:MOST_PROPOSITIONS]]
    context = {
        "card": drift_cards(request, [drift])[0],
        "chart": _fall_chart(request, drift),
        "judge": judged_by(judged) if judged else "",
        "not_usable": not_usable(judge_passports),
        "trust": trust(judge_passports, request.user),
        "trust_in_short": ", ".join(f"{passport.dimension} {passport.verdict}" for passport in judge_passports),
        "propositions": table(PROPOSITION_HEADINGS, rows, label="Every proposition"),
        "more": max(0, len(drift.propositions) - MOST_PROPOSITIONS),
        "changed": drift.changed,
        "lost": [f"{lost} ({percent(lost.before)} → {percent(lost.now)})" for lost in drift.lost],
        "may_ask": request.user.has_perm(MEASURE),
        "overview_url": reverse("admin:evaluation_drift_overview"),
        "slug": agent.slug,
    }
    return SafeString(render_to_string("admin/change/overview/panel.html", context, request))


def _fall_chart(request: HttpRequest, drift: AgentDrift) -> dict[str, Any] | None:
    """Return the scores over time of what the sentence is about; None where there are none, or for who may not see evaluations."""
    if drift.main is None or drift.judged is None or not request.user.has_perm("evaluation.view_evaluationrun"):
        return None
    if drift.main.result.of_words:  # no judge gave it, so scores over time are of something else
        return None
    return dimension_chart(request, drift.agent, drift.main.dimension, drift.judged)


def _first_judge_of(agent: Agent) -> JudgeAndProcedure | None:
    """Return the judge that comes first on the overview among those of the agent's baselines; None without a baseline."""
    baselines = Baseline.objects.filter(agent=agent).order_by()
    own = set(baselines.values_list("judge", "procedure").distinct())
    if not own:
        return None
    for judged in judged_ways():
        if (judged.judge, judged.procedure) in own:
            return judged
    return None


def _proposition_row(drift: AgentDrift, change: Change) -> tuple[object, ...]:
    """Return a proposition's row below `PROPOSITION_HEADINGS`."""
    result = change.result
    name = short_name(change.proposition, drift.agent.slug, change.dimension)
    link = display.link(scores_behind(change), name, f"the judgements of {change.proposition} now")
    inverted = display.badge("anti-pattern", "plain", INVERTED) if change.inverted else ""
    before, now = _scores_of(result)
    return (
        format_html("{} {} {}", link, dimension_badge(change.dimension), inverted),
        before,
        now,
        signed(result.shown_points),
        _judged_text(change),
        _verdict_badge(result),
    )


def _judged_text(change: Change) -> str:
    """Return how much was judged, e.g. ``20 · 18, 2 unscored``."""
    before, now = change.baseline_scored, change.scored
    if change.result.of_words:  # the statistic is of each message, also where no judge scored it
        before, now = change.baseline_n, change.n
    text = f"{before:,} · {now:,}"
    if change.unscored:
        text += f", {change.unscored:,} unscored"
    return text


def _verdict_badge(result: ChangeResult) -> SafeString:
    """Return whether a change is more than chance (and as large as the margin), as a badge."""
    if result.is_sure:
        return display.badge(result.verdict, "bad" if result.verdict == "drifted" else "good", "more than chance")
    if result.p_adjusted is None:  # without an interval there is no test
        return display.badge("judged once", "plain", "one judgement of a whole window decides nothing")
    return display.badge(
        "within chance", "plain", f"p {p_text(result.p_adjusted)}, corrected for all propositions here"
    )
