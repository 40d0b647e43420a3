"""Bringing a request to whoever answers it: a provider at hand, or the loop that calls over the network."""

from __future__ import annotations

import concurrent.futures
import time
from dataclasses import replace
from weakref import WeakKeyDictionary

from agents.llm import anthropic_api, offline, replay
from agents.llm.answers import Exchange
from agents.llm.digest import request_digest
from agents.llm.endpoints import Route
from agents.llm.loop import Background, background
from agents.llm.requests import LLMRequest, Reply, Status

Future = concurrent.futures.Future[list[Exchange]]
_sent: WeakKeyDictionary[Future, anthropic_api.Stage] = WeakKeyDictionary()


def is_distant(way: Route) -> bool:
    """Whether the request must go over the network."""
    return way.provider == "anthropic" and not way.problem


def at_hand(request: LLMRequest, way: Route) -> Exchange:
    """The answer of a provider that needs no network, or the refusal of a request that cannot be sent."""
    if way.provider == "offline":
        return offline.answer(request, way)
    if way.provider == "replay":
        return replay.answer(request, way)
    return Exchange(_without_answer(way, Status.REJECTED, way.problem), time.time())


def ready(request: LLMRequest, way: Route) -> Background:
    """The loop with the client of this endpoint in it: what a process does once and no deadline counts."""
    ground = background()
    ground.clients.get(base_url=way.base_url, key=way.key, retries=request.retries)
    return ground


def hand_over(
    request: LLMRequest,
    way: Route,
    ground: Background,
    *,
    deadline: float,
    waiting_counts: bool,
    handed_at: float | None = None,
) -> Future:
    """Give a request to the loop. `handed_at` (monotonic seconds, default now) is when its deadline began to run."""
    stage = anthropic_api.Stage()
    asked = anthropic_api.answer(
        request,
        way,
        ground,
        stage=stage,
        deadline=deadline,
        handed_at=time.monotonic() if handed_at is None else handed_at,
        waiting_counts=waiting_counts,
    )
    future = ground.submit(asked)
    _sent[future] = stage
    return future


def has_arrived(future: Future) -> bool:
    """Whether the calls of a future are over and brought replies; cancels it if not."""
    return not future.cancel() and not future.cancelled() and future.exception() is None


def given_up(future: Future, request: LLMRequest, way: Route) -> list[Exchange]:
    """Cancel a call that nobody waits for any more, because the caller was told to stop or crashed, and say what it came to.

    Returns:
        Its exchanges, if it had arrived; one `unavailable`, of unknown cost, if it had been sent; none, if it still waited for a slot.
    """
    if has_arrived(future):
        return future.result()
    stage = _sent.get(future)
    if stage is None or stage.sent_at is None:
        return []
    seconds = time.time() - stage.sent_at
    error = f"given up {seconds:.1f} s after it was sent: whoever asked stopped, and the call was cancelled"
    reply = replace(_without_answer(way, Status.UNAVAILABLE, error), attempts=1, latency_ms=round(seconds * 1000))
    return [Exchange(replace(reply, request_digest=request_digest(request)), stage.sent_at)]


def collect(future: Future, way: Route) -> list[Exchange]:
    """The calls of a future that is over; a call that went wrong is among them as a value."""
    try:
        return future.result()
    except concurrent.futures.CancelledError as problem:
        return [lost(way, problem)]


def lost(way: Route, problem: BaseException) -> Exchange:
    """The loop did not answer: it is stuck, or it was closed."""
    if isinstance(problem, TimeoutError):
        reply = _without_answer(way, Status.TIMEOUT, "no answer within the deadline")
    else:
        reply = _without_answer(way, Status.UNAVAILABLE, "the process is shutting down")
    return Exchange(replace(reply, attempts=1), time.time())


def _without_answer(way: Route, status: Status, error: str) -> Reply:
    return Reply(status=status, error=error, provider=way.provider, endpoint=way.endpoint, model=way.model, attempts=0)
