"""What every function that works needs: a stop flag to look at, patience with a database that is away, threads side by side."""

from __future__ import annotations

import logging
import math
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from threading import Lock
from types import FrameType
from typing import Generic, TypeVar

from django.db import Error as AnyDatabaseError
from django.db import InterfaceError, InternalError, OperationalError, connection, connections

logger = logging.getLogger(__name__)

LOOK = 0.1  # seconds between two looks at the flag in a wait


class Stopped(BaseException):
    """Stop now and hand back the work in hand. Not an `Exception`: the work did not fail."""


class SliceOver(Stopped):
    """This piece of bulk work had its slice of time. It goes back to the queue, and the worker goes on with other work."""


class Stop:
    """The flag. Only plain attributes, so that a signal handler can set it in the middle of anything.

    Args:
        parent: Stops this one, too.
        slice_seconds: Time after which `check` raises `SliceOver`.

    Attributes:
        requested: Whether no new work is to begin.
        at: When the work in hand has to stop, in seconds of the monotonic clock.
    """

    def __init__(self, parent: Stop | None = None, *, slice_seconds: float = math.inf) -> None:
        self._parent, self._requested, self.at = parent, False, math.inf
        self._slice_over_at = time.monotonic() + slice_seconds

    @property
    def requested(self) -> bool:
        return self._requested or (self._parent is not None and self._parent.requested)

    def request(self, *, grace: float = 0.0) -> None:
        """Begin no new work, and stop the work in hand after `grace` seconds; at once when this is the second request."""
        self.at = time.monotonic() + (0.0 if self._requested else grace)
        self._requested = True

    def check(self) -> None:
        """Raise `Stopped` when the work in hand has to stop, `SliceOver` when its slice is over."""
        if self._parent is not None:
            self._parent.check()
        if time.monotonic() >= self.at:
            raise Stopped
        if time.monotonic() >= self._slice_over_at and not self.requested:  # else there is the grace period
            raise SliceOver


_current: ContextVar[Stop | None] = ContextVar("stop", default=None)


def current_stop() -> Stop | None:
    """The flag that the work of this thread looks at; None outside a worker."""
    return _current.get()


@contextmanager
def stopping_with(stop: Stop) -> Iterator[None]:
    """Inside, `check_stop` looks at this flag."""
    token = _current.set(stop)
    try:
        yield
    finally:
        _current.reset(token)


def check_stop() -> None:
    """Raise `Stopped` when the work of this thread has to stop."""
    if (stop := _current.get()) is not None:
        stop.check()


def pause(seconds: float) -> None:
    """Sleep, but wake up with `Stopped` when the work of this thread has to stop."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check_stop()
        time.sleep(min(left, LOOK))


@contextmanager
def stopping_on_sigterm() -> Iterator[None]:
    """Inside, SIGTERM ends a command like Ctrl-C.

    An error after either signal counts as the stop, too: the interrupt becomes one when it arrives in the middle of something. SQLite, for
    example, raises `OperationalError` for whatever a Python function called by a statement raises.

    Raises:
        KeyboardInterrupt: A signal came.
    """
    stopped = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        raise KeyboardInterrupt

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    before = {n: handler for n, handler in handlers.items() if handler != signal.SIG_IGN}  # as background jobs do
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    except Exception as error:
        if stopped:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


T = TypeVar("T")
OUTAGE = (OperationalError, InterfaceError, InternalError)  # the last one: is_outage() says whether it is one
# Connection lost, shutting down or starting, out of resources, deadlock or serialization failure, read-only.
PASSING_STATES = ("08", "57P", "53", "40", "25006")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds


def is_outage(error: BaseException) -> bool:
    """Whether an error says that the database is away or busy for a moment, so that the same statement may work later."""
    if (state := _state(error)) is not None:
        return state.startswith(PASSING_STATES)
    if not isinstance(error, (OperationalError, InterfaceError)):
        return False
    return connection.vendor != "sqlite" or "locked" in str(error)


def is_unavailable(error: BaseException | None) -> bool:
    """Whether a request failed because the database is away, locked, full or read-only, and not by a defect of ours.

    Wider than `is_outage`: a full disk does not pass while a worker waits, but a person can try again later.
    """
    if (_state(error) or "").startswith(PASSING_STATES):
        return True
    if not isinstance(error, (OperationalError, InterfaceError)):
        return False
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    return code is None or code & 0xFF != sqlite3.SQLITE_ERROR  # that one is of statements, such as "no such table"


def _state(error: BaseException | None) -> str | None:
    """PostgreSQL's code of a database error: its class in Django says less, a read-only server is an InternalError there."""
    return getattr(error.__cause__, "sqlstate", None) if isinstance(error, AnyDatabaseError) else None


@dataclass
class _Patience:
    """How long the work in hand waits for the database; its threads share it."""

    seconds: float
    away_since: float | None = None


_patience: ContextVar[_Patience | None] = ContextVar("patience", default=None)


@contextmanager
def patient(seconds: float) -> Iterator[None]:
    """Inside, `outlasting` waits so long for the database, counted from the first statement that failed. For workers."""
    token = _patience.set(_Patience(seconds))
    try:
        yield
    finally:
        _patience.reset(token)


def outlasting(action: Callable[[], T]) -> T:
    """Do something with the database; after an outage again, at once and then, inside `patient`, with growing pauses.

    Args:
        action: A short statement or transaction that does no harm when it is done twice: the outage may have lost only its answer.

    Raises:
        OperationalError, InterfaceError, InternalError: The outage lasted too long, or a transaction is open, which is lost.
        Stopped: The work is to stop.
    """
    delay, patience = 0.0, _patience.get() or _Patience(0.0)
    while True:
        try:
            done = action()
            patience.away_since = None
            return done
        except OUTAGE as error:
            if connection.in_atomic_block or not is_outage(error):
                raise
            connection.close()  # what is left of it would fail every later statement
            patience.away_since = patience.away_since or time.monotonic()
            if delay and time.monotonic() + delay > patience.away_since + patience.seconds:
                raise
            logger.warning("database: %s; trying again", str(error).strip().partition("\n")[0])
            pause(delay)
            delay = min(delay * 2 or FIRST_PAUSE, LONGEST_PAUSE)


def side_by_side(jobs: Iterable[Callable[[], T]], limit: int) -> list[T]:
    """Call each job once, at most `limit` of them at the same time, and wait until all have ended.

    Each thread sees a copy of the caller's context variables (log ids, trace, stop flag) and closes its database connections at its
    end. With a limit of 1, or one job, the jobs run here, one after the other. Do not hold a transaction open across it.

    Args:
        jobs: Functions without arguments. An iterator is gone through by one thread at a time, as threads become free: it may make a job
            while those before it run.
        limit: Threads, at least 1.

    Returns:
        What the jobs returned, in their order.

    Raises:
        BaseException: The first one, in the order of the jobs, after the others have ended. One that is not an `Exception` (the work is
            to stop) comes before all others, and stops the other jobs at their next look at the stop flag. Only jobs look at it.
        ValueError: `limit` is less than 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}; allowed: 1 or more")
    side = _SideBySide(jobs)
    threads = min(limit, len(jobs)) if isinstance(jobs, Sized) else limit
    if threads <= 1:
        side.work()
        return side.outcome()
    if not connection.in_atomic_block:
        connection.close()  # this thread only waits: its connection is free for the others
    with ThreadPoolExecutor(threads) as pool:
        try:
            wait([pool.submit(copy_context().run, side.work_in_thread) for _ in range(threads)])
        except BaseException:  # Ctrl-C: the jobs stop, too, and the pool waits for them
            side.end_early()
            raise
    return side.outcome()


class _SideBySide(Generic[T]):
    """Shares the jobs of `side_by_side` among its threads, and keeps what they returned or raised by the number of the job."""

    def __init__(self, jobs: Iterable[Callable[[], T]]) -> None:
        self.stop = Stop(current_stop())
        self.waiting = enumerate(jobs)
        self.lock = Lock()
        self.ended = False  # no further job is begun
        self.results: dict[int, T] = {}
        self.errors: dict[int, BaseException] = {}

    def work(self) -> None:
        """Do job after job until none is left."""
        number = -1
        with stopping_with(self.stop):
            while True:
                try:
                    with self.lock:
                        numbered_job = None if self.ended else next(self.waiting, None)
                    if numbered_job is None:
                        return
                    number, job = numbered_job
                    self.results[number] = job()
                except Exception as error:  # noqa: BLE001 (raised when the others have ended)
                    self.errors[number] = error
                except BaseException as error:  # noqa: BLE001 (the same; the others stop at once)
                    self.errors[number] = error
                    self.end_early()

    def work_in_thread(self) -> None:
        """Do job after job in a thread of its own, which leaves no database connection open."""
        try:
            self.work()
        finally:
            connections.close_all()

    def end_early(self) -> None:
        """Begin no further job, and stop those that run at their next look at the flag."""
        self.ended = True
        self.stop.request()

    def outcome(self) -> list[T]:
        """Return what the jobs returned, in their order, or raise what comes first; that the work is to stop comes before failures."""
        stopped = [number for number in sorted(self.errors) if not isinstance(self.errors[number], Exception)]
        failed = [number for number in sorted(self.errors) if number not in stopped]
        for number in (*stopped, *failed):
            raise self.errors[number]
        return [self.results[number] for number in sorted(self.results)]
