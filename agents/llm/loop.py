"""The one background thread with the one event loop in which a process calls models.

An HTTP client belongs to the loop that made it, so there is one loop per process: made on first use, made anew in a
forked child, closed at exit.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from agents.llm.client import Clients, load
from agents.llm.limiter import Limiter

logger = logging.getLogger(__name__)
T = TypeVar("T")

CLOSING_SECONDS = 2.0
# Seconds a thread may compute while another waits for its turn. A call needs a dozen turns (each read and write gives its own up), and
# for each of them Python's 5 ms make it wait for a calling thread that is busy with prompts and rows.
SWITCH_INTERVAL = 0.0005


class Background:
    """The loop with what lives in it: clients, and limiters, which are touched in its thread only."""

    def __init__(self) -> None:
        load()
        import anyio  # of the SDK

        sys.setswitchinterval(min(SWITCH_INTERVAL, sys.getswitchinterval()))
        self.clients = Clients()
        self.limiters: dict[str, Limiter] = {}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="llm-calls", daemon=True)
        self.thread.start()
        self.submit(anyio.sleep(0)).result()  # imports anyio's half of asyncio, before any deadline starts

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def limiter(self, base_url: str) -> Limiter:
        """The slots of one endpoint, so that a slow local server does not take those of the API."""
        return self.limiters.setdefault(base_url, Limiter())

    def close(self) -> None:
        """Cancel what is in flight, close the connections and end the thread; gives up after a few seconds."""
        try:
            self.submit(self._wind_down()).result(timeout=CLOSING_SECONDS)
        except (TimeoutError, concurrent.futures.CancelledError, RuntimeError) as problem:
            logger.debug("model calls were not wound down in time: %r", problem)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout=CLOSING_SECONDS)
        if not self.thread.is_alive():
            self.loop.close()

    async def _wind_down(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.clients.close()
        await self.loop.shutdown_asyncgens()


_background: Background | None = None
_lock = threading.Lock()
_left_behind: list[Background] = []


def background() -> Background:
    """The loop of this process, started if need be."""
    global _background
    with _lock:
        if _background is None:
            _background = Background()
        return _background


def slots_in_use() -> tuple[int, int]:
    """Model calls of this process that are in flight now, and how many may be; (0, 0) before the first.

    Read from another thread than the loop's: a figure to look at, a moment old.
    """
    limiters = list(_background.limiters.values()) if _background is not None else []
    return sum(sum(each.in_use.values()) for each in limiters), sum(each.limit + each.gate_slots for each in limiters)


def close() -> None:
    """End the loop of this process, if there is one; the next call starts another."""
    global _background
    with _lock:
        closing, _background = _background, None
    if closing is not None:
        closing.close()


def _forget_in_child() -> None:
    """A forked child has neither the thread nor a right to the parent's sockets.

    The parent's objects are kept, unused, so that no destructor of theirs runs in the child and closes what both share.
    """
    global _background, _lock
    if _background is not None:
        _left_behind.append(_background)
    _background = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(close)
