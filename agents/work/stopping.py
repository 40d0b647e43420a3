"""Stop work: a flag that work looks at between model calls and while it waits for one."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

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
    before = {
        n: handler for n, handler in handlers.items() if handler != signal.SIG_IGN
    }  # a background job ignores SIGINT
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
