"""Checks of a judge that the console asked for: queued as a job with the evaluations it waits for, and concluded by a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from agents.kit.work.queues import wake_workers
from evaluation.calibration.swap_test import store_swap_tests, swap_specs, swap_tests
from evaluation.models import EvaluationRun, Job, SwapHalf
from evaluation.runs.planning import RESUMABLE, RunSpec, prepare_run
from evaluation.runs.summary import refusal

Status = Job.Status


def queue_check(*, specs: Sequence[RunSpec], of_all: bool, user: Any = None) -> Job:
    """Have workers check a judge (the swap test): measure each agent on its own words and on those of others.

    Args:
        specs: What is measured of each agent, by the judge to check.
        of_all: Whether these are all agents.

    Raises:
        ValueError: A dimension that is not judged message by message.
        PropositionError: Proposition files cannot be used.
    """
    first = specs[0]
    options = {"judge": first.judge_model, "procedure": first.procedure, "of_all": of_all}
    with transaction.atomic():
        job: Job = Job.objects.create(kind=Job.Kind.JUDGE_CHECK, options=options, total=len(specs), created_by=user)
        runs = [prepare_run(half)[0] for spec in specs for half in swap_specs(spec)]
        EvaluationRun.objects.filter(pk__in=[run.pk for run in runs], status__in=RESUMABLE).update(
            status=Status.PENDING
        )
        job.evaluations.set(runs)
        transaction.on_commit(wake_workers)
    return job


def conclude(job: Job, *, owner: str) -> dict[str, Any]:
    """Compare own words with those of others, now that all of them are judged, and store it beside the judge's scores."""
    halves: dict[str, dict[int | None, EvaluationRun]] = {half.value: {} for half in SwapHalf}
    runs = list(job.evaluations.select_related("agent").order_by("pk"))
    for run in runs:
        halves[run.swap_test][run.agent_id] = run
    left = [run for run in runs if run.status != EvaluationRun.Status.COMPLETED]
    swapped = halves[SwapHalf.SWAPPED]
    pairs = [(run, swapped[agent]) for agent, run in halves[SwapHalf.OWN].items() if agent in swapped]
    if left or not pairs:
        ended = left[0].status if left else "gone"
        why = refusal(runs) or (left[0].error if left else "")
        return {
            "status": Status.FAILED,
            "error": f"{len(left)} of {len(runs)} evaluations are {ended}, not completed{f': {why}' if why else ''}",
        }
    tests = swap_tests(pairs)
    result = {
        "dimensions": {name: test.model_dump(mode="json") for name, test in tests.items()},
        "stays": {name: one.agents for name, one in store_swap_tests(tests=tests, **job.options).items()},
    }
    return {"status": Status.COMPLETED, "done": len(pairs), "result": result}
