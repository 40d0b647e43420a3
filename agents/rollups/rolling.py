"""Summing up: closes whole hours, one transaction each, and makes closed ones anew when their rows changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Max, Q
from django.db.models.functions import TruncHour
from django.utils import timezone

from agents.models import Rollup, Span, StaleHour, owner_is_dead, owner_name
from agents.rollups.families import Rolled
from agents.rollups.spans import HOUR, after, floor

log = logging.getLogger(__name__)

LEASE = timedelta(minutes=10)  # an hour of a busy installation takes seconds
OPEN_TRANSACTION = timedelta(minutes=5)
SECONDS_AT_ONCE = 20.0  # after that a worker looks at its other queues


class Lost(Exception):
    """Another worker goes on with it."""


def closing_time(now: datetime | None = None) -> datetime:
    """Hours before this may be closed. The lag lets transactions end that began in the hour."""
    return floor((now or timezone.now()) - timedelta(minutes=settings.ROLLUP_LAG_MINUTES), Span.HOUR)


def roll_up(rolled: Rolled, *, owner: str, now: datetime | None = None, seconds: float | None = SECONDS_AT_ONCE) -> int:
    """Close the hours that are over, and sum up anew those that changed; returns how many were summed.

    Idempotent, and done by one worker at a time: the row of `Rollup` is claimed. What a killed worker left is taken up after its
    lease. Hours whose raw rows were pruned keep their sums.

    Args:
        rolled: What is summed up.
        owner: Under whose name it is claimed.
        now: The present; for tests and trials.
        seconds: Stop after about so long and leave the rest to the next call; None: not before all is done.
    """
    target = closing_time(now)
    if not _is_due(rolled, target):
        return 0
    state = _claimed(rolled, owner)
    if state is None:
        return 0
    until = None if seconds is None else time.monotonic() + seconds
    done = 0
    try:
        for _ in _work(rolled, state, owner, target):
            done += 1
            if until is not None and time.monotonic() > until:
                break
    except Lost:
        log.info("summing up the %s is done by somebody else now", rolled.name)
    finally:
        Rollup.objects.filter(pk=state.pk, claimed_by=owner).update(claimed_by="", lease_expires_at=None)
    return done


def mark_stale(name: str, hour: datetime) -> None:
    """Say that a row of this hour was changed after it may have been summed up; part of the transaction that changes it."""
    StaleHour.objects.create(name=name, hour=floor(hour, Span.HOUR))


def mark_hours_stale(rolled: Rolled, *, since: datetime) -> None:
    """Have every closed hour from `since` on made anew by the next `roll_up`."""
    starts = rolled.families[0].tables[0].model._default_manager.filter(span=Span.HOUR, start__gte=since)
    hours = starts.order_by("start").values_list("start", flat=True).distinct()
    StaleHour.objects.bulk_create(StaleHour(name=rolled.name, hour=hour) for hour in hours)


def may_be_closed(moment: datetime) -> bool:
    """Whether the hour of this moment may be summed up already, or before a transaction ends that is open now; costs no query."""
    return moment < closing_time(timezone.now() + OPEN_TRANSACTION)


def prunable_before(rolled: Rolled, cutoff: datetime) -> datetime | None:
    """How far raw rows may be deleted: the last whole hour before `cutoff` that is summed up; None where nothing is.

    Sums up first what can be.
    """
    roll_up(rolled, owner=owner_name(), seconds=None)
    state = Rollup.objects.filter(name=rolled.name).first()
    if state is None or state.closed_before is None or StaleHour.objects.filter(name=rolled.name).exists():
        return None
    return min(floor(cutoff, Span.HOUR), state.closed_before)


def _claimed(rolled: Rolled, owner: str) -> Rollup | None:
    """The state, if this caller holds it now: it was free, its lease ran out, or its owner is known to be dead."""
    state, _ = Rollup.objects.get_or_create(name=rolled.name)
    free = Q(claimed_by="") | Q(lease_expires_at__lt=timezone.now())
    if state.claimed_by and owner_is_dead(state.claimed_by):
        free |= Q(claimed_by=state.claimed_by)
    won = Rollup.objects.filter(free, pk=state.pk).update(claimed_by=owner, lease_expires_at=timezone.now() + LEASE)
    return Rollup.objects.get(pk=state.pk) if won else None


def _is_due(rolled: Rolled, target: datetime) -> bool:
    """Whether there is anything to do; two short queries."""
    closed = Rollup.objects.filter(name=rolled.name).values_list("closed_before", flat=True).first()
    if StaleHour.objects.filter(name=rolled.name).exists():
        return closed is not None
    return _next_hour(rolled, closed, target) is not None


def _next_hour(rolled: Rolled, closed: datetime | None, target: datetime) -> datetime | None:
    """The first hour with rows that is not closed and may be."""
    if closed is not None and closed >= target:
        return None
    rows = rolled.rows().filter(created_at__lt=target)
    if closed is not None:
        rows = rows.filter(created_at__gte=closed)
    first: datetime | None = rows.order_by("created_at").values_list("created_at", flat=True).first()
    return None if first is None else floor(first, Span.HOUR)


def _work(rolled: Rolled, state: Rollup, owner: str, target: datetime) -> Iterator[datetime]:
    """Each hour as it is summed up."""
    newest = rolled.rows().aggregate(newest=Max("pk"))["newest"] or 0
    if state.closed_before is None:
        state.seen_pk = state.older_pk = newest
    before = state.closed_before
    while (hour := _next_hour(rolled, state.closed_before, target)) is not None:
        _close(rolled, state, owner, hour)
        yield hour
    for hour in _stale(rolled):
        if _again(rolled, state, owner, hour):
            yield hour
    if state.closed_before == before:
        return  # late rows are looked for when an hour is closed; until then those seen now may be late ones
    if before is not None:
        for hour in _with_late_rows(rolled, state, before):
            if _again(rolled, state, owner, hour):
                yield hour
    _keep(state, owner, seen_pk=newest, older_pk=state.seen_pk)


def _close(rolled: Rolled, state: Rollup, owner: str, hour: datetime) -> None:
    """Sum up this hour, and the day and month before it if they are over now; all or nothing."""
    end = hour + HOUR
    with transaction.atomic():
        rolled.fill(Span.HOUR, hour)
        last = None if state.closed_before is None else state.closed_before - HOUR
        for span in (Span.DAY, Span.MONTH):
            begun = {floor(moment, span) for moment in (last, hour) if moment is not None}
            for start in sorted(begun):
                if after(start, span) <= end:
                    rolled.fill(span, start)
        _keep(state, owner, closed_before=end, seen_pk=state.seen_pk, older_pk=state.older_pk)


def _again(rolled: Rolled, state: Rollup, owner: str, hour: datetime) -> bool:
    """Sum up a closed hour anew, and the day and month it is in; not where raw rows were pruned: their sums are all there is."""
    closed = state.closed_before
    with transaction.atomic():
        # Only the marks seen now: another may be made by a transaction that is not over yet, of rows that are not seen yet.
        marks = list(StaleHour.objects.filter(name=rolled.name, hour=hour).values_list("pk", flat=True))
        StaleHour.objects.filter(pk__in=marks).delete()
        if closed is None or hour >= closed or not rolled.is_whole(hour):
            return False
        were = rolled.summed(hour)
        rolled.fill(Span.HOUR, hour)
        if any(now < before for now, before in zip(rolled.summed(hour), were, strict=True)):
            # Rows were pruned between looking and summing: what was there stays. The mark, too; the next look finds the rows gone.
            transaction.set_rollback(True)
            return False
        for span in (Span.DAY, Span.MONTH):
            start = floor(hour, span)
            if after(start, span) <= closed:
                rolled.fill(span, start)
        _keep(state, owner, closed_before=closed)
    return True


def _stale(rolled: Rolled) -> list[datetime]:
    return list(StaleHour.objects.filter(name=rolled.name).values_list("hour", flat=True).distinct().order_by("hour"))


def _with_late_rows(rolled: Rolled, state: Rollup, before: datetime) -> list[datetime]:
    """Hours closed earlier that have more rows now than they were summed up from: written by transactions that ended late.

    Looks at the rows inserted since the time before last, not only the newest: a transaction may end after one that began later.
    """
    new = rolled.rows().filter(pk__gt=state.older_pk, created_at__lt=before).order_by()
    hours = new.values(hour=TruncHour("created_at", tzinfo=UTC)).annotate(n=Count("pk"))
    found = sorted(floor(row["hour"], Span.HOUR) for row in hours)
    first = rolled.families[0]
    return [hour for hour in found if first.of_hour(hour).count() > first.summed(hour)]


def _keep(state: Rollup, owner: str, **fields: object) -> None:
    """Write how far it got, and go on holding the claim.

    Raises:
        Lost: The claim is somebody else's; the transaction must be undone.
    """
    held = Rollup.objects.filter(pk=state.pk, claimed_by=owner)
    if not held.update(lease_expires_at=timezone.now() + LEASE, **fields):
        raise Lost
    for name, value in fields.items():
        setattr(state, name, value)
