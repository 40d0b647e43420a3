"""Leases: a worker's hold on a row of work, acquired and extended by conditional UPDATEs, and which row is next."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.conf import settings
from django.db import DatabaseError, IntegrityError, connection, models, transaction
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone

from agents.kit.running import check_stop, retry_on_outage

if TYPE_CHECKING:
    from django.db.models.manager import Manager

CANDIDATES = 20  # rows that one look for work reads at most
LOOKS = 3

logger = logging.getLogger(__name__)


class LeaseLost(Exception):
    """The row was cancelled, or another worker has it: nothing more may be stored."""


def owner_name() -> str:
    """Make a new name for the owner of a lease, ``host:pid:token``. Every thread that works needs a name of its own.

    The token begins with the namespace of the pid where there is such a thing: containers may share a host's name, not its processes.
    """
    token = secrets.token_hex(4)
    return f"{socket.gethostname()}:{os.getpid()}:{'-'.join(filter(None, (_namespace(), token)))}"


def owner_is_dead(owner: str) -> bool:
    """Say whether the process of `owner` was on this host and no longer runs.

    Saves a person who killed a command the wait for its lease. False when it cannot be known (another host, or a container
    with processes of its own), so that the lease decides.
    """
    host, _, rest = owner.partition(":")
    pid, _, token = rest.partition(":")
    namespace = token.partition("-")[0] if "-" in token else ""
    if host != socket.gethostname() or not pid.isdecimal() or namespace not in ("", _namespace()):
        return False
    try:
        os.kill(int(pid), 0)  # signal 0 only asks whether the process is there
    except ProcessLookupError:
        return True
    except PermissionError:  # it runs, under another user
        return False
    return False


def _namespace() -> str:
    """Return the number of the namespace in which this process's pid is unique; empty where the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid").rpartition("[")[2].rstrip("]")
    except OSError:
        return ""


class LastServed(models.Model):
    """When work of a kind last began for an agent: the agent that waits longest comes next, however much others have queued."""

    kind = models.CharField(max_length=64, help_text="table of the work")
    whose = models.BigIntegerField(help_text="the agent, or minus the channel")
    at = models.DateTimeField()

    class Meta:
        db_table = "work_last_served"
        constraints: ClassVar = [models.UniqueConstraint(fields=["kind", "whose"], name="work_last_served_unique")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.whose} at {self.at}"


# One step per agent, from one to the next in an index, and its oldest row. Beside them the oldest of all, so that several workers that
# look at once find something each where few agents have work; and what was lost, where that comes first.
_NEXT_ROWS_SQL = """
WITH RECURSIVE agent (whose) AS (
    SELECT MIN(r.for_whom) FROM ({rows}) r
    UNION ALL
    SELECT (SELECT MIN(r.for_whom) FROM ({rows}) r WHERE r.for_whom > agent.whose) FROM agent WHERE agent.whose IS NOT NULL
), first AS (
    SELECT whose, (SELECT r.id FROM ({rows}) r WHERE r.for_whom = agent.whose ORDER BY r.created_at, r.id LIMIT 1) AS id
    FROM agent WHERE whose IS NOT NULL
)
SELECT id FROM (
    SELECT work.id AS id, 1 AS place, served.at AS served, work.created_at AS created_at
    FROM first JOIN {table} work ON work.id = first.id
    LEFT JOIN work_last_served served ON served.kind = %s AND served.whose = first.whose
    UNION ALL
    SELECT o.id, 2, NULL, o.created_at
    FROM (SELECT r.id, r.created_at FROM ({pending}) r ORDER BY r.created_at, r.id LIMIT %s) o
    UNION ALL
    SELECT l.id, 0, NULL, l.created_at
    FROM (SELECT r.id, r.created_at FROM ({lost}) r ORDER BY r.created_at, r.id LIMIT %s) l
) seen ORDER BY place, served NULLS FIRST, created_at, id LIMIT %s
"""


def _next_in_turn(free: QuerySet[Any], *, whose: Any, most: int, lost_first: bool) -> list[int]:
    """Return the primary keys of rows that may be leased: each agent's oldest, who was served longest ago (or never) first; then the
    oldest of all.

    Args:
        free: Those rows, of one table.
        whose: An expression for the agent; never null. With `created_at` and the primary key it wants an index of the open rows.
        most: Most keys to return.
        lost_first: Whether rows whose owner is gone come before all others.
    """
    model = free.model
    rows = free.filter(status__in=model.OPEN).order_by().annotate(for_whom=whose).values("id", "created_at", "for_whom")
    sql, params = rows.query.sql_with_params()
    pending, pending_params = rows.filter(status=model.Status.PENDING).query.sql_with_params()
    lost, lost_params = rows.filter(status=model.Status.RUNNING).query.sql_with_params()
    table = connection.ops.quote_name(model._meta.db_table)
    look = _NEXT_ROWS_SQL.format(rows=sql, pending=pending, lost=lost, table=table)
    values = (*params, *params, *params, model._meta.db_table, *pending_params, most, *lost_params)
    with connection.cursor() as cursor:
        # Twice as many, as one row may be both its agent's oldest and among the oldest of all.
        cursor.execute(look, [*values, most if lost_first else 0, 2 * most])
        keys = [pk for (pk,) in cursor.fetchall()]
    return list(dict.fromkeys(keys))[:most]


class Leasable(models.Model):
    """A row that is work. `select_for_update` does nothing on SQLite, so leases are conditional UPDATEs on every database.

    The owner extends its lease before each model call. Work whose lease ran out, or whose owner is known to be dead, can be leased
    again: `attempt` counts the leases. `worker_losses` counts the owners that were lost since it last went back to the queue. A row
    that costs too many of them (WORKER_MOST_LOSSES) ends as errored, so that it does not kill worker after worker.
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
    lease_owner = models.CharField(
        max_length=200, blank=True, default="", editable=False, help_text="host:pid:token of the owner"
    )
    lease_expires_at = models.DateTimeField(null=True, blank=True, editable=False)
    attempt = models.PositiveIntegerField(default=0, editable=False, help_text="how often this was leased")
    worker_losses = models.PositiveIntegerField(
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
    def leasable(cls) -> Q:
        """Return the condition for rows that may be leased now: pending, or running under a lease that ran out."""
        lost = Q(lease_expires_at__isnull=True) | Q(lease_expires_at__lt=timezone.now())
        return Q(status=cls.Status.PENDING) | (Q(status=cls.Status.RUNNING) & lost)

    @classmethod
    def leasable_when_due(cls) -> Q:
        """Return the condition for work that can be pending and yet have to wait until its `lease_expires_at`, where that is set."""
        return Q(status__in=cls.OPEN) & (Q(lease_expires_at__isnull=True) | Q(lease_expires_at__lt=timezone.now()))

    @classmethod
    def in_turn(cls, free: QuerySet[Any] | None = None, *, lost_first: bool = False) -> list[Self]:
        """Return rows that may be leased, in their order: the agent that was served longest ago comes first.

        Each agent's oldest row comes before any agent's second, so that a thousand rows of one do not delay the only row of another.
        However many rows wait, a look reads one per agent, and a few.

        Args:
            free: What may be leased; by default what `leasable` says.
            lost_first: Whether rows whose owner is gone come before all others.

        Returns:
            At most `CANDIDATES` rows: several workers that look at once each get one.
        """
        rows = cls._default_manager.filter(cls.leasable()) if free is None else free
        chosen = _next_in_turn(rows, whose=cls.WHOSE, most=CANDIDATES, lost_first=lost_first)
        by_key = cls._default_manager.in_bulk(chosen)
        return [by_key[pk] for pk in chosen if pk in by_key]

    @classmethod
    def acquire_next(cls, *, owner: str, lease: timedelta) -> Self | None:
        """Lease the row whose turn it is, and note that its agent was served; None when there is none, or other workers took all."""
        for _ in range(LOOKS):  # other workers may have leased all rows of one look
            if not (rows := cls.in_turn()):
                return None
            for row in rows:
                if row.acquire(owner=owner, lease=lease):
                    row.note_served()
                    return row
        return None

    def note_served(self) -> None:
        """Remember that work for this agent has begun: the others come before its next. A failure costs only the order."""
        try:
            retry_on_outage(self._store_last_served)
        except DatabaseError as error:
            logger.warning("%s: not noted as served: %s", self, str(error).strip().partition("\n")[0])

    def _store_last_served(self) -> None:
        """Insert or update the time at which work of this table last began for this row's agent; nothing if the row is gone."""
        whose = type(self)._default_manager.filter(pk=self.pk).values_list(self.WHOSE, flat=True).first()
        if whose is not None:
            LastServed.objects.bulk_create(
                [LastServed(kind=self._meta.db_table, whose=whose, at=timezone.now())],
                update_conflicts=True,
                unique_fields=["kind", "whose"],
                update_fields=["at"],
            )

    def acquire(self, *, owner: str, lease: timedelta, resumable: tuple[str, ...] = ()) -> bool:
        """Try to become the owner of this row, also where its owner is known to be dead; where that works, this object is read again.

        Running work whose owner is gone counts one more lost worker. A row that cost too many ends as errored instead.

        Args:
            lease: How long it holds.
            resumable: Statuses besides pending in which the row may be leased, e.g. when a person resumes it.

        Returns:
            True when this caller is the owner now. False when another worker was faster or still holds a valid lease, when a
            constraint does not let this row run now (an agent has one turn at a time), or when it cost too many workers and ended.
        """
        now = timezone.now()
        running = Q(status=self.Status.RUNNING)
        free = self.leasable() | Q(status__in=resumable)
        if self.status == self.Status.RUNNING:
            if self.lease_owner and owner_is_dead(self.lease_owner):
                free |= running & Q(lease_owner=self.lease_owner)
            if self._end_if_lost_too_often(free):
                return False
        leased = {
            "status": self.Status.RUNNING,
            "lease_owner": owner,
            "lease_expires_at": now + lease,
            "attempt": F("attempt") + 1,
            "worker_losses": F("worker_losses") + Case(When(running, then=1), default=0),
            "started_at": Coalesce(F("started_at"), now, output_field=models.DateTimeField()),
            "finished_at": None,
            "error": "",
        }
        rows = type(self)._default_manager.exclude(running & self._ends_with_one_more_loss())
        try:
            with transaction.atomic():
                won = rows.filter(free, pk=self.pk).update(**leased)
        except IntegrityError:  # a constraint lets only so many of these run at once: it waits
            return False
        if won:
            self.refresh_from_db()
        return bool(won)

    def release(self) -> bool:
        """Take running work from the owner that this object names, who is known to be dead: pending again, or errored if it cost too many
        workers. False when another has it by now, or it ended."""
        lost = Q(lease_owner=self.lease_owner)
        if self._end_if_lost_too_often(lost):
            return True
        rows = type(self)._default_manager.filter(lost, pk=self.pk, status=self.Status.RUNNING)
        return bool(
            rows.update(
                status=self.Status.PENDING, worker_losses=F("worker_losses") + 1, lease_owner="", lease_expires_at=None
            )
        )

    @staticmethod
    def _ends_with_one_more_loss() -> Q:
        """Return the condition for rows that end when one more worker is lost with them in hand."""
        return Q(worker_losses__gte=settings.WORKER_MOST_LOSSES - 1)

    def _end_if_lost_too_often(self, lost: Q) -> bool:
        """End this row as errored if it runs, is `lost` and with this worker cost too many; return whether it ended.

        What `given_up` stores is in the same transaction. Its count begins at 0 when it is resumed.
        """
        rows = type(self)._default_manager.filter(
            lost, self._ends_with_one_more_loss(), pk=self.pk, status=self.Status.RUNNING
        )
        most = settings.WORKER_MOST_LOSSES
        why = (
            f"lost {most} {'worker' if most == 1 else 'workers'} in a row (killed, out of memory, or hung past their time): "
            "not tried again"
        )
        ended = {"status": self.Status.ERRORED, "error": why, "worker_losses": 0, "finished_at": timezone.now()}
        with transaction.atomic():
            done = rows.update(lease_owner="", lease_expires_at=None, **ended)
            if done:
                self.given_up(why)
        if done:
            logger.error("%s: %s", self, why)
        return bool(done)

    def given_up(self, why: str) -> None:
        """Store what else there is to store when the row ended because it cost too many workers; in the same transaction."""

    def is_leased_by(self, owner: str) -> bool:
        """Return whether this caller leased it, as far as this object knows."""
        return self.status == self.Status.RUNNING and self.lease_owner == owner

    def extend_lease(self, *, owner: str, lease: timedelta) -> bool:
        """Extend the lease and look at the stop flag. False means that the lease was lost, or the work cancelled: the caller must stop."""
        check_stop()
        leased_row = type(self)._default_manager.filter(pk=self.pk, status=self.Status.RUNNING, lease_owner=owner)
        return bool(retry_on_outage(lambda: leased_row.update(lease_expires_at=timezone.now() + lease)))

    def finish(self, *, owner: str, status: str, error: str = "", **fields: Any) -> bool:
        """End the work in `status`, storing `fields`, if `owner` still holds it; return whether it did. Then this object is read again.

        The lease ends. The count of lost workers begins again, as this one was not lost. Only final statuses have a time of their end.
        """
        leased_row = type(self)._default_manager.filter(pk=self.pk, status=self.Status.RUNNING, lease_owner=owner)
        ended = {
            "status": status,
            "error": error,
            "lease_owner": "",
            "lease_expires_at": None,
            "worker_losses": 0,
            "finished_at": timezone.now() if status in self.FINAL else None,
            **fields,
        }
        done = retry_on_outage(lambda: leased_row.update(**ended))
        if done:
            self.refresh_from_db()
        return bool(done)
