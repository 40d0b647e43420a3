"""The one abstract model for rows that are work: claimed by a conditional UPDATE, kept by a lease, resumed by anybody."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.conf import settings
from django.db import DatabaseError, IntegrityError, models, transaction
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone

from agents.models.owners import owner_is_dead
from agents.models.waiting import next_in_turn
from agents.models.workers import LastServed
from agents.outages import outlasting

if TYPE_CHECKING:
    from django.db.models.manager import Manager

CANDIDATES = 20  # rows one look for work finds at most
LOOKS = 3

logger = logging.getLogger(__name__)


class Claimable(models.Model):
    """A row that is work. `select_for_update` does nothing on SQLite, so claims are conditional UPDATEs on every database.

    A lease says until when the claim is believed; the owner extends it before each model call. Work whose lease ran out, or whose
    owner is known to be dead, can be claimed again: `attempt` counts the claims. `deaths` counts the owners that were lost since it was
    last handed back: what costs too many of them (WORKER_MOST_DEATHS) ends as errored, lest it kill worker after worker.
    """

    class Status(models.TextChoices):
        PENDING = "pending", "pending"
        RUNNING = "running", "running"
        COMPLETED = "completed", "completed"
        FAILED = "failed", "failed"
        ERRORED = "errored", "errored"
        CANCELLED = "cancelled", "cancelled"
        PAUSED_BUDGET = "paused_budget", "paused (budget)"

    OPEN: ClassVar[tuple[str, ...]] = (Status.PENDING, Status.RUNNING)
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
    deaths = models.PositiveIntegerField(
        default=0, editable=False, help_text="how many workers in a row were lost with it in hand"
    )
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
    def claimable_when_due(cls) -> Q:
        """The same for work that can be pending and yet have to wait: until its `lease_expires_at`, where that is set."""
        return Q(status__in=cls.OPEN) & (Q(lease_expires_at__isnull=True) | Q(lease_expires_at__lt=timezone.now()))

    @classmethod
    def in_turn(cls, free: QuerySet[Any] | None = None, *, lost_first: bool = False) -> list[Self]:
        """Rows that may be claimed, in the order in which they should be: who was served longest ago comes first.

        Each agent's oldest row comes before anybody's second, so that a thousand rows of one do not stand before another's only one.
        However many rows wait, a look reads one per agent, and a few.

        Args:
            free: What may be claimed; by default what `claimable` says.
            lost_first: Whether rows whose owner is gone come before all others.

        Returns:
            At most `CANDIDATES` rows: several workers that look at once find something each.
        """
        rows = cls._default_manager.filter(cls.claimable()) if free is None else free
        chosen = next_in_turn(rows, whose=cls.WHOSE, most=CANDIDATES, lost_first=lost_first)
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
        """Remember that work for this agent has begun: the others come before its next. Costs a place in the order when it fails."""
        try:
            outlasting(self._note_served)
        except DatabaseError as error:
            logger.warning("%s: not noted as served: %s", self, str(error).strip().partition("\n")[0])

    def _note_served(self) -> None:
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
            True when this caller is the owner now. False when somebody else was faster or still holds a valid lease, when a
            constraint does not let this row run now (an agent has one turn at a time), or when it cost too many workers and ended.
        """
        now = timezone.now()
        running, free = Q(status=self.Status.RUNNING), self.claimable() | Q(status__in=resumable)
        if self.status == self.Status.RUNNING:
            if self.claimed_by and owner_is_dead(self.claimed_by):
                free |= running & Q(claimed_by=self.claimed_by)
            if self._end_if_deadly(free):
                return False
        claimed = {
            "status": self.Status.RUNNING,
            "claimed_by": owner,
            "lease_expires_at": now + lease,
            "attempt": F("attempt") + 1,
            "deaths": F("deaths") + Case(When(running, then=1), default=0),
            "started_at": Coalesce(F("started_at"), now, output_field=models.DateTimeField()),
            "finished_at": None,
            "error": "",
        }
        rows = type(self)._default_manager.exclude(running & self._deadly())
        try:
            with transaction.atomic():
                won = rows.filter(free, pk=self.pk).update(**claimed)
        except IntegrityError:  # a constraint lets only so many of these run at once: it waits
            return False
        if won:
            self.refresh_from_db()
        return bool(won)

    def release(self) -> bool:
        """Take running work from its owner, who is known to be dead: pending again, or errored if it cost too many workers."""
        his = Q(claimed_by=self.claimed_by)
        if self._end_if_deadly(his):
            return True
        rows = type(self)._default_manager.filter(his, pk=self.pk, status=self.Status.RUNNING)
        return bool(
            rows.update(status=self.Status.PENDING, deaths=F("deaths") + 1, claimed_by="", lease_expires_at=None)
        )

    @staticmethod
    def _deadly() -> Q:
        """Condition for rows that end when one more worker is lost with them in hand."""
        return Q(deaths__gte=settings.WORKER_MOST_DEATHS - 1)

    def _end_if_deadly(self, lost: Q) -> bool:
        """End this row as errored if it is `lost` and cost too many workers; its count begins anew for whoever resumes it."""
        rows = type(self)._default_manager.filter(lost, self._deadly(), pk=self.pk, status=self.Status.RUNNING)
        most = settings.WORKER_MOST_DEATHS
        why = (
            f"lost {most} {'worker' if most == 1 else 'workers'} in a row (killed, out of memory, or hung past their time): "
            "not tried again by itself"
        )
        ended = {"status": self.Status.ERRORED, "error": why, "deaths": 0, "finished_at": timezone.now()}
        with transaction.atomic():
            done = rows.update(claimed_by="", lease_expires_at=None, **ended)
            if done:
                self.given_up(why)
        if done:
            logger.error("%s: %s", self, why)
        return bool(done)

    def given_up(self, why: str) -> None:
        """What else is to be stored when the row ended because it cost too many workers; in the same transaction."""

    def is_held_by(self, owner: str) -> bool:
        """Whether this caller claimed it, as far as this object knows."""
        return self.status == self.Status.RUNNING and self.claimed_by == owner

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
            "deaths": 0,
            "finished_at": timezone.now() if status in self.FINAL else None,
            **fields,
        }
        done = outlasting(lambda: mine.update(**ended))
        if done:
            self.refresh_from_db()
        return bool(done)
