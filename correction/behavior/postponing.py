"""Calls that failed for now: the work goes back to its queue and is tried again later, a few times."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.db.models import F, QuerySet
from django.utils import timezone

from agents.llm import Reply
from agents.llm.requests import Status
from agents.models import Leasable
from agents.work.queues import wake_workers

FOR_NOW = (Status.RATE_LIMITED, Status.UNAVAILABLE, Status.TIMEOUT)
WAITS = (1, 5, 30)  # minutes before the second, third and fourth try; then it has failed
HANDED_BACK: dict[str, Any] = {"attempt": F("attempt") - 1}  # what was no fault of the work costs it no try


def after_failure(work: Leasable, reply: Reply, *, where: str = "") -> dict[str, Any]:
    """The columns of work whose call gave no answer: queued until it is tried again, or failed.

    Args:
        work: Claimed; its `attempt` is this try's number, from 1.
        reply: The call's.
        where: Names the call among others of the same work.
    """
    said = ": ".join(filter(None, (where, str(reply.status), reply.error)))
    if reply.status not in FOR_NOW or work.attempt > len(WAITS):
        return {"status": work.Status.FAILED, "error": said}
    minutes = WAITS[max(work.attempt, 1) - 1]
    return {
        "status": work.Status.PENDING,
        "error": f"{said} (tried again in {minutes} min)",
        "lease_expires_at": timezone.now() + timedelta(minutes=minutes),
    }


def midnight() -> datetime:
    """When a daily budget begins anew (UTC). Kept where a lease stands while the work runs."""
    tomorrow = timezone.now().astimezone(UTC).date() + timedelta(days=1)
    return datetime.combine(tomorrow, time.min, tzinfo=UTC)


def resume(rows: QuerySet[Any]) -> str | None:
    """Queue again what waited for a budget or for another try, and no longer has to. What chores call."""
    status = rows.model.Status
    due = rows.filter(status__in=(status.PAUSED_BUDGET, status.PENDING), lease_expires_at__lte=timezone.now())
    resumed = due.update(status=status.PENDING, lease_expires_at=None) if due.exists() else 0
    if resumed:
        wake_workers()
    return f"{resumed} taken up again" if resumed else None
