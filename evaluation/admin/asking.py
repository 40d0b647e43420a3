"""The buttons *Evaluate now* and *Capture baseline* of an agent: first what it would take, then a click, then the evaluation's own page."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.site import NumberInput, ReadOnlyAdmin
from agents.llm.endpoints import problem_of, provider_of
from agents.models import Agent
from evaluation.admin.display import judge_badge
from evaluation.models import Baseline, Dimension, EvaluationRun
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.budget import why_over_budget
from evaluation.runs.capture import Spending, estimated
from evaluation.runs.control import queue_run
from evaluation.runs.estimate import estimate, estimate_channels
from evaluation.runs.planning import RunSpec
from evaluation.runs.terminal import answer_words
from evaluation.simulation.conversations import ENOUGH, actor_of, estimate_simulation, has_little_speech
from evaluation.simulation.situations import load_situations

PERMISSION = "evaluation.add_evaluationrun"
MOST_SAMPLES = 500  # from a page; the command line takes more
What = Literal["evaluate", "capture"]
TITLES: dict[What, str] = {"evaluate": "Evaluate {} now", "capture": "Capture a baseline of {}"}
VERBS: dict[What, str] = {"evaluate": "Evaluate now", "capture": "Capture baseline"}


class AskForm(forms.Form):
    """What is to be measured."""

    dimensions = forms.MultipleChoiceField(
        choices=Dimension.choices,
        widget=forms.CheckboxSelectMultiple,
        help_text="a baseline is compared with, dimension by dimension: choose those it has",
    )
    samples = forms.IntegerField(
        min_value=1,
        max_value=MOST_SAMPLES,
        widget=NumberInput,
        label="Messages",
        help_text=f"most messages drawn from everything the agent said, 1 to {MOST_SAMPLES}; more make a surer number and cost more",
    )


class Needed(NamedTuple):
    """What an evaluation would need, as the page shows it; `cost` says *unpriced* where nobody knows."""

    judging: Spending
    judgements: int
    free: int
    simulating: Spending | None
    cost: SafeString
    answers: str


class AskingAdmin(ReadOnlyAdmin[Baseline]):
    """Pages of an agent that ask before something is measured; under the baselines, which is what they are for."""

    ask_template: ClassVar[str] = "admin/evaluation/ask.html"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.ask_view)
        own = [
            path(f"of/<int:agent_id>/{what}/", view, kwargs={"what": what}, name=f"evaluation_agent_{what}")
            for what in TITLES
        ]
        return [*own, *super().get_urls()]

    def ask_view(self, request: HttpRequest, agent_id: int, what: What) -> HttpResponse:
        """GET estimates and asks; POST queues, and leads to the page on which the evaluation's progress is shown."""
        if not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        agent = Agent.objects.filter(pk=agent_id).first()
        if agent is None:
            raise Http404(f"There is no agent {agent_id}.")
        problem = ""
        try:
            form = _form(request, agent)
            if form.is_valid():
                spec = spec_of(agent, form, what)
                if request.method == "POST":
                    return self._queued(request, spec)
                return self._asked(request, agent, what, form, **_context(spec))
        except PropositionError as error:
            problem, form = str(error), AskForm()
        return self._asked(request, agent, what, form, problem=display.visible(problem))

    def _queued(self, request: HttpRequest, spec: RunSpec) -> HttpResponse:
        run, taken_up = queue_run(spec, simulate=True)
        text = "goes on: the same was asked for within a day" if taken_up else "is queued"
        self.message_user(request, f"Evaluation {run.pk} {text}; a worker (manage.py work) judges.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:evaluation_evaluationrun_change", args=[run.pk]))

    def _asked(self, request: HttpRequest, agent: Agent, what: What, form: AskForm, **more: Any) -> HttpResponse:
        open_runs = EvaluationRun.objects.filter(agent=agent, status__in=["pending", "running"]).order_by("-pk")[:5]
        return self.page(
            request,
            self.ask_template,
            TITLES[what].format(display.marked(agent.display_name)),
            what=what,
            verb=VERBS[what],
            agent=display.agent_chip(agent),
            agent_url=reverse("admin:agents_agent_change", args=[agent.pk]),
            slug=agent.slug,
            form=form,
            open_runs=[display.page_of(run, f"evaluation {run.pk}") for run in open_runs],
            **more,
        )


def _form(request: HttpRequest, agent: Agent) -> AskForm:
    asked = request.POST if request.method == "POST" else request.GET
    if "samples" in asked or "dimensions" in asked:
        return AskForm(asked)
    there = set(Baseline.objects.filter(agent=agent, judge=settings.JUDGE_MODEL).values_list("dimension", flat=True))
    every = default_dimensions()
    return AskForm({"dimensions": [d for d in every if d in there] or list(every), "samples": "20"})


def spec_of(agent: Agent, form: AskForm, what: What) -> RunSpec:
    """The evaluation that a valid form asks for."""
    chosen = form.cleaned_data
    return RunSpec(
        agent=agent,
        dimensions=tuple(chosen["dimensions"]),
        samples=chosen["samples"],
        is_baseline=what == "capture",
    )


def _context(spec: RunSpec) -> dict[str, Any]:
    judge = spec.judge_model
    agent = spec.agent
    assert agent is not None  # noqa: S101 (an agent's page asks)
    simulated = has_little_speech(spec)
    is_paid = provider_of(judge) == "anthropic"
    return {
        "judge": judge_badge(judge),
        "is_paid": is_paid,
        "costs": is_paid or (simulated and provider_of(actor_of(agent)) == "anthropic"),
        "needed": needed(spec, simulate=simulated),
        "simulated": simulated,
        "enough": ENOUGH,
        "budget": display.visible(why_over_budget(agent, judge) or ""),
        "no_key": display.visible(problem_of("judge", judge) or ""),
        "dimensions": spec.dimensions,
        "samples": spec.samples,
    }


def needed(spec: RunSpec, *, simulate: bool) -> Needed:
    """Calls, tokens and dollars before anything is asked; nothing is stored.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    simulating = None
    if simulate:
        acting, judging = estimate_simulation(spec, situations=load_situations())
        estimates = [judging]
        simulating = Spending(
            calls=acting.calls,
            input_tokens=acting.input_tokens,
            output_tokens=acting.output_tokens,
            cost_usd=acting.cost_usd,
        )
    else:
        estimates = [estimate(spec), *estimate_channels([spec])]
    total = estimated(estimates)
    costs = [total.cost_usd, *([simulating.cost_usd] if simulating else [])]
    whole = None if None in costs else sum(cost for cost in costs if cost is not None)
    calls = total.calls + (simulating.calls if simulating else 0)
    return Needed(
        judging=total,
        judgements=sum(e.judgements for e in estimates),
        free=sum(e.free for e in estimates),
        simulating=simulating,
        answers=answer_words(estimates),
        cost=display.money(whole or None, unpriced=calls) if whole is None else display.money(whole),  # type: ignore[arg-type]
    )
