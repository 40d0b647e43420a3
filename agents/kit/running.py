"""A stop flag for work, retries while the database is away, and jobs side by side in threads."""

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
from typing import Any, Generic, TypeVar

from django.db import Error as AnyDatabaseError
from django.db import InterfaceError, InternalError, OperationalError, connection, connections

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1  # between two checks of the flag in a wait


class Stopped(BaseException):
    """Stop now and hand back the work in hand. Not an `Exception`: the work did not fail."""


class SliceOver(Stopped):
    """This piece of bulk work had its slice of time. It goes back to the queue, and the worker goes on with other work."""


class Stop:
    """A flag that asks work to stop. It has only plain attributes, so that a signal handler can set it in the middle of anything.

    Args:
        parent: Stops this one, too.
        slice_seconds: Time after which `check` raises `SliceOver`.

    Attributes:
        requested: Whether no new work is to begin.
        at: When the work in hand has to stop, in seconds of the monotonic clock.
    """

    def __init__(self, parent: Stop | None = None, *, slice_seconds: float = math.inf) -> None:
        self._parent = parent
        self._requested = False
        self.at = math.inf
        self._slice_over_at = time.monotonic() + slice_seconds

    @property
    def requested(self) -> bool:
        return self._requested or (self._parent is not None and self._parent.requested)

    def request(self, *, grace: float = 0.0) -> None:
        """Begin no new work, and stop the work in hand after `grace` seconds; at once when this is not the first request."""
        self.at = time.monotonic() + (0.0 if self._requested else grace)
        self._requested = True

    def check(self) -> None:
        """Raise `Stopped` when the work in hand has to stop (its grace is over), `SliceOver` when its slice is over; so for the parent."""
        if self._parent is not None:
            self._parent.check()
        if time.monotonic() >= self.at:
            raise Stopped
        if self.requested:  # it has until the end of the grace period, however long its slice is
            return
        if time.monotonic() >= self._slice_over_at:
            raise SliceOver


_current: ContextVar[Stop | None] = ContextVar("stop", default=None)


def current_stop() -> Stop | None:
    """Return the flag that the work of this thread looks at; None outside a worker."""
    return _current.get()


@contextmanager
def stopping_with(stop: Stop) -> Iterator[None]:
    """Let `check_stop` look at this flag inside."""
    token = _current.set(stop)
    try:
        yield
    finally:
        _current.reset(token)


def check_stop() -> None:
    """Raise `Stopped` when the work of this thread has to stop."""
    stop = _current.get()
    if stop is not None:
        stop.check()


def pause(seconds: float) -> None:
    """Sleep, but wake up with `Stopped` when the work of this thread has to stop."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check_stop()
        time.sleep(min(left, POLL_SECONDS))


@contextmanager
def stopping_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end a command like Ctrl-C inside; afterwards the signals do what they did before. A signal that is ignored stays so.

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

    former_handlers = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        handler = signal.getsignal(number)
        if handler != signal.SIG_IGN:  # background jobs of a shell ignore Ctrl-C
            former_handlers[number] = handler
            signal.signal(number, interrupt)
    try:
        yield
    except Exception as error:
        if stopped:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in former_handlers.items():
            signal.signal(number, handler)


T = TypeVar("T")
OUTAGE = (OperationalError, InterfaceError, InternalError)  # the last one: is_outage() says whether it is one
# Connection lost, shutting down or starting, out of resources, deadlock or serialization failure, read-only.
PASSING_STATES = ("08", "57P", "53", "40", "25006")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds


def is_outage(error: BaseException) -> bool:
    """Return whether the database is away or busy for a moment, so that the same statement may work later.

    PostgreSQL's code decides where there is one. Else SQLite must say that it is locked; another database's operational error is one.
    """
    state = _sqlstate(error)
    if state is not None:
        return state.startswith(PASSING_STATES)
    if not isinstance(error, (OperationalError, InterfaceError)):
        return False
    if connection.vendor == "sqlite":
        return "locked" in str(error)
    return True


def is_unavailable(error: BaseException | None) -> bool:
    """Return whether a request failed because the database is away, locked, full or read-only, and not by a defect of ours.

    Wider than `is_outage`: a full disk does not pass while a worker waits, but a person can try again later.
    """
    if (_sqlstate(error) or "").startswith(PASSING_STATES):
        return True
    if not isinstance(error, (OperationalError, InterfaceError)):
        return False
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    if code is None:  # of another database
        return True
    is_mistake_in_statement = code & 0xFF == sqlite3.SQLITE_ERROR  # such as "no such table"
    return not is_mistake_in_statement


def _sqlstate(error: BaseException | None) -> str | None:
    """Return PostgreSQL's code of a database error, which says more than its class in Django: a read-only server is an InternalError.

    None for errors of SQLite, and for those that are of no database.
    """
    if not isinstance(error, AnyDatabaseError):
        return None
    return getattr(error.__cause__, "sqlstate", None)


@dataclass
class _Patience:
    """The time that the work in hand waits for the database, and since when that is away; its threads share it."""

    seconds: float
    away_since: float | None = None


_patience: ContextVar[_Patience | None] = ContextVar("patience", default=None)


@contextmanager
def patient(seconds: float) -> Iterator[None]:
    """Let `retry_on_outage` wait so long for the database inside, counted from the first statement that failed. For workers."""
    token = _patience.set(_Patience(seconds))
    try:
        yield
    finally:
        _patience.reset(token)


def retry_on_outage(action: Callable[[], T]) -> T:
    """Do something with the database; after an outage again, at once and then, inside `patient`, with growing pauses.

    Args:
        action: A short statement or transaction that does no harm when it is done twice: the outage may have lost only its answer.

    Raises:
        OperationalError, InterfaceError, InternalError: The outage lasted too long, a transaction is open, which is lost, or it is no
            outage. What else `action` raises is not caught.
        Stopped: The work is to stop.
    """
    patience = _patience.get() or _Patience(0.0)
    pause_seconds = 0.0  # the first time it is tried again at once
    while True:
        try:
            result = action()
        except OUTAGE as error:
            if connection.in_atomic_block or not is_outage(error):
                raise
            connection.close()  # what is left of it would fail every later statement
            away_since = patience.away_since or time.monotonic()  # another thread, whose statement worked, may reset it
            patience.away_since = away_since
            gives_up_at = away_since + patience.seconds
            if pause_seconds > 0 and time.monotonic() + pause_seconds > gives_up_at:
                raise
            logger.warning("database: %s; trying again", str(error).strip().partition("\n")[0])
            pause(pause_seconds)
            pause_seconds = min(pause_seconds * 2 or FIRST_PAUSE, LONGEST_PAUSE)
        else:
            patience.away_since = None
            return result


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
    shared = _SharedJobs(jobs)
    threads = min(limit, len(jobs)) if isinstance(jobs, Sized) else limit
    if threads <= 1:
        shared.carry_out()
    else:
        _carry_out_in_threads(shared, threads)
    shared.raise_first_error()
    return [shared.results[number] for number in sorted(shared.results)]


class _SharedJobs(Generic[T]):
    """Jobs that threads take one after the other, with their results and errors by their number in the order.

    Attributes:
        is_over: Whether no further job is begun.
    """

    def __init__(self, jobs: Iterable[Callable[[], T]]) -> None:
        self.is_over = False
        self.results: dict[int, T] = {}
        self.errors: dict[int, BaseException] = {}
        self._waiting = enumerate(jobs)
        self._lock = Lock()
        self._stop = Stop(current_stop())

    def carry_out(self) -> None:
        """Carry out jobs until none is left. An error ends its job alone; one that is no `Exception` stops the others."""
        number = -1  # an error of the iterator counts as one of the job before
        with stopping_with(self._stop):
            while True:
                try:
                    numbered_job = self._take()
                    if numbered_job is None:
                        return
                    number, job = numbered_job
                    self.results[number] = job()
                except Exception as error:  # noqa: BLE001 (raised when the others have ended)
                    self.errors[number] = error
                except BaseException as error:  # noqa: BLE001 (the same; the others stop at once)
                    self.errors[number] = error
                    self.stop()

    def _take(self) -> tuple[int, Callable[[], T]] | None:
        """Take the next job, with its number; None where no further one is begun."""
        with self._lock:
            if self.is_over:
                return None
            return next(self._waiting, None)

    def stop(self) -> None:
        """Begin no further job, and stop those that run at their next look at the stop flag."""
        self.is_over = True
        self._stop.request()

    def raise_first_error(self) -> None:
        """Raise the first error in the order of the jobs; those that say to stop come before all others."""
        errors = [self.errors[number] for number in sorted(self.errors)]
        stops = [error for error in errors if not isinstance(error, Exception)]
        if stops:
            raise stops[0]
        if errors:
            raise errors[0]


def _carry_out_in_threads(shared: _SharedJobs[Any], threads: int) -> None:
    """Carry out jobs in so many threads, and wait for them."""

    import sentry_sdk  # takes 0.3 s, which commands that start no thread are spared

    def carry_out() -> None:
        # With one scope for all threads, a span that ends in one of them would stay the current span of the others.
        with sentry_sdk.new_scope():
            try:
                shared.carry_out()
            finally:
                connections.close_all()

    if not connection.in_atomic_block:
        connection.close()  # this thread only waits: its connection is free for the others
    with ThreadPoolExecutor(threads) as pool:
        try:
            wait([pool.submit(copy_context().run, carry_out) for _ in range(threads)])
        except BaseException:  # Ctrl-C: the jobs stop, too, and the pool waits for them
            shared.stop()
            raise
