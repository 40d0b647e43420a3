"""What the console has a worker do that has no table of its own: suggestions for propositions, and checks of a judge."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from pydantic import BaseModel

from agents.kit.models.lease import LeaseLost
from agents.kit.work.queues import do_next, wake_workers
from agents.models import Agent
from evaluation.calibration.swap_test import store_swap_tests, swap_specs, swap_tests
from evaluation.drafting.editing import NO_FOLDER, CannotSave, team_folder
from evaluation.drafting.suggesting import suggest_for, write_suggestions
from evaluation.models import EvaluationRun, Job, SwapHalf
from evaluation.runs.planning import RESUMABLE, RunSpec, prepare_run
from evaluation.runs.summary import refusal

Status = Job.Status
MOST_TRIES = 3  # of a job whose worker crashed


class Suggested(BaseModel):
    """What came of asking for suggestions about one agent: how many can be used and were written, and why there are no more."""

    agent: str
    written: int
    dropped: int
    why: str


def queue_suggestions(*, agents: Sequence[Agent], most: int, model: str = "", user: Any = None) -> Job:
    """Have a worker ask a model for propositions about some agents; they are written as suggestions, which nothing judges.

    Raises:
        ValueError: There is no folder to write to.
    """
    if team_folder() is None:
        raise ValueError(NO_FOLDER)
    options = {"agents": [agent.pk for agent in agents], "most": most, "model": model}
    with transaction.atomic():
        job: Job = Job.objects.create(kind=Job.Kind.SUGGESTIONS, options=options, total=len(agents), created_by=user)
        transaction.on_commit(wake_workers)
    return job


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


def work_one(*, owner: str) -> bool:
    """Do the job that has waited longest; return whether there was one."""
    return do_next(Job, partial(_do, owner=owner), owner=owner, lease=_lease(), attempts=MOST_TRIES)


def _lease() -> timedelta:
    """Longer than asking about the agents of one round takes, with all tries."""
    return timedelta(seconds=4 * (settings.LLM_EVALUATION_RETRIES + 1) * settings.LLM_EVALUATION_DEADLINE + 60)


def _do(job: Job, *, owner: str) -> dict[str, Any]:
    return _suggest(job, owner) if job.kind == Job.Kind.SUGGESTIONS else _conclude(job)


def _suggest(job: Job, owner: str) -> dict[str, Any]:
    """Ask about a few agents at a time, and store what came of it after each round."""
    folder, rows = team_folder(), list(job.result.get("agents", []))
    if folder is None:
        return {"status": Status.FAILED, "error": NO_FOLDER}
    asked = {row["agent"] for row in rows}
    left = [one for one in Agent.objects.filter(pk__in=job.options["agents"]).order_by("slug") if one.slug not in asked]
    at_once = settings.LLM_MAX_CONCURRENCY
    for agents in (left[start : start + at_once] for start in range(0, len(left), at_once)):
        if not job.extend_lease(owner=owner, lease=_lease()):
            raise LeaseLost(f"{job} is not held by {owner} any more")
        for one in suggest_for(agents=agents, model=job.options["model"], most=job.options["most"]):
            why, written = one.reason, len(one.usable)
            try:
                write_suggestions(one, folder=folder)
            except CannotSave as problem:
                why, written = str(problem), 0
            rows.append(Suggested(agent=one.agent, written=written, dropped=len(one.dropped), why=why).model_dump())
        job.result = {"agents": rows}
        Job.objects.filter(pk=job.pk, lease_owner=owner).update(result=job.result, done=len(rows))
    failed = [row["agent"] for row in rows if row["why"] and not row["written"]]
    error = f"no suggestions for {', '.join(failed)}: {rows[0]['why']}" if rows and len(failed) == len(rows) else ""
    return {"status": Status.FAILED if error else Status.COMPLETED, "error": error, "result": {"agents": rows}}


def _conclude(job: Job) -> dict[str, Any]:
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
