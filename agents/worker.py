"""One process that works: which queue it looks at next, waiting out an outage of the database, and its heartbeat."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from django.conf import settings
from django.db import close_old_connections, connection

from agents.llm.ledger import write_late
from agents.log_context import collecting_ids
from agents.stopping import SliceOver
from agents.work import queues
from agents.work.outages import OUTAGE, is_outage, patient
from agents.work.queues import GROUPS, WorkQueue, release_lost_leases, work_queues
from agents.worker_heartbeat import Heartbeat

LOOK_FOR_CHORES = 10.0  # seconds between two looks
INTERACTIVE_IN_A_ROW = 10  # then bulk has its turn, so that it is never starved
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two tries while the database is away

log = logging.getLogger("agents.worker")


@dataclass(frozen=True, slots=True)
class Piece:
    """What a look for work came to.

    Attributes:
        queue: Where there was work; empty when nothing waits.
        seconds: How long it took.
        error: Why it did not come to its end here; it is marked so, or waits for another try.
        outage: Whether the database is away; `pause` says how long to wait.
        handed_back: Whether its time was up before it was done: it waits for its next turn.
        about: What it was, by the ids that its lines of the log carry, e.g. ``{"evaluation_run": 12, "agent": 7}``.
    """

    queue: str = ""
    seconds: float = 0.0
    error: str = ""
    outage: bool = False
    pause: float = 0.0
    handed_back: bool = False
    about: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(slots=True)
class Worker:
    """Looks for work in a fair order: what somebody waits for before bulk, the bulk queues in turn.

    Attributes:
        owner: Under which it claims.
        queues: By name; those of the group ``interactive`` are looked at first.
        slicing: Ends a piece of bulk work that takes too long by `SliceOver`, so that others get their turn.
    """

    owner: str
    queues: Mapping[str, WorkQueue]
    heartbeat: Heartbeat
    slicing: Callable[[], AbstractContextManager[None]] = nullcontext
    done: Counter[str] = field(default_factory=Counter)
    _interactive: frozenset[str] = frozenset()
    _in_a_row: int = 0
    _last: str = ""
    _pause: float = 0.0
    _chores_at: float = float("-inf")
    _began: bool = False

    def __post_init__(self) -> None:
        self._interactive = frozenset(work_queues(groups=GROUPS[:1]))

    def piece(self) -> Piece:
        """Do one piece of work, if there is one. Raises nothing but what tells the process to stop."""
        with collecting_ids() as ids:
            found = self._piece()
        return replace(found, about=ids) if found.queue else found

    def _piece(self) -> Piece:
        if not connection.in_atomic_block:  # inside somebody's transaction it is theirs
            close_old_connections()
        begun, name = time.monotonic(), ""
        try:
            with patient(settings.WORKER_PATIENCE):
                write_late()
                self._do_chores()
                for name in self._order():
                    self.heartbeat.begin(name)
                    with nullcontext() if name in self._interactive else self.slicing():
                        found = self.queues[name](owner=self.owner)
                    if found:
                        self._note(name)
                        return Piece(name, time.monotonic() - begun)
                self.heartbeat.idle()
        except SliceOver:
            self._note(name)
            return Piece(name, time.monotonic() - begun, handed_back=True)
        except OUTAGE as error:
            if not is_outage(error):
                return self._crashed(name, begun, error)
            self._pause = min(self._pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)
            words = str(error).strip().partition("\n")[0]
            return Piece(error=f"database: {words}", outage=True, pause=self._pause)
        except Exception as error:  # noqa: BLE001 (the item was marked errored; the worker lives on for the others)
            return self._crashed(name, begun, error)
        self._pause = 0.0
        return Piece()

    def _do_chores(self) -> None:
        """Between two pieces of work, by workers that do not only serve people who wait."""
        if self._interactive.issuperset(self.queues) or time.monotonic() - self._chores_at < LOOK_FOR_CHORES:
            return
        if not self._began:  # who takes the place of one that died goes on with its work at once
            release_lost_leases()
            self._began = True
        queues.do_what_is_due()
        self._chores_at = time.monotonic()

    def _crashed(self, name: str, begun: float, error: Exception) -> Piece:
        log.exception("a piece of work of %s crashed", name)
        self._note(name)
        return Piece(name, time.monotonic() - begun, f"{type(error).__name__}: {error}")

    def _note(self, name: str) -> None:
        self.done[name] += 1
        self._pause = 0.0
        self._in_a_row = self._in_a_row + 1 if name in self._interactive else 0
        if name not in self._interactive:
            self._last = name
        self.heartbeat.done()

    def _order(self) -> list[str]:
        """Names of the queues in the order in which to look."""
        interactive = [name for name in self.queues if name in self._interactive]
        bulk = [name for name in self.queues if name not in self._interactive]
        if self._last in bulk:
            after = bulk.index(self._last) + 1
            bulk = bulk[after:] + bulk[:after]
        return bulk + interactive if self._in_a_row >= INTERACTIVE_IN_A_ROW else interactive + bulk
