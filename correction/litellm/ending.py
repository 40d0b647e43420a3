"""End a reply that gets no further round: store its conversation and its verdicts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agents.kit.work.queues import do_next
from correction.litellm.models import GatedReply

LEASE = timedelta(seconds=60)
MOST_ATTEMPTS = 3  # leases of one reply before its crash is final


def work_one(*, owner: str) -> bool:
    """Store the reply that has been over longest; return whether there was one."""
    return do_next(GatedReply, _end, owner=owner, lease=LEASE, attempts=MOST_ATTEMPTS)


def _end(row: GatedReply) -> dict[str, Any]:
    return {"status": GatedReply.Status.COMPLETED, "context": {}, "replies": []}
