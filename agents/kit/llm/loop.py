"""The one background thread with the one event loop in which a process calls models.

An HTTP client belongs to the loop that made it, so there is one loop per process: made on first use, made again in a
forked child, closed at exit.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import email.utils
import gc
import logging
import os
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agents.kit.llm.providers.base import RemoteProvider, Route

if TYPE_CHECKING:
    import httpx2


Slot = Literal["gate", "ordinary"]

CUT_INTERVAL = 1.0  # seconds between two halvings: one burst of 429s is one piece of news
MAX_PAUSE = 30.0  # seconds; a longer retry-after would stall a process on one header


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
        self._successes = 0  # since the limit was changed
        self._last_cut = float("-inf")
        self._paused_until = float("-inf")

    def configure(self, *, maximum: int, gate_slots: int) -> None:
        """Take over the configured numbers; a limit that an overload had lowered stays lowered."""
        if (maximum, gate_slots) == (self.maximum, self.gate_slots):
            return
        self.limit = maximum if self.limit >= self.maximum else min(self.limit, maximum)
        self.maximum, self.gate_slots = maximum, gate_slots
        self._wake()

    async def acquire(self, *, gate: bool) -> Slot:
        """Wait for a slot; the caller gives the same slot back to `release`.

        A caller that is cancelled while it waits leaves the queue; a slot that it was handed in that moment goes to the next one.
        """
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
        """Note that the server answered well."""
        if self.limit >= self.maximum:
            return
        self._successes += 1
        if self._successes >= self.limit:
            self._successes = 0
            self.limit += 1
            self._wake()

    def overloaded(self) -> None:
        """Note that the server answered 429 or 529."""
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
        """Return the seconds for which no ordinary call is started; 0 or less when they are started."""
        return self._paused_until - asyncio.get_running_loop().time()

    def _take(self, gate: bool) -> Slot | None:
        """Take a free slot for a gate or an ordinary call; None while there is none, or the server asked ordinary calls to pause."""
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
        """Give free slots to the calls that wait, gate calls first; those that gave up leave the queue."""
        for kind in ("gate", "ordinary"):
            queue = self._waiting["gate" if kind == "gate" else "ordinary"]
            while queue:
                if queue[0].done():
                    queue.popleft()
                elif slot := self._take(kind == "gate"):
                    queue.popleft().set_result(slot)
                else:
                    break


OVERLOADED = (429, 529)


@dataclass(slots=True)
class Trace:
    """What is seen of one call on the wire, the SDK's own retries included.

    Attributes:
        limiter: The endpoint's slots; it hears of every answer.
        provider: Who is called: it knows its servers' headers and words.
        give_up_at: End of the call's deadline on the loop's clock, in seconds.
        http_status: Status of the answer to the last request; 0 while there is none.
        request_id: The server's id of the last answer.
    """

    limiter: Limiter
    provider: RemoteProvider
    give_up_at: float
    attempts: int = 0
    http_status: int = 0
    request_id: str = ""


trace_of_call: ContextVar[Trace | None] = ContextVar("trace_of_call", default=None)


@cache
def _import_sdk(provider: RemoteProvider) -> None:
    """Import the SDK of a provider with what it would import during its first call: seconds, once per process.

    Its types are some hundred thousand objects that are never freed. Frozen, they are not visited by each garbage collection, which
    would delay all calls; while they are made there is none, which saves a tenth of the time.
    """
    gc.disable()
    try:
        provider.import_sdk()
        gc.freeze()
    finally:
        gc.enable()


@dataclass(frozen=True, slots=True)
class _Account:
    """Whose connections are shared: one server, called with one key by one provider's SDK."""

    provider: str
    base_url: str
    key: str


class Clients:
    """Clients by account and number of retries; those of one account share their connections.

    They are made in the calling thread, before any deadline starts, and used in the loop's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[_Account, httpx2.AsyncClient] = {}
        self._clients: dict[tuple[_Account, int], Any] = {}
        self._tls: ssl.SSLContext | None = None

    def get(self, route: Route, *, retries: int) -> Any:
        """Return the client of the SDK for a route that goes over the network."""
        account = _Account(route.provider.name, route.base_url, route.key)
        client = self._clients.get((account, retries))
        if client is None:
            with self._lock:
                client = self._clients[account, retries] = self._make(account, route, retries)
        return client

    def _make(self, account: _Account, route: Route, retries: int) -> Any:
        """Make a client over the connection pool of its account, which is made when missing. The hooks fill the call's `Trace`."""
        provider = route.remote
        _import_sdk(provider)
        import httpx2

        if account not in self._pools:
            self._tls = self._tls or httpx2.create_ssl_context()  # 20 ms of CPU, so made once
            hooks = {"request": [_on_request], "response": [_on_response]}
            # Where a server sends a request on to, the key and the prompt would go too.
            self._pools[account] = provider.new_pool(route, verify=self._tls, event_hooks=hooks, follow_redirects=False)
        return provider.new_client(route, retries=retries, pool=self._pools[account])

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


async def _on_request(request: httpx2.Request) -> None:
    if trace := trace_of_call.get():
        trace.attempts += 1
        trace.http_status = 0


async def _on_response(response: httpx2.Response) -> None:
    """Note an answer in the call's trace, tell the limiter of it, and stop the SDK from useless retries.

    Those are retries past the call's deadline, or against a spend limit. 429 and 529 lower the limit; with a retry-after they, and 503,
    pause ordinary calls. A spend limit is a 429, too, but no overload: it neither lowers the limit nor pauses.
    """
    trace = trace_of_call.get()
    if trace is None:
        return
    status = trace.http_status = response.status_code
    trace.request_id = _request_id(response, trace.provider)
    if response.is_success:
        trace.limiter.succeeded()
        return
    retry_after = _retry_after(response)
    if status == 429 and trace.provider.hopeless_words:
        body = (await response.aread()).decode("utf-8", "replace")
        if any(word in body for word in trace.provider.hopeless_words):
            response.headers["x-should-retry"] = "false"
            return
    if status in OVERLOADED:
        trace.limiter.overloaded()
    if status in (*OVERLOADED, 503) and retry_after > 0:
        trace.limiter.pause(retry_after)
        if asyncio.get_running_loop().time() + retry_after >= trace.give_up_at:
            response.headers["x-should-retry"] = "false"


def _request_id(response: httpx2.Response, provider: RemoteProvider) -> str:
    for name in provider.request_id_headers:
        if request_id := response.headers.get(name):
            return str(request_id)
    return ""


def _retry_after(response: httpx2.Response) -> float:
    """Return the seconds that the server asks to wait, from retry-after-ms or retry-after (seconds or a date); 0 if neither is usable."""
    headers = response.headers
    for value, unit in ((headers.get("retry-after-ms", ""), 0.001), (headers.get("retry-after", ""), 1.0)):
        try:
            seconds = float(value) * unit
        except ValueError:
            date = email.utils.parsedate_tz(value)
            seconds = email.utils.mktime_tz(date) - time.time() if date else 0.0
        if 0 < seconds < float("inf"):
            return seconds
    return 0.0


logger = logging.getLogger(__name__)
T = TypeVar("T")

CLOSING_SECONDS = 2.0
# Seconds a thread may compute while another waits for its turn. A call needs a dozen turns (each read and write gives its own up), and
# for each of them Python's 5 ms make it wait for a calling thread that is busy with prompts and rows.
SWITCH_INTERVAL = 0.0005


class Background:
    """The loop with what lives in it: clients, and limiters, which are touched in its thread only."""

    def __init__(self) -> None:
        import anyio  # what the SDKs' HTTP client waits with

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
        """Return the slots of one endpoint, so that a slow local server does not take those of the API."""
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
    """Return the loop of this process, started if need be."""
    global _background
    with _lock:
        if _background is None:
            _background = Background()
        return _background


def slots() -> dict[str, int]:
    """Count the model calls of this process that are in flight now, and those that may be, as columns of a worker's heartbeat.

    Both are 0 before the first call. Read from another thread than the loop's: a figure to look at, a moment old.
    """
    limiters = list(_background.limiters.values()) if _background is not None else []
    return {
        "slots_in_use": sum(sum(limiter.in_use.values()) for limiter in limiters),
        "slots": sum(limiter.limit + limiter.gate_slots for limiter in limiters),
    }


def close() -> None:
    """End the loop of this process, if there is one; the next call starts another."""
    global _background
    with _lock:
        closing = _background
        _background = None
    if closing is not None:
        closing.close()


def _forget_in_child() -> None:
    """Drop the loop in a forked child, which has neither the thread nor a right to the parent's sockets.

    The parent's objects stay, unused, so that no destructor of theirs runs in the child and closes what both share.
    """
    global _background, _lock
    if _background is not None:
        _left_behind.append(_background)
    _background = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(close)
