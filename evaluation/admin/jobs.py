"""Suggestions for propositions and checks of a judge: the pages that ask for them, and what came of them."""

from __future__ import annotations

from functools import cache, partial

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.forms import Takes, as_query, ask, option
from agents.kit.console.logs import LogAdmin
from agents.kit.console.panels import table
from agents.kit.console.site import Select, console_page
from agents.kit.llm import Label, estimate_tokens, ledger
from agents.kit.llm.endpoints import problem_of
from agents.kit.text.wording import decimal
from agents.kit.work.worker import alive
from agents.models import Agent
from agents.models.conversations import UnknownAgent, find_agents
from agents.personas.persona import render_persona
from evaluation.admin.asking import judge_field, takes
from evaluation.admin.display import MEASURE, dimension_badge, evaluation_link, judge_badge
from evaluation.calibration.jobs import queue_check
from evaluation.calibration.swap_test import SAMPLES, SwapTest, swap_specs
from evaluation.drafting.editing import NO_FOLDER, team_folder
from evaluation.drafting.jobs import queue_suggestions
from evaluation.drafting.suggesting import MOST, suggestions_request
from evaluation.models import BY_MESSAGE, Dimension, Job, is_heuristic
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.control import judges_offered, progress_of
from evaluation.runs.estimate import estimate_all
from evaluation.runs.planning import RunSpec
from evaluation.scorers.subjects import NO_MESSAGE, spoken_by
from evaluation.windows import MessageWindow

WRITE = "evaluation.change_proposition"
MODEL_NEEDED = "It takes a model: set ANTHROPIC_API_KEY or JUDGE_BASE_URL. Without one, write propositions by hand."
TOKENS_PER_SUGGESTION = 200  # an assumption, said so where it is shown
MOST_AGENTS = 100  # of one check


@cache
def suggesting() -> type[forms.Form]:
    """The options of ``manage.py draft_propositions``."""
    about = f"most suggestions per agent, 1 to 50; usually {MOST}"
    fields = {
        "agents": option("draft_propositions", "agents", required=True),
        "max": option("draft_propositions", "max", label="Suggestions", min_value=1, max_value=50, help_text=about),
        "model": forms.ChoiceField(
            choices=_models,
            widget=Select,
            initial=lambda: next(iter(_models()), ("",))[0],
            help_text="reads the personas",
        ),
    }
    return type("SuggestingForm", (forms.Form,), fields)


def _models() -> list[tuple[str, str]]:
    return [(name, name) for name in judges_offered() if not is_heuristic(name)]


@cache
def checking() -> type[forms.Form]:
    """The options of ``manage.py check_judge``."""
    of = partial(option, "check_judge")
    fields: dict[str, forms.Field] = {
        "agents": of("agents", required=True),
        "judge": judge_field(),
        "dimensions": forms.MultipleChoiceField(
            choices=[(name, Dimension(name).label) for name in BY_MESSAGE], widget=forms.CheckboxSelectMultiple
        ),
        "samples": of("samples", label="Messages of each agent", min_value=1, max_value=100, initial=SAMPLES),
    }
    return type("CheckingForm", (forms.Form,), fields)


@admin.register(Job)
class JobAdmin(LogAdmin[Job]):
    list_select_related = ("created_by",)
    state = display.column("state", lambda job: display.status_badge(job), ordering="status")

    @admin.display(description="of")
    def chosen(self, job: Job) -> SafeString | str:
        if job.kind == Job.Kind.JUDGE_CHECK:
            return judge_badge(job.options.get("judge", ""))
        return f"{job.total:,} agent{'' if job.total == 1 else 's'}"

    # -- asking
    @console_page("suggest/", MEASURE, WRITE)
    def suggest_view(self, request: HttpRequest) -> HttpResponse:
        """Choose agents, see what it takes, and have a model suggest propositions about them."""
        form = suggesting()(as_query(request, suggesting()))

        def agents() -> list[Agent]:
            return _agents(form.cleaned_data["agents"])

        def queue() -> str:
            given = form.cleaned_data
            job = queue_suggestions(agents=agents(), most=given["max"], model=given["model"], user=user_of(request))
            return self.url("change", job)

        return ask(
            self, request, form, title="Suggest propositions", verb="Suggest", do=queue,
            takes=lambda: _suggesting_takes(agents(), form.cleaned_data["max"], form.cleaned_data["model"]),
            about="A model reads each persona and suggests what to measure, with the words it comes from. Nothing is judged before you "
            "accept it.",
            back=(reverse("admin:evaluation_proposition_changelist"), "Back to the propositions"),
        )  # fmt: skip

    @console_page("check/", "evaluation.view_evaluationrun")
    def check_view(self, request: HttpRequest) -> HttpResponse:
        """Choose a judge, see what it takes, and have it tested on agents' own words and on those of others."""
        chosen = {"dimensions": [name for name in _default_dimensions() if name in BY_MESSAGE]}
        form = checking()(as_query(request, checking(), chosen))

        def specs() -> list[RunSpec]:
            given = form.cleaned_data
            asked = {"judge": given["judge"], "dimensions": tuple(given["dimensions"]), "samples": given["samples"]}
            speaking = [
                RunSpec(agent=agent, **asked)
                for agent in _agents(given["agents"])
                if spoken_by(agent=agent, window=MessageWindow()).exists()
            ]
            if not speaking:
                raise ValueError(f"agents nothing to check the judge on: {NO_MESSAGE}")
            return speaking

        def queue() -> str:
            if not request.user.has_perm(MEASURE):
                raise PermissionDenied
            of_all = form.cleaned_data["agents"].strip().lower() == "all"
            return self.url("change", queue_check(specs=specs(), of_all=of_all, user=user_of(request)))

        return ask(
            self, request, form, title="Check a judge", verb="Check the judge", do=queue,
            takes=lambda: _checking_takes(specs(), may_ask=request.user.has_perm(MEASURE)),
            about="Can it tell agents' own words from those of others? Each agent is judged on its own messages, and on texts of others in "
            "their place. The result stands beside the judge's scores from then on. It needs no labels.",
            back=(reverse("admin:evaluation_drift_overview"), "Back to the overview"),
        )  # fmt: skip

    # -- what came of it
    def get_panels(self, request: HttpRequest, obj: Job) -> list[SafeString]:
        is_open = obj.status in Job.OPEN
        runs = list(obj.evaluations.select_related("agent").order_by("pk"))
        progress = progress_of(runs) if is_open and runs else {}
        is_check = obj.kind == Job.Kind.JUDGE_CHECK
        may_ask = request.user.has_perms((MEASURE,) if is_check else (MEASURE, WRITE))
        context = {
            "job": obj,
            "live": self.url("progress", obj) if is_open else "",
            "no_worker": is_open and not alive().exists(),
            "settled": sum(one.settled for one in progress.values()),
            "judgements": sum(one.total for one in progress.values()),
            "suggested": _suggested(obj),
            "checked": _checked(obj),
            "runs": [(evaluation_link(run.pk), display.status_badge(run)) for run in runs],
            "again": self.url("check" if is_check else "suggest") if may_ask else "",
            "propositions": reverse("admin:evaluation_proposition_changelist"),
        }
        return [render_to_string("admin/evaluation/job.html", context, request), *super().get_panels(request, obj)]

    @console_page("<int:pk>/progress/")
    def progress_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """How far it is, for the page that asks every two seconds whether anything changed."""
        job: Job = get_object_or_404(self.get_queryset(request), pk=pk)
        if not self.has_view_permission(request, job):
            return JsonResponse({}, status=403)
        runs = list(job.evaluations.all())
        settled = sum(one.settled for one in progress_of(runs).values()) if runs else 0
        return JsonResponse({"status": job.status, "done": job.done, "settled": settled})


def _agents(names: str) -> list[Agent]:
    try:
        agents = find_agents(names)
    except UnknownAgent as error:
        raise ValueError(f"agents {error}") from None
    if not 1 <= len(agents) <= MOST_AGENTS:
        raise ValueError(f"agents {names}: {len(agents):,} agents; allowed: 1 to {MOST_AGENTS} at a time")
    return agents


def _default_dimensions() -> tuple[str, ...]:
    try:
        return default_dimensions()
    except PropositionError:
        return ()  # said when it is estimated


def _suggesting_takes(agents: list[Agent], most: int, model: str) -> Takes:
    """A call per agent; tokens are a quarter of the characters of the personas, and an assumption for the answers."""
    if not model:
        raise ValueError(MODEL_NEEDED)
    sent = 0
    for agent in Agent.objects.filter(pk__in=[one.pk for one in agents]).prefetch_related("traits"):
        persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
        request = suggestions_request(
            name=agent.display_name, persona=persona, existing=(), most=most, label=Label(purpose="estimate"),
            model=model, nonce="estimate",
        )  # fmt: skip
        sent += estimate_tokens(request)
    answered = len(agents) * most * TOKENS_PER_SUGGESTION
    cost = ledger.estimate_cost(model, sent, answered)
    names = ", ".join(agent.display_name for agent in agents[:5])
    facts = [
        ("Agents", display.isolated(f"{names} and {len(agents) - 5} more" if len(agents) > 5 else names)),
        ("Calls of the model", f"{len(agents):,}"),
        ("Tokens, in and out", f"{sent:,} · {answered:,}"),
        ("Cost, estimated", display.money(cost, unpriced=len(agents) if cost is None else 0)),
    ]
    note = f"Assumed: {TOKENS_PER_SUGGESTION} tokens per suggestion. What you reject is not suggested again."
    missing = NO_FOLDER if team_folder() is None else MODEL_NEEDED if problem_of("judge", model) else ""
    return Takes(facts=facts, note=note, why_not=missing)


def _checking_takes(specs: list[RunSpec], *, may_ask: bool) -> Takes:
    try:
        every = estimate_all([half for spec in specs for half in swap_specs(spec)])
    except PropositionError as error:
        raise ValueError(f"proposition files cannot be used: {error}") from None
    note = "Every agent is measured twice; neither half is a score of the agent."
    why_not = "" if may_ask else "Asking for it takes the right to ask for evaluations."
    return takes([("Agents", f"{len(specs):,}")], every, note=note, why_not=why_not)


def _suggested(job: Job) -> SafeString:
    rows = []
    for row in job.result.get("agents", []):
        agent = display.link(reverse("admin:evaluation_proposition_change", args=[row["agent"]]), row["agent"])
        rows.append((agent, f"{row['written']}", f"{row['dropped']}", display.visible(row["why"])))
    heads = ("Agent", "Suggestions", "Could not be used", "Why there are no more")
    return table(heads, rows, label="What was suggested")


def _checked(job: Job) -> SafeString:
    rows = []
    for name, given in job.result.get("dimensions", {}).items():
        test = SwapTest.model_validate(given)
        verdict = test.verdict or test.auc.reason
        high = "–" if test.high_share is None else f"{test.high_share:.0%}"
        means = " · ".join("–" if mean is None else decimal(mean, 1) for mean in (test.own_mean, test.swapped_mean))
        rows.append(
            (dimension_badge(name), display.visible(verdict), test.auc.text, test.auc.interval_text, means, high)
        )
    heads = ("Dimension", "Verdict", "AUC", "95 % interval", "Mean, own words · others'", "Others' that score ≥ 7")
    return table(heads, rows, label="Own words against those of others")
