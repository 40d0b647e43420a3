"""The pages that have agents measured: what can be chosen, and what it would take."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Self
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from pydantic import Field, model_validator

from agents.admin.display import agent_chip
from agents.kit.bodies import Tags, fault
from agents.kit.console import display
from agents.kit.console.forms import CostPreview, RequestForm, as_query, request_form
from agents.kit.llm.endpoints import problem_of
from agents.kit.llm.providers import is_priced
from agents.kit.use_cases import FieldDisplay
from agents.models import Agent
from evaluation.admin.display import evaluation_link, judge_badge
from evaluation.budget import why_over_budget
from evaluation.commands import answer_words
from evaluation.models import CHANNEL_DIMENSIONS, EvaluationRun
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.estimate import (
    ActorAndJudge,
    Estimate,
    SimulationEstimate,
    estimate_all,
    estimate_simulation,
    estimated,
)
from evaluation.runs.numbers import Spending
from evaluation.runs.planning import ENOUGH_MESSAGES, has_little_speech
from evaluation.runs.request import AUTO, SIMULATE, EvaluationRequest, Simulate, trial_sentence
from evaluation.runs.spec import RunSpec
from evaluation.simulation.conversations import why_not_simulated
from evaluation.simulation.situations import Situation, load_situations

FOLDED = (
    *("by", "position_bins", "simulate", "situations", "actor_model", "repeats", "seed", "per_call", "hard"),
    *("double_check", "method", "few_shot", "additional_context", "history", "history_where"),
)
CHOICES = ("dimensions", "samples", "where", "window", "judge", *FOLDED)


class PageRequest(EvaluationRequest):
    """An evaluation of the agent whose page asks for it."""

    simulate: Simulate = Field(AUTO, description=SIMULATE)


class ComparisonRequest(PageRequest):
    """An evaluation, and before it the one that it is to be compared with, where that is asked for."""

    against: Annotated[Tags, FieldDisplay(label="And, to compare with, those tagged")] = Field(
        {}, description="such as build=40: an evaluation of its own"
    )

    @model_validator(mode="after")
    def _check_tags_compared(self) -> Self:
        if self.against and (self.against == self.where or not self.where):
            raise fault("against", "against compares the messages of two tags, such as build=41 with build=40")
        return self


EvaluatingForm = request_form(ComparisonRequest, *CHOICES[:3], "against", *CHOICES[3:])
CapturingForm = request_form(PageRequest, *CHOICES)


def measuring_form(request: HttpRequest, *, usual: Collection[str], is_baseline: bool) -> RequestForm:
    """Return the form, filled in with the dimensions that are `usual` (none: all), and with what the address names (``?tag=build=41``).

    Only dimensions that have propositions are filled in. Where the address compares tags (``against``) it is all of them but those of
    channels. Proposition folders that cannot be read are an error of the form.
    """
    problem = ""
    dimensions: Sequence[str] = ()
    try:
        dimensions = default_dimensions()
    except PropositionError as error:
        problem = f"proposition files cannot be used: {error}"
    filled_in: dict[str, object] = {"dimensions": [d for d in dimensions if d in usual] or list(dimensions)}
    if "against" in request.GET:  # two builds are compared by what the agent itself said
        filled_in["dimensions"] = [d for d in dimensions if d not in CHANNEL_DIMENSIONS]
    tags = request.GET.getlist("tag")
    if tags:
        filled_in["where"] = ",".join(tags)
    form_class = CapturingForm if is_baseline else EvaluatingForm
    form = form_class(as_query(request, form_class, filled_in))
    if problem:
        form.add_error(None, problem)
    return form


def requests_of(form: RequestForm) -> list[EvaluationRequest]:
    """Return what a valid form asks for: an evaluation, and before it the one that it is to be compared with."""
    request = form.asked
    against = getattr(request, "against", {})
    if not against:
        return [request]
    return [request.model_copy(update={"where": against}), request]


@contextmanager
def refusing_files() -> Iterator[None]:
    """Turn proposition files that cannot be used into a ValueError that says which."""
    try:
        yield
    except PropositionError as error:
        raise ValueError(f"proposition files cannot be used: {error}") from None


def ways_to_evaluate(agent: Agent, builds: Sequence[str]) -> list[tuple[str, str]]:
    """Return address and label of what can be evaluated: the two newest builds to compare them, all messages, the newest build.

    Args:
        builds: As ``build=41``, the newest first; empty without tags.
    """
    url = reverse("admin:evaluation_agent_evaluate", args=[agent.pk])
    ways = []
    if len(builds) > 1:
        query = urlencode({"tag": builds[0], "against": builds[1]})
        ways.append((f"{url}?{query}", f"Evaluate {builds[1]} and {builds[0]}, to compare them"))
    ways.append((url, "Evaluate all"))
    if builds:
        query = urlencode({"tag": builds[0]})
        ways.append((f"{url}?{query}", f"Evaluate {builds[0]}"))
    return ways


# -- what it takes
def measuring_preview(specs: Sequence[RunSpec], *, simulate: str, dropped_tags: str = "") -> CostPreview:
    """Estimate calls, tokens and dollars before anything is asked; nothing is stored. A cost that is not known is *unpriced*.

    Args:
        simulate: As `EvaluationRequest.simulate` says it.
        dropped_tags: Tags that choose the messages of the agent's baseline, and that its new one would not ask for.

    Raises:
        ValueError: Proposition files cannot be used.
    """
    spec = specs[-1]  # before it comes the one that it is to be compared with, if any
    agent = spec.agent
    assert agent is not None  # noqa: S101 (the pages are of agents)
    has_little = simulate == AUTO and has_little_speech(spec)
    is_simulated = spec.simulated or has_little
    why_not = why_not_simulated(agent, spec.actor_model) if is_simulated else ""
    acting: SimulationEstimate | None = None
    with refusing_files():
        if is_simulated and not why_not:
            acting, judging = _estimate_simulation(spec)
            estimates = [judging]
        else:
            estimates = estimate_all(specs)
    warnings: list[object] = []
    if has_little:
        warnings.append(_little_speech_warning(why_not))
    warnings += _budget_and_open_runs_warnings(agent, spec.judge_model)
    if dropped_tags:
        warnings.append(
            f"The baseline is of messages with {display.visible(dropped_tags)}; this one would be of messages with any."
        )
    note = "Baselines stay as they are."
    if spec.is_baseline:
        note = (
            "The new baseline takes the place of the old one in these dimensions when it has succeeded, and not before."
        )
    facts: list[tuple[str, object]] = [("Agent", agent_chip(agent))]
    if spec.few_shot:
        facts.append(("Labelled examples", trial_sentence(spec)))
    return cost_preview(
        facts,
        estimates,
        acting=acting,
        warnings=warnings,
        note=f"{note} It can be cancelled while it runs; what was judged stays.",
        # Where simulating was only a help for want of speech, the few messages are judged instead.
        why_not=why_not if spec.simulated else "",
    )


def _estimate_simulation(spec: RunSpec) -> ActorAndJudge:
    """Estimate simulating a spec's situations, each as often as it asks for, or Plumbline's own once; and judging them."""
    if not spec.situations:
        return estimate_simulation(spec, situations=load_situations(), actor_model=spec.actor_model)
    chosen = [Situation.model_validate(situation) for situation in spec.situations]
    return estimate_simulation(spec, situations=chosen, actor_model=spec.actor_model, repeats=spec.repeats)


def _little_speech_warning(why_not_simulated: str) -> str:
    """Say what happens with an agent that has little speech."""
    few = f"The agent has fewer than {ENOUGH_MESSAGES} messages"
    if why_not_simulated:
        return f"{few}; these are judged, however few. It is {display.visible(why_not_simulated)}."
    return f"{few}: a worker simulates conversations with it first, and judges what it says in them."


def _budget_and_open_runs_warnings(agent: Agent, judge: str) -> list[object]:
    """Warn of a used-up budget, and of evaluations of the agent that have not ended."""
    warnings: list[object] = []
    over_budget = why_over_budget(agent, judge)
    if over_budget:
        warnings.append(f"{over_budget}. The evaluation would pause until there is room.")
    open_runs = EvaluationRun.objects.filter(agent=agent, status__in=EvaluationRun.OPEN).order_by("-pk")[:5]
    links = format_html_join(", ", "{}", [(evaluation_link(run.pk),) for run in open_runs])
    if links:
        warnings.append(format_html("Under way already: {}.", links))
    return warnings


def cost_preview(
    facts: Sequence[tuple[str, object]],
    estimates: Sequence[Estimate],
    *,
    acting: SimulationEstimate | None = None,
    warnings: Sequence[object] = (),
    note: str = "",
    why_not: str = "",
) -> CostPreview:
    """Preview what these evaluations would cost, and the simulation before.

    Args:
        facts: What is shown first.
        estimates: Of at least one evaluation, all by the same judge.
        acting: Of the simulation before; None without one.
        why_not: Why it cannot be asked for; where it is empty, why the judge cannot be asked is shown instead, if it cannot.
    """
    judge = estimates[0].judge
    judge_is_paid = is_priced(judge)
    actor_is_paid = acting is not None and is_priced(acting.actor_model)
    judgements = sum(estimate.judgements for estimate in estimates)
    without_a_call = sum(estimate.without_a_call for estimate in estimates)
    rows: list[tuple[str, object]] = [
        *facts,
        ("Judge", judge_badge(judge)),
        (
            "Judgements",
            display.lines(f"{judgements:,}", f"{without_a_call:,} without a call" if without_a_call else ""),
        ),
    ]
    spending = estimated(estimates)
    if judge_is_paid:
        rows.append(("Calls of the judge", f"{spending.calls:,}"))
        rows.append(("Tokens of the judge, in and out", f"{spending.input_tokens:,} · {spending.output_tokens:,}"))
    else:
        rows.append(("Calls of the judge", "none: it answers on this machine"))
    if acting:
        rows.append(("Calls to simulate conversations first", f"{acting.calls:,}"))
        rows.append(("Tokens of the simulation, in and out", f"{acting.input_tokens:,} · {acting.output_tokens:,}"))
    if judge_is_paid or actor_is_paid:
        rows.append(("Cost, estimated", _total_cost(spending, acting)))
        note = _how_estimated(estimates) + note
    else:
        rows.append(("Cost, estimated", display.badge("free", "good")))
    if not judgements:
        warnings = (*warnings, "Nothing would be judged: no message fits these choices.")
    if not why_not:
        why_not = str(display.visible(problem_of("judge", judge)))
    return CostPreview(facts=rows, warnings=warnings, note=note, why_not=why_not)


def _total_cost(spending: Spending, acting: SimulationEstimate | None) -> SafeString:
    """Show the cost of judging and simulating; unpriced where one of the two has no price."""
    cost = spending.cost_usd
    calls = spending.calls
    if acting is not None:
        calls += acting.calls
        cost = None if cost is None or acting.cost_usd is None else cost + acting.cost_usd
    return display.money(cost, unpriced=calls if cost is None else 0)


def _how_estimated(estimates: Sequence[Estimate]) -> str:
    """Say what the estimate rests on."""
    answers = answer_words(estimates)
    and_answers = f", and {answers}" if answers else ""
    return (
        f"Tokens are a quarter of the characters of the very prompts{and_answers}; the prompt cache is not counted on. "
    )
