"""How many calls may be in flight at one endpoint. Lives in the loop thread: no locks, no Django."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Literal

Slot = Literal["gate", "ordinary"]

CUT_INTERVAL = 1.0  # seconds between two halvings: one burst of 429s is one piece of news
MAX_PAUSE = 30.0  # seconds; a longer retry-after would stall a whole process on one header


class Limiter:
    """Slots for calls in flight: `maximum` ordinary ones and `gate_slots` more that only gate calls use.

    Gate calls take their own slots first, then ordinary ones that are free, and they go before ordinary calls when one
    is freed. The ordinary limit halves on 429 and 529 (at most once per second, never below 1) and grows by one after
    as many successes as it allows calls. A `retry-after` pauses new ordinary calls, never gate calls: their deadline is
    too short to wait.
    """

    def __init__(self) -> None:
        self.maximum = self.limit = 1
        self.gate_slots = 0
        self.in_use: dict[Slot, int] = {"gate": 0, "ordinary": 0}
        self._waiting: dict[Slot, deque[asyncio.Future[Slot]]] = {"gate": deque(), "ordinary": deque()}
        self._successes = 0
        self._last_cut = float("-inf")
        self._paused_until = float("-inf")

    def configure(self, *, maximum: int, gate_slots: int) -> None:
        """Take over the configured numbers; a limit that had adapted stays adapted."""
        if (maximum, gate_slots) == (self.maximum, self.gate_slots):
            return
        self.limit = maximum if self.limit >= self.maximum else min(self.limit, maximum)
        self.maximum, self.gate_slots = maximum, gate_slots
        self._wake()

    async def acquire(self, *, gate: bool) -> Slot:
        """Wait for a slot; the caller gives the same slot back to `release`."""
        if slot := self._take(gate):
            return slot
        queue = self._waiting["gate" if gate else "ordinary"]
        turn: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(turn.result())  # handed over in the same tick in which the caller gave up
            else:
                with suppress(ValueError):
                    queue.remove(turn)
            raise

    def release(self, slot: Slot) -> None:
        self.in_use[slot] -= 1
        self._wake()

    def succeeded(self) -> None:
        """The server answered well."""
        if self.limit >= self.maximum:
            return
        self._successes += 1
        if self._successes >= self.limit:
            self._successes = 0
            self.limit += 1
            self._wake()

    def overloaded(self) -> None:
        """The server answered 429 or 529."""
        now = asyncio.get_running_loop().time()
        if now - self._last_cut >= CUT_INTERVAL:
            self._last_cut = now
            self._successes = 0
            self.limit = max(1, self.limit // 2)

    def pause(self, seconds: float) -> None:
        """Start no ordinary call for `seconds` (at most `MAX_PAUSE`), as the server's retry-after asked."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(seconds, MAX_PAUSE)
        if until > self._paused_until:
            self._paused_until = until
            loop.call_at(until, self._resume, until)

    def pause_left(self) -> float:
        """Seconds for which no ordinary call is started; 0 or less when they are."""
        return self._paused_until - asyncio.get_running_loop().time()

    def _take(self, gate: bool) -> Slot | None:
        if gate and self.in_use["gate"] < self.gate_slots:
            slot: Slot = "gate"
        elif self.in_use["ordinary"] < self.limit and (gate or self.pause_left() <= 0):
            slot = "ordinary"
        else:
            return None
        self.in_use[slot] += 1
        return slot

    def _resume(self, until: float) -> None:
        if until == self._paused_until:  # a later retry-after may have extended the pause
            self._paused_until = float("-inf")
            self._wake()

    def _wake(self) -> None:
        for kind in ("gate", "ordinary"):
            queue = self._waiting["gate" if kind == "gate" else "ordinary"]
            while queue:
                if queue[0].done():
                    queue.popleft()
                elif slot := self._take(kind == "gate"):
                    queue.popleft().set_result(slot)
                else:
                    break
