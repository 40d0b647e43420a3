"""Work of this package that waits: for a budget until midnight UTC, or for another try of a call that failed for now."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from agents.kit.llm import Reply
from agents.kit.llm.requests import Status
from agents.kit.models import Leasable
from agents.kit.work.queues import wake_workers
from agents.models import Agent
from correction.behavior.models import BehaviorEffect, BehaviorRequest, DescriptionUpdate
from correction.costs import evaluation_over_budget

TEMPORARY_FAILURES = (Status.RATE_LIMITED, Status.UNAVAILABLE, Status.TIMEOUT)
WAITS = (1, 5, 30)  # minutes before the second, third and fourth try; then it has failed
MOST_ATTEMPTS = 3  # leases of one row before its crash is final
NO_TRY: dict[str, Any] = {"attempt": F("attempt") - 1}  # an interruption or an empty budget costs the work no try


def one_call() -> timedelta:
    """Return a lease that lasts for one call."""
    return timedelta(seconds=settings.LLM_EVALUATION_DEADLINE + 60)


def over_budget(agent: Agent, judge: str) -> dict[str, Any]:
    """Return the columns of work that waits until midnight UTC, when the daily budget begins again; empty where there is budget."""
    why = evaluation_over_budget(agent, judge)
    if not why:
        return {}
    tomorrow = timezone.now().astimezone(UTC).date() + timedelta(days=1)
    midnight = datetime.combine(tomorrow, time.min, tzinfo=UTC)  # in the column of the lease, as nobody has one
    return {"status": Leasable.Status.PAUSED_BUDGET, "error": why, "lease_expires_at": midnight, **NO_TRY}


def after_failure(work: Leasable, reply: Reply, *, where: str = "") -> dict[str, Any]:
    """Return the columns of work whose call gave no answer: queued until it is tried again, or failed. Nothing is stored here.

    Only a rate limit, a server that is out of reach and a time-out are tried again, after 1, 5 and 30 minutes; then it has failed.

    Args:
        work: Leased; its `attempt` is this try's number, from 1.
        reply: The call's.
        where: Names the call among others of the same work, for the error; empty where there is only one.
    """
    parts = [where, str(reply.status), reply.error]
    error = ": ".join(part for part in parts if part)
    if reply.status not in TEMPORARY_FAILURES or work.attempt > len(WAITS):
        return {"status": work.Status.FAILED, "error": error}
    minutes = WAITS[max(work.attempt, 1) - 1]
    due = timezone.now() + timedelta(minutes=minutes)
    return {
        "status": work.Status.PENDING,
        "error": f"{error} (tried again in {minutes} min)",
        "lease_expires_at": due,  # `resume_paused` gives it back then
    }


def resume_paused() -> str | None:
    """Queue again what waited for a budget or for another try, and no longer has to; return how many, None where there was none."""
    resumed = 0
    for model in (BehaviorRequest, BehaviorEffect, DescriptionUpdate):
        waits = (model.Status.PAUSED_BUDGET, model.Status.PENDING)
        # Of a row that waits this is the moment from which it may go on; None: it waits for nothing but its turn.
        due = model._default_manager.filter(status__in=waits, lease_expires_at__lte=timezone.now())
        if due.exists():
            resumed += due.update(status=model.Status.PENDING, lease_expires_at=None)
    if resumed:
        wake_workers()
    return f"{resumed} queued again" if resumed else None
