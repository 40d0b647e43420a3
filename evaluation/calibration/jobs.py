"""Checks of a judge (swap test, order test): what is asked for; queued by the console as a job, and concluded by a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from django.db import transaction
from pydantic import Field

from agents.kit.bodies import OneOf
from agents.kit.use_cases import FieldDisplay
from agents.kit.work.queues import wake_workers
from agents.models import Agent, Channel
from evaluation.calibration.order_test import order_specs, order_tests, store_order_tests
from evaluation.calibration.swap_test import SAMPLES, Pair, said_something, store_swap_tests, swap_specs, swap_tests
from evaluation.models import BY_MESSAGE, Dimension, EvaluationRun, Job, SwapHalf
from evaluation.propositions.files import default_dimensions
from evaluation.runs.failures import refusal
from evaluation.runs.planning import RESUMABLE, prepare_run
from evaluation.runs.request import MOST_JUDGED, MOST_SAMPLES, AgentsRequest, Judge, refuse_judge
from evaluation.runs.spec import RunSpec
from evaluation.scorers.selection import NO_MESSAGE

Status = Job.Status


class JudgeCheckRequest(AgentsRequest):
    """On which agents a judge is checked, and how."""

    dimensions: Annotated[
        list[Annotated[str, OneOf(*BY_MESSAGE)]],
        FieldDisplay(choices=lambda: [(name, Dimension(name).label) for name in BY_MESSAGE]),
    ] = Field(
        [],
        min_length=1,
        description="what it is checked in: what is judged message by message (default: all of these there are propositions for)",
    )
    judge: Judge = Field("", max_length=200, description="the model to check (default: the configured judge)")
    samples: Annotated[int, FieldDisplay(label="Messages of each agent")] = Field(
        SAMPLES,
        ge=1,
        le=MOST_SAMPLES,
        description=f"most messages sampled per agent, 1 to {MOST_SAMPLES:,}, times repeats at most {MOST_JUDGED:,} (default: {SAMPLES})",
    )

    order: Annotated[bool, FieldDisplay(label="Order test instead")] = Field(
        False,
        description="make the order test instead of the swap test: ask as usual, with the propositions shuffled, and each alone",
    )

    def spec(self, *, agent: Agent | None = None, channel: Channel | None = None, is_baseline: bool = False) -> RunSpec:
        """Return what is measured of an agent; without dimensions, in all those judged message by message there are propositions for."""
        if self.dimensions:
            return super().spec(agent=agent, channel=channel, is_baseline=is_baseline)
        dimensions = [name for name in default_dimensions() if name in BY_MESSAGE]
        return self.model_copy(update={"dimensions": dimensions}).spec(agent=agent)


def specs_to_queue(request: JudgeCheckRequest) -> list[RunSpec]:
    """Return what is measured of each agent that said something, by the judge to check; agents that said nothing are left out.

    Raises:
        ValueError: There is no such agent, there are too many at once, or none said anything; begins with the name of the field.
        PropositionError: Proposition files cannot be used.
    """
    specs = [request.spec(agent=agent) for agent in request.find_few_agents()]
    speaking = [spec for spec in specs if said_something(spec)]
    if not speaking:
        raise ValueError(f"agents: nothing to check the judge on: {NO_MESSAGE}")
    return speaking


def request_check(request: JudgeCheckRequest, *, user: Any = None) -> Job:
    """Have workers check a judge; see `queue_check`.

    Raises:
        ValueError, PropositionError: As `specs_to_queue`; the judge cannot be asked.
    """
    refuse_judge(request.judge)
    return queue_check(specs=specs_to_queue(request), of_all=request.are_all, order=request.order, user=user)


def parts_of(spec: RunSpec, *, order: bool) -> tuple[RunSpec, ...]:
    """Return what is measured of an agent to check a judge: the parts of the order test, or of the swap test.

    Raises:
        ValueError: A dimension, or a method, that cannot be checked so.
    """
    return order_specs(spec) if order else swap_specs(spec)


def queue_check(*, specs: Sequence[RunSpec], of_all: bool, order: bool = False, user: Any = None) -> Job:
    """Have workers check a judge: measure each agent on its own words and on those of others, or in another order.

    Stores the job with its evaluations; those that are there already are used, and judged on where they were stopped. `conclude` ends it.

    Args:
        specs: What is measured of each agent, by the judge to check; one at least.
        of_all: Whether these are all agents; see `store_swap_tests`.
        order: Whether it is the order test; else it is the swap test.

    Raises:
        ValueError: A dimension that is not judged message by message.
        PropositionError: Proposition files cannot be used.
    """
    first = specs[0]
    options = {"judge": first.judge_model, "procedure": first.procedure, "of_all": of_all, "order": order}
    with transaction.atomic():
        job: Job = Job.objects.create(kind=Job.Kind.JUDGE_CHECK, options=options, total=len(specs), created_by=user)
        runs = [prepare_run(half)[0] for spec in specs for half in parts_of(spec, order=order)]
        EvaluationRun.objects.filter(pk__in=[run.pk for run in runs], status__in=RESUMABLE).update(
            status=Status.PENDING
        )
        job.evaluations.set(runs)
        transaction.on_commit(wake_workers)
    return job


def conclude(job: Job, *, owner: str) -> dict[str, Any]:
    """Compare the parts of a test, now that all of them are judged, and store the result for the judge's passport.

    Returns:
        The columns of the job's end: failed, where an evaluation was not completed or no agent has all of its own.
    """
    runs = list(job.evaluations.select_related("agent").order_by("pk"))
    unfinished = [run for run in runs if run.status != EvaluationRun.Status.COMPLETED]
    options = dict(job.options)
    order = options.pop("order", False)
    pairs = _pairs(runs)
    triples = _triples(runs)
    if unfinished or not (triples if order else pairs):
        return {"status": Status.FAILED, "error": _why_not_concluded(runs, unfinished)}
    if order:
        orders = order_tests(triples)
        store_order_tests(judge=options["judge"], procedure=options["procedure"], tests=orders)
        dumped = {name: test.model_dump(mode="json") for name, test in orders.items()}
        return {"status": Status.COMPLETED, "done": len(triples), "result": {"orders": dumped}}
    tests = swap_tests(pairs)
    stays = store_swap_tests(tests=tests, **options)
    result = {
        "dimensions": {name: test.model_dump(mode="json") for name, test in tests.items()},
        "stays": {name: earlier.agents for name, earlier in stays.items()},
    }
    return {"status": Status.COMPLETED, "done": len(pairs), "result": result}


def _pairs(runs: Sequence[EvaluationRun]) -> list[Pair]:
    """Return the two evaluations of each agent that has both."""
    own = {run.agent_id: run for run in runs if run.swap_test == SwapHalf.OWN}
    swapped = {run.agent_id: run for run in runs if run.swap_test == SwapHalf.SWAPPED}
    return [(run, swapped[agent]) for agent, run in own.items() if agent in swapped]


def _triples(runs: Sequence[EvaluationRun]) -> list[list[EvaluationRun]]:
    """Return the three evaluations of each agent that has all of the order test."""
    by_agent: dict[int | None, list[EvaluationRun]] = {}
    for run in runs:
        if run.swap_test in (SwapHalf.OWN, SwapHalf.SHUFFLED, SwapHalf.ALONE):
            by_agent.setdefault(run.agent_id, []).append(run)
    return [of_agent for of_agent in by_agent.values() if len(of_agent) == 3]


def _why_not_concluded(runs: Sequence[EvaluationRun], unfinished: Sequence[EvaluationRun]) -> str:
    """Return e.g. "2 of 8 evaluations are errored, not completed: the judge answered nothing: …"; "gone" where they were deleted."""
    status = unfinished[0].status if unfinished else "gone"
    text = f"{len(unfinished)} of {len(runs)} evaluations are {status}, not completed"
    why = refusal(runs)
    if not why and unfinished:
        why = unfinished[0].error
    return f"{text}: {why}" if why else text
