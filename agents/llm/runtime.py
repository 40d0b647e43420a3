"""Calling a model: the two functions everything above uses, synchronous, with a failure as a value."""

from __future__ import annotations

import concurrent.futures
import logging
import queue
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from agents.llm import anthropic_api, ledger, offline, replay, tracing
from agents.llm.answers import Exchange
from agents.llm.endpoints import Route, route
from agents.llm.loop import background
from agents.llm.requests import LLMRequest, Reply, Status

logger = logging.getLogger(__name__)

GRACE = 1.0  # seconds past the deadline before the calling thread stops believing that the loop will answer
LOOKAHEAD = 2  # requests handed over per call that may be in flight: enough that no slot waits for the calling thread

Future = concurrent.futures.Future[list[Exchange]]


def complete(request: LLMRequest, *, deadline: float = 5.0) -> Reply:
    """Ask a model one question.

    The call's ledger row is written before this returns, in the calling thread, also when the call failed; a re-ask has
    a row of its own. Do not hold a transaction open across it. The request's `parse` runs in the loop's thread, where it
    holds up every other call: it must be pure and quick, and must not touch the database.

    Args:
        request: The question.
        deadline: Seconds for everything: waiting for a slot, retries and the re-ask. The call is cancelled at its end.
            Importing the SDK and making its client (seconds, once per process) is not counted.

    Returns:
        The answer, or why there is none: never raises for what a server or a network does. A `timeout` with 0 attempts
        means that no slot was free in time; `rate_limited` with 0 attempts, that the server had asked for a pause.

    Raises:
        ValueError: `deadline` is not positive.
    """
    _check(deadline)
    way = route(request)
    if (exchange := _at_hand(request, way)) is not None:
        return _settle(request, [exchange])
    future = _hand_over(request, way, deadline=deadline, waiting_counts=True)
    try:
        exchanges = future.result(timeout=deadline + GRACE)
    except BaseException as problem:
        future.cancel()
        if not isinstance(problem, TimeoutError | concurrent.futures.CancelledError):
            raise
        exchanges = [_lost(way, problem)]
    return _settle(request, exchanges)


def complete_many(requests: Iterable[LLMRequest], *, deadline: float) -> Iterator[tuple[int, Reply]]:
    """Ask many questions at once and yield ``(index, reply)`` as they are answered.

    Requests are pulled lazily, in the calling thread, so they may be built as they are needed. Each is settled in the
    ledger before it is yielded. Closing the iterator early, or an exception in the loop over it, cancels what is in
    flight; replies that had arrived are settled all the same.

    Args:
        requests: The questions; their place here is the index.
        deadline: Seconds for each call with its retries and its re-ask. It runs from the moment the call has a slot: a
            request does not time out because a thousand others stand before it. For gate requests (`LLMRequest.gate`)
            it includes the waiting, as in `complete`.

    Raises:
        ValueError: `deadline` is not positive.
    """
    _check(deadline)
    return _stream(enumerate(requests), deadline)


def _stream(source: Iterator[tuple[int, LLMRequest]], deadline: float) -> Iterator[tuple[int, Reply]]:
    pending: dict[Future, tuple[int, LLMRequest, Route]] = {}
    finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
    more, window = True, 1
    try:
        while more or pending:
            while more and len(pending) < window and finished.empty():
                index, request = next(source, (-1, None))
                if request is None:
                    more = False
                    break
                way = route(request)
                if (exchange := _at_hand(request, way)) is not None:
                    yield index, _settle(request, [exchange])
                    continue
                window = LOOKAHEAD * (way.max_concurrency + way.gate_slots)
                future = _hand_over(request, way, deadline=deadline, waiting_counts=request.gate)
                pending[future] = index, request, way
                future.add_done_callback(finished.put)
            if pending:
                future = finished.get()
                index, request, way = pending.pop(future)
                yield index, _settle(request, _exchanges(future, way))
    finally:
        for future, (_, request, _) in pending.items():
            if not future.cancel() and not future.cancelled() and future.exception() is None:
                _settle(request, future.result())


def _check(deadline: float) -> None:
    if not deadline > 0:
        raise ValueError(f"deadline is {deadline!r}; it must be a positive number of seconds")


def _at_hand(request: LLMRequest, way: Route) -> Exchange | None:
    """The answer of a provider that needs no network, or the refusal of a request that cannot be sent."""
    if way.provider == "offline":
        return offline.answer(request, way)
    if way.provider == "replay":
        return replay.answer(request, way)
    if way.problem:
        return Exchange(_without_answer(way, Status.REJECTED, way.problem), time.time())
    return None


def _hand_over(request: LLMRequest, way: Route, *, deadline: float, waiting_counts: bool) -> Future:
    ground = background()
    ground.clients.get(base_url=way.base_url, key=way.key, retries=request.retries)
    asked = anthropic_api.answer(
        request, way, ground, deadline=deadline, handed_at=time.monotonic(), waiting_counts=waiting_counts
    )
    return ground.submit(asked)


def _exchanges(future: Future, way: Route) -> list[Exchange]:
    try:
        return future.result()
    except concurrent.futures.CancelledError as problem:
        return [_lost(way, problem)]


def _lost(way: Route, problem: BaseException) -> Exchange:
    """The loop did not answer: it is stuck, or it was closed."""
    if isinstance(problem, TimeoutError):
        reply = _without_answer(way, Status.TIMEOUT, "no answer within the deadline")
    else:
        reply = _without_answer(way, Status.UNAVAILABLE, "the process is shutting down")
    return Exchange(replace(reply, attempts=1), time.time())


def _without_answer(way: Route, status: Status, error: str) -> Reply:
    return Reply(status=status, error=error, provider=way.provider, endpoint=way.endpoint, model=way.model, attempts=0)


def _settle(request: LLMRequest, exchanges: list[Exchange]) -> Reply:
    """Write the ledger and the traces of what happened, and make one reply of it."""
    replies: list[Reply] = []
    for exchange in exchanges:
        reply = exchange.reply
        try:
            reply = replace(reply, call_id=ledger.record(request, reply, body=exchange.body))
        except Exception:
            logger.exception(
                "the ledger row of a %s call (%s) could not be written", request.label.purpose, reply.status
            )
        tracing.record(request, exchange)
        replies.append(reply)
    return replace(replies[-1], earlier=tuple(replies[:-1]))
