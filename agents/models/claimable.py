"""The one abstract model for rows that are work: claimed by a conditional UPDATE, kept by a lease, resumed by anybody."""

from __future__ import annotations

import os
import secrets
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.db import IntegrityError, models, transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Value, Window
from django.db.models.functions import Coalesce, RowNumber
from django.utils import timezone

from agents.models.workers import LastServed
from agents.outages import outlasting

if TYPE_CHECKING:
    from django.db.models.manager import Manager

CANDIDATES = 20  # rows one look for work finds at most
LOOKS = 3


def owner_name() -> str:
    """A name for this process and moment, ``host:pid:token``, under which it claims work."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def owner_is_dead(owner: str) -> bool:
    """Whether `owner` was a process of this host that no longer runs.

    Spares a person who killed a command the wait for its lease. False whenever it cannot be known (another host), so that the
    lease decides.
    """
    host, _, rest = owner.partition(":")
    pid = rest.partition(":")[0]
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


class Claimable(models.Model):
    """A row that is work. `select_for_update` does nothing on SQLite, so claims are conditional UPDATEs on every database.

    A lease says until when the claim is believed; the owner extends it before each model call. Work whose lease ran out, or whose
    owner is known to be dead, can be claimed again: `attempt` counts the claims.
    """

    class Status(models.TextChoices):
        PENDING = "pending", "pending"
        RUNNING = "running", "running"
        COMPLETED = "completed", "completed"
        FAILED = "failed", "failed"
        ERRORED = "errored", "errored"
        CANCELLED = "cancelled", "cancelled"
        PAUSED_BUDGET = "paused_budget", "paused (budget)"

    FINAL: ClassVar[tuple[str, ...]] = (Status.COMPLETED, Status.FAILED, Status.ERRORED, Status.CANCELLED)
    WHOSE: ClassVar[Any] = Value(0)  # an integer expression: for whom the work is done, so that each comes in turn

    status = models.CharField(
        max_length=16,
        choices=Status.choices,
        default=Status.PENDING,
        help_text="failed = an expected failure with a reason; errored = a crash, can be resumed",
    )
    claimed_by = models.CharField(
        max_length=200, blank=True, default="", editable=False, help_text="host:pid:token of the owner"
    )
    lease_expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    attempt = models.PositiveIntegerField(default=0, editable=False, help_text="how often this was claimed")
    error = models.TextField(blank=True, default="", help_text="why it failed, errored or paused")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    if TYPE_CHECKING:
        objects: ClassVar[Manager[Any]]

    class Meta:
        abstract = True

    @classmethod
    def claimable(cls) -> Q:
        """Condition for rows that may be claimed now: pending, or running under a lease that ran out."""
        lost = Q(lease_expires_at__isnull=True) | Q(lease_expires_at__lt=timezone.now())
        return Q(status=cls.Status.PENDING) | (Q(status=cls.Status.RUNNING) & lost)

    @classmethod
    def in_turn(cls, free: QuerySet[Any] | None = None, *, first: tuple[str, ...] = ()) -> list[Self]:
        """Rows that may be claimed, in the order in which they should be: who was served longest ago comes first.

        Each agent's oldest row comes before anybody's second, so that a thousand rows of one do not stand before another's only one.

        Args:
            free: What may be claimed; by default what `claimable` says.
            first: What goes before this order, as `order_by` takes it.

        Returns:
            At most `CANDIDATES` rows: several workers that look at once find something each.
        """
        rows = cls._default_manager.filter(cls.claimable()) if free is None else free
        served = LastServed.objects.filter(kind=cls._meta.db_table, whose=OuterRef("for_whom")).values("at")
        place = Window(RowNumber(), partition_by=[F("for_whom")], order_by=[F("created_at").asc(), F("pk").asc()])
        ranked = rows.annotate(for_whom=cls.WHOSE, place=place).filter(place__lte=CANDIDATES)
        ordered = ranked.annotate(served=Subquery(served)).order_by(
            *first, "place", F("served").asc(nulls_first=True), "created_at", "pk"
        )
        chosen = list(ordered.values_list("pk", flat=True)[:CANDIDATES])
        found = cls._default_manager.in_bulk(chosen)
        return [found[pk] for pk in chosen if pk in found]

    @classmethod
    def claim_next(cls, *, owner: str, lease: timedelta) -> Self | None:
        """Claim the row whose turn it is; None when there is none that can be claimed."""
        for _ in range(LOOKS):  # others may have taken all that one look found
            if not (rows := cls.in_turn()):
                return None
            for row in rows:
                if row.claim(owner=owner, lease=lease):
                    row.note_served()
                    return row
        return None

    def note_served(self) -> None:
        """Remember that work for this agent has begun: the others come before its next."""
        whose = type(self)._default_manager.filter(pk=self.pk).values_list(self.WHOSE, flat=True).first()
        if whose is not None:
            LastServed.objects.bulk_create(
                [LastServed(kind=self._meta.db_table, whose=whose, at=timezone.now())],
                update_conflicts=True,
                unique_fields=["kind", "whose"],
                update_fields=["at"],
            )

    def claim(self, *, owner: str, lease: timedelta, resumable: tuple[str, ...] = ()) -> bool:
        """Try to become the owner of this row; also of one in a status listed in `resumable`.

        Returns:
            True when this caller is the owner now. False when somebody else was faster or still holds a valid lease, or when a
            constraint does not let this row run now (an agent has one turn at a time).
        """
        now = timezone.now()
        free = self.claimable() | Q(status__in=resumable)
        if self.status == self.Status.RUNNING and self.claimed_by and owner_is_dead(self.claimed_by):
            free |= Q(status=self.Status.RUNNING, claimed_by=self.claimed_by)
        claimed = {
            "status": self.Status.RUNNING,
            "claimed_by": owner,
            "lease_expires_at": now + lease,
            "attempt": F("attempt") + 1,
            "started_at": Coalesce(F("started_at"), now, output_field=models.DateTimeField()),
            "finished_at": None,
            "error": "",
        }
        try:
            with transaction.atomic():
                won = type(self)._default_manager.filter(free, pk=self.pk).update(**claimed)
        except IntegrityError:  # a constraint lets only so many of these run at once: it waits
            return False
        if won:
            self.refresh_from_db()
        return bool(won)

    def extend_lease(self, *, owner: str, lease: timedelta) -> bool:
        """Heartbeat. False means that the claim was lost (or the work cancelled) and the caller must stop."""
        mine = type(self)._default_manager.filter(pk=self.pk, status=self.Status.RUNNING, claimed_by=owner)
        return bool(outlasting(lambda: mine.update(lease_expires_at=timezone.now() + lease)))

    def finish(self, *, owner: str, status: str, error: str = "", **fields: Any) -> bool:
        """End the work in `status`, storing `fields`, if `owner` still holds it."""
        mine = type(self)._default_manager.filter(pk=self.pk, status=self.Status.RUNNING, claimed_by=owner)
        ended = {
            "status": status,
            "error": error,
            "claimed_by": "",
            "lease_expires_at": None,
            "finished_at": timezone.now() if status in self.FINAL else None,
            **fields,
        }
        done = outlasting(lambda: mine.update(**ended))
        if done:
            self.refresh_from_db()
        return bool(done)
