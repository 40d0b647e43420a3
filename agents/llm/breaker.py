"""A circuit breaker per endpoint: where a judge hangs, drafts do not wait for it.

It knows only whether the judge answers, never what it said, and belongs to one process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agents.llm.endpoints import route
from agents.llm.requests import LLMRequest, Reply, Status
from agents.llm.runtime import complete_together

logger = logging.getLogger(__name__)

TIMEOUTS = 3  # in a row, from different agents or messages
PROBE_PAUSE = 5.0  # seconds from opening, and from the end of a probe, to the next probe
LEAST_SILENCE = 1.0  # seconds; a judge that is silent for less is only slow
LEAST_SHARE = 0.9  # of the deadline that must be silence of the judge: waiting for a slot of our own is no fault of it

Outcome = Literal["answered", "silent", "other", "unknown"]


@dataclass(frozen=True, slots=True)
class Pass:
    """Leave to ask: since when, and whether this is the probe of an endpoint that hangs."""

    began: float
    probe: bool


@dataclass(slots=True)
class Breaker:
    """The state of one endpoint; safe to use from several threads."""

    endpoint: str
    clock: Callable[[], float]
    lock: threading.Lock = field(default_factory=threading.Lock)
    silent: set[Hashable] = field(default_factory=set)  # what the time-outs in a row were about
    probe_at: float | None = None  # when the next probe may begin; None while the breaker is closed
    probing: bool = False
    answered_at: float = float("-inf")

    def enter(self, about: Hashable | None) -> Pass | None:
        """Ask for leave to call. None: the endpoint hangs, do not ask it. Without `about` a call is never a probe."""
        with self.lock:
            now = self.clock()
            if self.probe_at is None:
                return Pass(now, probe=False)
            if about is None or self.probing or now < self.probe_at:
                return None
            self.probing = True
            return Pass(now, probe=True)

    def leave(self, leave: Pass, about: Hashable | None, outcome: Outcome) -> None:
        """Note how the calls ended that `leave` was given for."""
        with self.lock:
            now = self.clock()
            if leave.probe:
                self.probing = False
                self.probe_at = None if self.probe_at is None else now + PROBE_PAUSE
            if outcome == "answered":
                self._close(now)
            elif outcome == "other":  # a trickle, or no connection: no time-out of a silent judge
                self.silent.clear()
            elif (
                outcome == "silent" and about is not None and self.probe_at is None and leave.began >= self.answered_at
            ):
                self.silent.add(about)
                if len(self.silent) >= TIMEOUTS:
                    self.silent.clear()
                    self.probe_at = now + PROBE_PAUSE
                    words = "the judge at %s sent nothing to %d drafts in a row: drafts pass unchecked, one every %g s tries it"
                    logger.warning(words, self.endpoint, TIMEOUTS, PROBE_PAUSE)

    def _close(self, now: float) -> None:
        if self.probe_at is not None:
            logger.warning("the judge at %s answers again: drafts are checked", self.endpoint)
        self.silent.clear()
        self.probe_at, self.answered_at = None, now

    @property
    def reason(self) -> str:
        return f"the judge at {self.endpoint} was not asked: {TIMEOUTS} drafts in a row had no answer from it in time"


_breakers: dict[str, Breaker] = {}
_clock: Callable[[], float] = time.monotonic


def forget(clock: Callable[[], float] = time.monotonic) -> None:
    """Close the breakers of all endpoints. `clock` gives seconds that never go back."""
    global _clock, _breakers
    _clock, _breakers = clock, {}


os.register_at_fork(after_in_child=forget)  # another thread of the parent may hold a lock


def complete_guarded(requests: Sequence[LLMRequest], *, deadline: float, about: Hashable | None) -> list[Reply]:
    """Ask as `complete_together` does, but do not ask an endpoint that hangs.

    Args:
        deadline: Seconds for all of it.
        about: Tells this draft from others, so that one draft repeated does not stop the checks of all. None where less
            time is left than is configured: such a time-out proves nothing, and such a draft does not probe.

    Returns:
        A reply for each request, in their order; `timeout` with 0 attempts and no ledger row where the endpoint hangs.
    """
    way = route(requests[0]) if requests else None
    if way is None or not way.is_distant:
        return complete_together(requests, deadline=deadline)
    breaker = _breakers.get(way.base_url) or _breakers.setdefault(way.base_url, Breaker(way.endpoint, _clock))
    leave = breaker.enter(about)
    if leave is None:
        reply = Reply(
            status=Status.TIMEOUT,
            error=breaker.reason,
            provider=way.provider,
            endpoint=way.endpoint,
            model=way.model,
            attempts=0,
        )
        return [reply] * len(requests)
    outcome: Outcome = "unknown"
    try:
        replies = complete_together(requests, deadline=deadline)
        outcome = _outcome(replies, deadline)
    finally:
        breaker.leave(leave, about, outcome)
    return replies


def _outcome(replies: Sequence[Reply], deadline: float) -> Outcome:
    """What the replies to one draft say of the judge. An error that it answers is an answer: it does not hang."""
    sent = [reply for reply in replies if reply.heard is not None]
    if any(reply.heard and reply.status is not Status.TIMEOUT for reply in sent):
        return "answered"
    if any(reply.heard or reply.status is not Status.TIMEOUT for reply in sent):
        return "other"
    long = max(LEAST_SILENCE, LEAST_SHARE * deadline) * 1000
    return "silent" if any(reply.latency_ms >= long for reply in sent) else "unknown"
