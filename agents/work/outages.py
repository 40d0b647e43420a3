"""A database that is away for a moment: telling that from a defect, and waiting until it is back."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from django.db import Error as AnyDatabaseError
from django.db import InterfaceError, InternalError, OperationalError, connection

T = TypeVar("T")
logger = logging.getLogger(__name__)

OUTAGE = (OperationalError, InterfaceError, InternalError)  # the last one: is_outage() says whether it is one
# Connection lost, shutting down or starting, out of resources, deadlock or serialization failure, read-only.
PASSING_STATES = ("08", "57P", "53", "40", "25006")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds

_patience: ContextVar[list[float] | None] = ContextVar("patience", default=None)  # seconds in all, and seconds left


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


@contextmanager
def patient(seconds: float) -> Iterator[None]:
    """Inside, `outlasting` waits so long for the database in all, anew once it was back: for workers, whom nobody waits for."""
    token = _patience.set([seconds, seconds])
    try:
        yield
    finally:
        _patience.reset(token)


def outlasting(action: Callable[[], T]) -> T:
    """Do something with the database; again after an outage, at once and then, where we are patient, with growing pauses.

    Args:
        action: A short statement or transaction that does no harm when it is done twice: the answer to the first may be what was lost.

    Raises:
        OperationalError, InterfaceError, InternalError: It lasted longer than we are patient, or a transaction is open, which is lost.
    """
    pause, patience = 0.0, _patience.get() or [0.0, 0.0]
    while True:
        try:
            done = action()
            patience[1] = patience[0]
            return done
        except OUTAGE as error:
            if connection.in_atomic_block or not is_outage(error):
                raise
            connection.close()  # what is left of it would fail every statement to come
            if pause > patience[1]:
                raise
            logger.warning("database: %s; trying again", str(error).strip().partition("\n")[0])
            time.sleep(pause)
            patience[1] -= pause
            pause = min(pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)
