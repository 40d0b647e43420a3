"""The SDK's clients, one pool of connections per endpoint and key, watched response by response."""

from __future__ import annotations

import asyncio
import email.utils
import gc
import ssl
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from agents.llm.limiter import Limiter

if TYPE_CHECKING:
    import anthropic
    import httpx2

OVERLOADED = (429, 529)
SPEND_LIMIT = "spend_limit"


@dataclass(slots=True)
class Trace:
    """What is seen of one call on the wire, the SDK's own retries included.

    Attributes:
        limiter: The endpoint's slots, told about every answer.
        give_up_at: End of the call's deadline on the loop's clock, in seconds.
        attempts: HTTP requests sent.
        http_status: Status of the answer to the last request; 0 while there is none.
        request_id: The server's id of the last answer.
    """

    limiter: Limiter
    give_up_at: float
    attempts: int = 0
    http_status: int = 0
    request_id: str = ""


trace_of_call: ContextVar[Trace | None] = ContextVar("trace_of_call", default=None)


@cache
def load() -> None:
    """Import the SDK with what it would import during its first call: seconds, once per process.

    Its types are some hundred thousand objects that stay for good: frozen, they are not gone through by each collection of garbage,
    which would hold up all calls.
    """
    import anthropic.resources.messages  # noqa: F401
    import httpcore2  # noqa: F401

    gc.freeze()


class Clients:
    """Clients by endpoint, key and number of retries; those of one endpoint and key share their connections.

    They are made in the calling thread, before any deadline starts, and used in the loop's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[tuple[str, str], httpx2.AsyncClient] = {}
        self._clients: dict[tuple[str, str, int], anthropic.AsyncAnthropic] = {}
        self._tls: ssl.SSLContext | None = None

    def get(self, *, base_url: str, key: str, retries: int) -> anthropic.AsyncAnthropic:
        client = self._clients.get((base_url, key, retries))
        if client is None:
            with self._lock:
                client = self._clients[base_url, key, retries] = self._make(base_url, key, retries)
        return client

    def _make(self, base_url: str, key: str, retries: int) -> anthropic.AsyncAnthropic:
        import anthropic

        plain = self._clients.get((base_url, key, 0))
        if plain is None:
            plain = anthropic.AsyncAnthropic(
                api_key=key,
                base_url=base_url,
                max_retries=0,
                http_client=self._pool(base_url, key),
                open_telemetry=False,
            )
            self._clients[base_url, key, 0] = _without_stray_headers(plain)
        return _without_stray_headers(plain.with_options(max_retries=retries)) if retries else plain

    def _pool(self, base_url: str, key: str) -> httpx2.AsyncClient:
        import anthropic
        import httpx2

        if (base_url, key) not in self._pools:
            self._tls = self._tls or httpx2.create_ssl_context()  # 20 ms of CPU, so made once
            self._pools[base_url, key] = anthropic.DefaultAsyncHttpxClient(
                base_url=base_url, verify=self._tls, event_hooks={"request": [_on_request], "response": [_on_response]}
            )
        return self._pools[base_url, key]

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


def _without_stray_headers(client: anthropic.AsyncAnthropic) -> anthropic.AsyncAnthropic:
    """Undo ANTHROPIC_CUSTOM_HEADERS, which the SDK reads by itself: headers for one server would be sent to another."""
    client._custom_headers = {}
    return client


async def _on_request(request: httpx2.Request) -> None:
    if trace := trace_of_call.get():
        trace.attempts += 1
        trace.http_status = 0


async def _on_response(response: httpx2.Response) -> None:
    """Tell the limiter, and stop the SDK from retries that are useless: past the deadline, or against a spend limit."""
    trace = trace_of_call.get()
    if trace is None:
        return
    status = trace.http_status = response.status_code
    trace.request_id = response.headers.get("request-id", "")
    if response.is_success:
        trace.limiter.succeeded()
        return
    retry_after = _retry_after(response)
    if status == 429 and SPEND_LIMIT in (await response.aread()).decode("utf-8", "replace"):
        response.headers["x-should-retry"] = "false"
        return
    if status in OVERLOADED:
        trace.limiter.overloaded()
    if status in (*OVERLOADED, 503) and retry_after > 0:
        trace.limiter.pause(retry_after)
        if asyncio.get_running_loop().time() + retry_after >= trace.give_up_at:
            response.headers["x-should-retry"] = "false"


def _retry_after(response: httpx2.Response) -> float:
    """Seconds the server asks to wait, from retry-after-ms or retry-after (seconds or a date); 0 where it does not say."""
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
