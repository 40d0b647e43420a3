"""The pages that have agents measured: what can be chosen, and what it would take."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Self

from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from pydantic import Field, model_validator

from agents.admin.display import agent_chip
from agents.kit.bodies import Tags, fault
from agents.kit.console import display
from agents.kit.console.forms import CostPreview, RequestForm, as_query, request_form
from agents.kit.llm.endpoints import problem_of, provider_of
from agents.kit.use_cases import Shown
from evaluation.admin.display import evaluation_link, judge_badge
from evaluation.budget import why_over_budget
from evaluation.commands import answer_words
from evaluation.models import CHANNEL_DIMENSIONS, EvaluationRun
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.estimate import Estimate, SimulationEstimate, estimate_all, estimate_simulation, estimated
from evaluation.runs.planning import ENOUGH, RunSpec, has_little_speech
from evaluation.runs.request import AUTO, SIMULATE, EvaluationRequest, Simulate
from evaluation.simulation.conversations import why_not_simulated
from evaluation.simulation.situations import Situation, load_situations

FOLDED = (
    *("by", "position_bins", "simulate", "situations", "actor_model", "repeats", "seed", "per_call", "hard"),
    *("double_check", "method", "history", "history_where"),
)
CHOICES = ("dimensions", "samples", "where", "window", "judge", *FOLDED)


class PageRequest(EvaluationRequest):
    """An evaluation of the agent whose page asks for it."""

    simulate: Simulate = Field(AUTO, description=SIMULATE)


class ComparisonRequest(PageRequest):
    """An evaluation, and before it the one that it is to be compared with, where that is asked for."""

    against: Annotated[Tags, Shown(label="And, to compare with, those tagged")] = Field(
        {}, description="such as build=40: an evaluation of its own"
    )

    @model_validator(mode="after")
    def _compares_tags(self) -> Self:
        if self.against and (self.against == self.where or not self.where):
            raise fault("against", "against compares the messages of two tags, such as build=41 with build=40")
        return self


EvaluatingForm = request_form(ComparisonRequest, *CHOICES[:3], "against", *CHOICES[3:])
CapturingForm = request_form(PageRequest, *CHOICES)


def measuring_form(request: HttpRequest, *, usual: Collection[str], is_baseline: bool) -> RequestForm:
    """The form, filled in: with the dimensions that are `usual` (none: all), and with what the address names (``?tag=build=41``)."""
    try:
        every = default_dimensions()
        problem = ""
    except PropositionError as error:
        every, problem = (), f"proposition files cannot be used: {error}"
    chosen: dict[str, object] = {"dimensions": [d for d in every if d in usual] or list(every)}
    if "against" in request.GET:  # two builds are compared by what the agent itself said
        chosen["dimensions"] = [d for d in every if d not in CHANNEL_DIMENSIONS]
    if tags := request.GET.getlist("tag"):
        chosen["where"] = ",".join(tags)
    kind = CapturingForm if is_baseline else EvaluatingForm
    form = kind(as_query(request, kind, chosen))
    if problem:
        form.add_error(None, problem)
    return form


def requests_of(form: RequestForm) -> list[EvaluationRequest]:
    """Return what a valid form asks for: an evaluation, and before it the one that it is to be compared with."""
    asked = form.asked
    against = getattr(asked, "against", {})
    return [asked.model_copy(update={"where": against}), asked] if against else [asked]


@contextmanager
def refusing_files() -> Iterator[None]:
    """Inside, proposition files that cannot be used are a ValueError that says which."""
    try:
        yield
    except PropositionError as error:
        raise ValueError(f"proposition files cannot be used: {error}") from None


# -- what it takes
def measuring_takes(specs: Sequence[RunSpec], *, simulate: str, dropped_tags: str = "") -> CostPreview:
    """Calls, tokens and dollars before anything is asked; nothing is stored. A cost that is not known is *unpriced*.

    Args:
        simulate: As `EvaluationRequest.simulate` says it.
        dropped_tags: Tags that choose the messages of the agent's baseline, and that its new one would not ask for.

    Raises:
        ValueError: Proposition files cannot be used.
    """
    spec = specs[-1]
    agent = spec.agent
    assert agent is not None  # noqa: S101 (the pages are of agents)
    is_little = simulate == AUTO and has_little_speech(spec)
    warnings: list[object] = []
    not_simulated = why_not_simulated(agent, spec.actor_model) if is_little or spec.simulated else ""
    acting: SimulationEstimate | None = None
    try:
        if (is_little or spec.simulated) and not not_simulated:
            chosen = [Situation.model_validate(one) for one in spec.situations]
            acting, judging = estimate_simulation(
                spec, situations=chosen or load_situations(), actor_model=spec.actor_model,
                repeats=spec.repeats if chosen else 1,
            )  # fmt: skip
            every = [judging]
        else:
            every = estimate_all(specs)
    except PropositionError as error:
        raise ValueError(f"proposition files cannot be used: {error}") from None
    if is_little and acting:
        warnings.append(
            f"The agent has fewer than {ENOUGH} messages: a worker simulates conversations with it first, and judges what it says in them."
        )
    elif is_little and not_simulated:
        warnings.append(
            f"The agent has fewer than {ENOUGH} messages; these are judged, however few. It is {display.visible(not_simulated)}."
        )
    if over := why_over_budget(agent, spec.judge_model):
        warnings.append(f"{over}. The evaluation would pause until there is room.")
    if dropped_tags:
        warnings.append(
            f"The baseline is of messages with {display.visible(dropped_tags)}; this one would be of messages with any."
        )
    running = EvaluationRun.objects.filter(agent=agent, status__in=EvaluationRun.OPEN).order_by("-pk")[:5]
    if under_way := format_html_join(", ", "{}", ((evaluation_link(run.pk),) for run in running)):
        warnings.append(format_html("Under way already: {}.", under_way))
    stays = (
        "The new baseline takes the place of the old one in these dimensions when it has succeeded, and not before."
        if spec.is_baseline
        else "Baselines stay as they are."
    )
    return takes(
        [("Agent", agent_chip(agent))],
        every,
        acting=acting,
        warnings=warnings,
        note=f"{stays} It can be cancelled while it runs; what was judged stays.",
        why_not=not_simulated if spec.simulated else "",
    )


def takes(
    facts: Sequence[tuple[str, object]],
    every: Sequence[Estimate],
    *,
    acting: SimulationEstimate | None = None,
    warnings: Sequence[object] = (),
    note: str = "",
    why_not: str = "",
) -> CostPreview:
    """What these evaluations would take, and the simulation before."""
    judge, total = every[0].judge, estimated(every)
    costs = [total.cost_usd, acting.cost_usd if acting else 0]
    unpriced = total.calls + (acting.calls if acting else 0) if None in costs else 0
    is_paid = provider_of(judge) == "anthropic"
    free = sum(one.without_a_call for one in every)
    judged = display.lines(f"{sum(one.judgements for one in every):,}", f"{free:,} without a call")
    shown: list[tuple[str, object]] = [*facts, ("Judge", judge_badge(judge)), ("Judgements", judged)]
    if is_paid:
        shown.append(("Calls of the judge", f"{total.calls:,}"))
        shown.append(("Tokens of the judge, in and out", f"{total.input_tokens:,} · {total.output_tokens:,}"))
    else:
        shown.append(("Calls of the judge", "none: it answers on this machine"))
    if acting:
        shown.append(("Calls to simulate conversations first", f"{acting.calls:,}"))
        shown.append(("Tokens of the simulation, in and out", f"{acting.input_tokens:,} · {acting.output_tokens:,}"))
    costly = is_paid or (acting is not None and provider_of(acting.actor_model) == "anthropic")
    money = display.money(None if unpriced else sum(filter(None, costs)), unpriced=unpriced)  # type: ignore[arg-type]
    shown.append(("Cost, estimated", money if costly else display.badge("free", "good")))
    answers = answer_words(every)
    how = f"Tokens are a quarter of the characters of the very prompts{f', and {answers}' if answers else ''}; "
    how += "the prompt cache is not counted on. "
    if not any(one.judgements for one in every):
        warnings = (*warnings, "Nothing would be judged: no message fits these choices.")
    not_askable = display.visible(problem_of("judge", judge))
    return CostPreview(
        facts=shown, warnings=warnings, note=(how if costly else "") + note, why_not=why_not or str(not_askable)
    )
