"""A database that is away for a moment: tell that from a defect, and wait until it is back."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from django.db import Error as AnyDatabaseError
from django.db import InterfaceError, InternalError, OperationalError, connection

from agents.work.stopping import pause

T = TypeVar("T")
logger = logging.getLogger(__name__)

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
