"""Being told to stop: out of a wait or a model call, with the work in hand handed back on the way."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """Stop now and hand back what is in hand. Not an `Exception`: what goes wrong in a piece of work is one, this is not."""


class SliceOver(Stopped):
    """This piece of work had its time: it is handed back, and the process goes on with others."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(signal.Signals(number).name)


@contextmanager
def stopping_on(number: signal.Signals) -> Iterator[None]:
    """Inside, this signal raises `Stopped`, once: what is cleaned up on the way is not interrupted again."""

    def once(received: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        _stop(received, frame)

    previous = signal.signal(number, once)
    try:
        yield
    finally:
        signal.signal(number, previous)


@contextmanager
def stopping_on_sigterm() -> Iterator[None]:
    """Inside, SIGTERM ends like Ctrl-C."""
    previous = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


class Grace:
    """SIGTERM and Ctrl-C for a process that works: the first lets it finish what it has in hand, for a while; the second does not wait.

    Attributes:
        asked: Whether somebody asked it to stop.
    """

    def __init__(self, seconds: float, *, on_ask: Callable[[], None] = lambda: None) -> None:
        self.seconds, self.asked, self._busy, self._on_ask = seconds, False, False, on_ask
        self._in_slice = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Inside, the signals mean this."""
        handlers = {signal.SIGTERM: self._asked, signal.SIGINT: self._asked, signal.SIGALRM: self._rung}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Inside, work is in hand, which may be finished; outside, the process stops at once."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
            if self.asked:
                signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def slice(self, seconds: float) -> Iterator[None]:
        """Inside, `SliceOver` is raised once, after so many seconds; not when somebody asked to stop: then there is the grace period."""
        if self.asked:
            yield
            return
        self._in_slice = True
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            self._in_slice = False
            if not self.asked:
                signal.setitimer(signal.ITIMER_REAL, 0)

    def _rung(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            _stop(number, frame)
        if self._in_slice:
            self._in_slice = False  # what is cleaned up on the way is not interrupted again
            raise SliceOver

    def _asked(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        if again or not self._busy or self.seconds <= 0:
            _stop(number, frame)
        self._on_ask()
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
