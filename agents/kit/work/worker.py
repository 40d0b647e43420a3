"""One process that works: its threads take the next piece of work by `Worker.work_once`, and its heartbeat says that it lives."""

from __future__ import annotations

import itertools
import logging
import math
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, close_old_connections, connection
from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat
from django.utils import timezone

from agents.kit.llm.ledger import write_delayed_rows
from agents.kit.llm.loop import slots
from agents.kit.models import WorkerHeartbeat
from agents.kit.models.lease import owner_name
from agents.kit.running import POLL_SECONDS, Stop, Stopped, is_outage, patient, stopping_with
from agents.kit.work.queues import Group, WorkQueue, release_lost_leases, run_due_chores, work_models

LOOK_FOR_CHORES = 10.0  # seconds between two looks
INTERACTIVE_IN_A_ROW = 10  # then bulk work has its turn, so that it never starves
ALERTS = "alerts"  # the queue that is looked at before the others of its group
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two tries while the database is away
BEAT_EVERY = 10.0  # seconds between two heartbeats
ROWS_KEPT = timedelta(days=1)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Piece:
    """The result of one look for work.

    Attributes:
        queue: Where there was work; empty when nothing waits.
        seconds: How long it took.
        error: Why it crashed, or that the database is away; the row says so, too, or waits for another try.
        outage: Whether the database is away.
        handed_back: Whether it was stopped, or its slice was over, before it was done: it is back in the queue.
    """

    queue: str = ""
    seconds: float = 0.0
    error: str = ""
    outage: bool = False
    handed_back: bool = False


class Worker:
    """What the threads of a process share: queues, stop flag, heartbeat row, and the order in which they look for work.

    Args:
        kind: How the process was started.
        queues: By name; those that a person waits for are looked at first, bulk queues take turns.
        name: Of the heartbeat's row; each thread leases under this name with a number of its own.

    Attributes:
        stop: Set it, and no thread begins new work; see `Stop`.
        done: Pieces of work by queue.
    """

    def __init__(self, kind: WorkerHeartbeat.Kind, queues: Mapping[str, WorkQueue], *, name: str = "") -> None:
        self.kind = kind
        self.queues = queues
        self.name = name or owner_name()
        self.stop = Stop()
        self.done = Counter[str]()
        self._lock = threading.Lock()
        self._of_thread = threading.local()
        self._numbers = itertools.count(1)
        self._doing: dict[str, str] = {}
        self._in_a_row = 0
        self._last_bulk = ""
        self._after_alert = False
        self._chores_at = self._beat_at = -math.inf
        self._shown = ""
        self._took_over = False

    def work_once(self, group: Group | None = None) -> Piece:
        """Do one piece of work, if there is one. What goes wrong is in the result; nothing is raised but for the end of the process.

        Before it come ledger rows that an outage delayed and, unless only interactive work is wanted, chores that are due. Bulk work
        that is not done after WORKER_SLICE seconds is handed back.

        Args:
            group: Only queues of this group; None = all.
        """
        if not connection.in_atomic_block:  # a transaction is open in tests only
            close_old_connections()
        began = time.monotonic()
        name = ""
        with patient(settings.WORKER_PATIENCE):
            try:
                write_delayed_rows()
                if group != "interactive":
                    self._do_chores()
                for name in self._queues_in_order(group):
                    with self._busy(name):
                        if not self.queues[name](owner=self._owner()):
                            continue
                    self._note_done(name)
                    return Piece(name, time.monotonic() - began)
                shows_work_that_is_over = bool(self._shown) and not self._doing
                self.beat(at_once=shows_work_that_is_over)
                return Piece()
            except Stopped:
                self._note_done(name)
                return Piece(name, time.monotonic() - began, handed_back=True)
            except Exception as error:
                if is_outage(error):
                    return Piece(error=f"database: {str(error).strip().partition(chr(10))[0]}", outage=True)
                log.exception("a piece of work of %s crashed", name)
                self._note_done(name)
                return Piece(name, time.monotonic() - began, f"{type(error).__name__}: {error}")

    def work_until_stopped(
        self, group: Group | None, *, once: bool, poll: float, report: Callable[[Piece, float], None] | None = None
    ) -> None:
        """Do piece after piece in this thread until `stop` is set, or, with `once`, until nothing waits.

        Args:
            group: As for `work_once`.
            once: Whether to end as soon as nothing waits.
            poll: Seconds to sleep when nothing waits.
            report: Called with each piece of work and with each outage, and the seconds until the next try.
        """
        pause = 0.0
        while not self.stop.requested:
            piece = self.work_once(group)
            pause = min(pause * 2 or FIRST_PAUSE, LONGEST_PAUSE) if piece.outage else 0.0
            if report and (piece.queue or piece.outage):
                report(piece, pause)
            if not piece.queue:
                if once and not piece.outage:
                    return
                self.sleep(pause or poll)

    def sleep(self, seconds: float) -> None:
        """Sleep until `stop` is set, at most so long."""
        end = time.monotonic() + seconds
        while not self.stop.requested and (left := end - time.monotonic()) > 0:
            time.sleep(min(POLL_SECONDS, left))

    def beat(self, *, at_once: bool = False, stopped: bool = False) -> None:
        """Write the heartbeat if the last one is BEAT_EVERY seconds old; a new worker also deletes the rows of those long silent.

        Args:
            at_once: Whether to write it however old the last one is.
            stopped: Whether this is the last one; then it is written at once, and a database that is away is ignored.

        Raises:
            DatabaseError: It could not be written.
        """
        with self._lock:
            if not (at_once or stopped) and time.monotonic() - self._beat_at < BEAT_EVERY:
                return
            self._beat_at = time.monotonic()
            counts = Counter(self._doing.values())
            self._shown = ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in counts.items())
        now = timezone.now()
        values: dict[str, Any] = {
            "queues": ", ".join(self.queues)[:500],
            "doing": "" if stopped else self._shown[:80],
            "done": self.done.total(),
            "seen_at": now,
            "stopped_at": now if stopped else None,
            **slots(),
        }
        try:
            if not WorkerHeartbeat.objects.filter(name=self.name).update(**values):
                WorkerHeartbeat.objects.filter(seen_at__lt=now - ROWS_KEPT).delete()
                WorkerHeartbeat.objects.create(
                    name=self.name, host=socket.gethostname(), pid=os.getpid(), kind=self.kind, started_at=now, **values
                )
        except DatabaseError:
            if not stopped:
                raise

    @property
    def is_busy(self) -> bool:
        """Return whether a thread has work in hand, or looks for some."""
        return bool(self._doing)

    def _owner(self) -> str:
        """Return the name under which this thread leases: with one name for all, one would take the work of another for its own."""
        if not hasattr(self._of_thread, "owner"):
            self._of_thread.owner = f"{self.name}/{next(self._numbers)}"
        return str(self._of_thread.owner)

    @contextmanager
    def _busy(self, name: str) -> Iterator[None]:
        """Show the queue in the heartbeat while this thread works on it; bulk work stops when its slice of time is over."""
        self._doing[self._owner()] = name
        self.beat()
        seconds = math.inf if name in settings.INTERACTIVE_QUEUES else settings.WORKER_SLICE
        try:
            with stopping_with(Stop(self.stop, slice_seconds=seconds)):
                yield
        finally:
            self._doing.pop(self._owner(), None)

    def _do_chores(self) -> None:
        """Run due chores, looked for every LOOK_FOR_CHORES seconds at most; the first time, release the leases of dead workers, too."""
        with self._lock:
            if time.monotonic() - self._chores_at < LOOK_FOR_CHORES:
                return
            self._chores_at = time.monotonic()
            first = not self._took_over
            self._took_over = True
        if first:  # a worker that replaces one that died goes on with its work at once
            release_lost_leases()
        run_due_chores()

    def _note_done(self, name: str) -> None:
        """Count a piece of work of a queue, and remember what the order of the next look depends on."""
        with self._lock:
            self.done[name] += 1
            interactive = name in settings.INTERACTIVE_QUEUES
            self._in_a_row = self._in_a_row + 1 if interactive else 0
            self._after_alert = name == ALERTS
            if not interactive and name != ALERTS:
                self._last_bulk = name

    def _queues_in_order(self, group: Group | None) -> list[str]:
        """Return the names of the queues of a group (None: of both) in the order in which to look.

        Interactive queues come first, but after INTERACTIVE_IN_A_ROW pieces of theirs bulk work does. Bulk queues take turns: the one that
        had work last is looked at last. The alerts count as bulk.
        """
        interactive = [name for name in self.queues if name in settings.INTERACTIVE_QUEUES]
        bulk = [name for name in self.queues if name not in interactive and name != ALERTS]
        if self._last_bulk in bulk:
            after = bulk.index(self._last_bulk) + 1
            bulk = bulk[after:] + bulk[:after]
        if ALERTS in self.queues:
            # A person should know at once; but a receiver that hangs holds up no more than every second piece of work.
            bulk = [*bulk, ALERTS] if self._after_alert else [ALERTS, *bulk]
        if group is not None:
            return interactive if group == "interactive" else bulk
        return bulk + interactive if self._in_a_row >= INTERACTIVE_IN_A_ROW else interactive + bulk


def silence_allowed() -> timedelta:
    """Return how long a worker may be silent: one model call and a margin, like a lease."""
    return timedelta(seconds=max(settings.LLM_EVALUATION_DEADLINE, settings.TURN_STEP_DEADLINE) + 60)


def alive() -> QuerySet[WorkerHeartbeat]:
    """Return the workers that have not stopped and were heard of lately, or hold the lease of a long piece of work."""
    now = timezone.now()
    is_alive = Q(seen_at__gte=now - silence_allowed())
    for model in work_models():
        leased = model._default_manager.filter(status=model.Status.RUNNING, lease_expires_at__gte=now)
        by_a_thread = Q(lease_owner__startswith=Concat(OuterRef("name"), Value("/")))
        is_alive |= Q(Exists(leased.filter(by_a_thread | Q(lease_owner=OuterRef("name")))))
    return WorkerHeartbeat.objects.filter(is_alive, stopped_at=None)


def alive_here() -> bool:
    """Return whether a worker of this machine is alive (for a container's health check)."""
    return alive().filter(host=socket.gethostname()).exists()
