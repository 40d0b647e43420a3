"""Let a request that is sent twice act once: the first sender of a key runs it, all others get the stored answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.models import IdempotentRequest, owner_is_dead, owner_name

KEPT = timedelta(hours=24)
LONGEST_RUN = timedelta(minutes=10)  # a run without an answer for longer is one of a process that died


class OtherRequest(ValueError):
    """The key was used for another request."""


class StillRunning(ValueError):
    """The first request with this key is at work."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it is told from others: two with the same fields are the same."""

    method: str
    path: str
    body_digest: str


def begin(*, user_id: int, key: str, sent: Sent) -> tuple[IdempotentRequest, bool]:
    """Begin a request, or find that it was answered already.

    Returns:
        The row, and whether the caller is to act now; it must then `keep` an answer or `release` the lease. False when the row holds
        the answer.

    Raises:
        OtherRequest: The user sent something else with this key within the last 24 hours.
        StillRunning: Another request with this key acts at this moment.
    """
    IdempotentRequest.objects.filter(user=user_id, key=key, created_at__lt=timezone.now() - KEPT).delete()
    row = IdempotentRequest(
        user_id=user_id,
        key=key,
        method=sent.method,
        path=sent.path,
        body_digest=sent.body_digest,
        lease_owner=owner_name(),
    )
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        return _found(user_id, key, sent)
    return row, True


def _found(user_id: int, key: str, sent: Sent) -> tuple[IdempotentRequest, bool]:
    row = IdempotentRequest.objects.filter(user=user_id, key=key).first()
    if row is None:
        raise StillRunning  # it was released this moment: the sender may try again
    if Sent(row.method, row.path, row.body_digest) != sent:
        raise OtherRequest
    if row.status is not None:
        return row, False
    if not (owner_is_dead(row.lease_owner) or row.leased_at < timezone.now() - LONGEST_RUN):
        raise StillRunning
    before, row.lease_owner, row.leased_at = row.lease_owner, owner_name(), timezone.now()
    taken = _held(row.pk, before).update(lease_owner=row.lease_owner, leased_at=row.leased_at)
    if not taken:  # another process took it over
        raise StillRunning
    return row, True


def keep(row: IdempotentRequest, *, status: int, answer: str, headers: dict[str, str]) -> bool:
    """Store the answer; False when another process took over meanwhile: its answer stays."""
    return bool(_held(row.pk, row.lease_owner).update(status=status, answer=answer, headers=headers))


def release(row: IdempotentRequest) -> None:
    """Nothing was done: the key may be used again."""
    _held(row.pk, row.lease_owner).delete()


def prune_idempotent_requests(before: datetime | None = None, limit: int = 1_000) -> int:
    """Delete at most `limit` requests made before `before` (24 hours ago unless given); returns how many."""
    old = IdempotentRequest.objects.filter(created_at__lt=before or timezone.now() - KEPT)
    keys = list(old.order_by("created_at").values_list("pk", flat=True)[:limit])
    deleted: int = IdempotentRequest.objects.filter(pk__in=keys).delete()[0]
    return deleted


def _held(pk: int, owner: str) -> Any:
    return IdempotentRequest.objects.filter(pk=pk, lease_owner=owner, status=None)
