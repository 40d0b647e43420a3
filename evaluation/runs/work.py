"""Do the evaluation whose turn it is: the queue of evaluations that workers look at."""

from __future__ import annotations

from collections.abc import Sequence

import sentry_sdk
from django.utils import timezone

from agents.ops.telemetry import logging_about
from agents.work.lease import LOOKS
from agents.work.running import OUTAGE
from evaluation.models import EvaluationRun
from evaluation.runs.budget import why_over_budget
from evaluation.runs.execute import RESUMABLE, Status, execute
from evaluation.runs.judging import lease
from evaluation.simulation.conversations import actor_of, awaits_simulation, simulate_for

CHANNELS_TOGETHER = 4  # evaluations of channels that one piece of work does


def _paused_that_may_go_on() -> EvaluationRun | None:
    """The oldest run that paused for its budget (its agent's, or that of all channels), which has room again: a new day, a higher cap."""
    paused = EvaluationRun.objects.filter(status=Status.PAUSED_BUDGET).select_related("agent")
    paused = paused.exclude(lease_expires_at__gt=timezone.now())
    over: set[tuple[int | None, str]] = set()  # asked once per agent, and once for channels
    run: EvaluationRun
    for run in paused.order_by("created_at", "pk"):
        model = actor_of(run.agent) if run.agent is not None and awaits_simulation(run) else run.judge
        if (run.agent_id, model) not in over:
            if not why_over_budget(run.agent, model):
                return run
            over.add((run.agent_id, model))
    return None


def _more_channels(run: EvaluationRun, waiting: Sequence[EvaluationRun], owner: str) -> list[EvaluationRun]:
    """Lease further runs of channels to execute with one: each asks only a few questions, which alone would leave most call slots free.

    Only of the same judge, whose outage stops them all, and none that a worker was lost with.
    """
    if run.agent_id is not None or run.deaths:
        return []
    more: list[EvaluationRun] = []
    for other in waiting:
        alike = other.agent_id is None and (other.judge, other.batch) == (run.judge, run.batch)
        fresh = other.status == Status.PENDING and not other.deaths
        if len(more) == CHANNELS_TOGETHER - 1:
            break
        try:
            if alike and fresh and other.pk != run.pk and other.acquire(owner=owner, lease=lease()):
                other.note_served()
                more.append(other)
        except OUTAGE:  # what is leased is executed, or goes back to the queue there
            break
    return more


def work_one(*, owner: str) -> bool:
    """Lease and execute the pending, lost or no longer paused run whose turn it is; return whether there was one.

    Runs of channels are executed a few at a time.
    """
    for _ in range(LOOKS):  # other workers may have leased all rows of one look
        waiting = EvaluationRun.in_turn()
        if not waiting and (paused := _paused_that_may_go_on()) is not None:
            waiting = [paused]
        for run in waiting:
            if not run.acquire(owner=owner, lease=lease(), resumable=RESUMABLE):
                continue
            run.note_served()
            about = logging_about(evaluation_run=run.pk, agent=run.agent_id)
            with (
                about,
                sentry_sdk.start_transaction(op="evaluation.work", name="evaluate"),
            ):  # a span alone is sent nowhere
                if awaits_simulation(run):
                    simulate_for(run, owner=owner)
                else:
                    execute([run, *_more_channels(run, waiting, owner)], owner=owner)
            return True
        if not waiting:
            break
    return False
