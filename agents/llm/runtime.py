"""Calling a model: the three functions everything above uses, synchronous, with a failure as a value."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from agents.llm import dispatch, ledger, tracing
from agents.llm.answers import Exchange
from agents.llm.dispatch import Future
from agents.llm.endpoints import Route, route, route_of
from agents.llm.loop import background
from agents.llm.requests import LLMRequest, Reply, Role
from agents.work.stopping import LOOK, check_stop

GRACE = 1.0  # seconds past the deadline before the calling thread stops believing that the loop will answer
GRACE_TOGETHER = 0.1  # the same where others wait for the whole: enough for the loop to cancel what hangs
LOOKAHEAD = 2  # requests handed over per call that may be in flight: enough that no slot waits for the calling thread


def warm_up(role: Role, *, model: str = "", retries: int = 0) -> None:
    """Import the SDK and make the client of a role, once per process, so that nobody's clock runs meanwhile (1.5 to 3 s)."""
    way = route_of(role, model)
    if dispatch.is_distant(way):
        background().clients.get(base_url=way.base_url, key=way.key, retries=retries)


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
    check_stop()
    way = route(request)
    if not dispatch.is_distant(way):
        return _settle(request, [dispatch.at_hand(request, way)])
    future = dispatch.hand_over(request, way, dispatch.ready(request, way), deadline=deadline, waiting_counts=True)
    try:
        _wait([future], deadline + GRACE)
        exchanges = future.result(timeout=0)
    except BaseException as problem:
        if not isinstance(problem, TimeoutError | concurrent.futures.CancelledError):
            _settle_all([(request, dispatch.given_up(future, request, way))])
            raise
        future.cancel()
        exchanges = [dispatch.lost(way, problem)]
    return _settle(request, exchanges)


def complete_many(
    requests: Iterable[LLMRequest | None], *, deadline: float
) -> Generator[tuple[int, Reply], None, None]:
    """Ask many questions at once and yield ``(index, reply)`` as they are answered.

    Requests are pulled lazily, in the calling thread, so they may be built as they are needed. Each is settled in the
    ledger before it is yielded. Closing the iterator early, or an exception in the loop over it, cancels what is in
    flight; replies that had arrived are settled all the same.

    Args:
        requests: The questions; their place here is the index. A None among them (which has no index) says that there is
            none to ask now: the next is pulled when a reply was yielded. The end comes where none is in flight then.
        deadline: Seconds for each call with its retries and its re-ask. It runs from the moment the call has a slot: a
            request does not time out because a thousand others stand before it. For gate requests (`LLMRequest.gate`)
            it includes the waiting, as in `complete`.

    Raises:
        ValueError: `deadline` is not positive.
    """
    _check(deadline)
    return _stream(iter(requests), deadline)


def _stream(source: Iterator[LLMRequest | None], deadline: float) -> Generator[tuple[int, Reply], None, None]:
    pending: dict[Future, tuple[int, LLMRequest, Route]] = {}
    finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
    more, window, index = True, 1, -1
    _streams.add(1)
    try:
        while more or pending:
            while more and len(pending) < max(1, window // _streams.open) and finished.empty():
                check_stop()
                try:
                    request = next(source)
                except StopIteration:
                    more = False
                    break
                if request is None:
                    more = bool(pending)  # what is in flight may bring more to ask
                    break
                index += 1
                way = route(request)
                if not dispatch.is_distant(way):
                    yield index, _settle(request, [dispatch.at_hand(request, way)])
                    continue
                window = LOOKAHEAD * (way.max_concurrency + way.gate_slots)
                future = dispatch.hand_over(
                    request, way, dispatch.ready(request, way), deadline=deadline, waiting_counts=request.gate
                )
                pending[future] = index, request, way
                future.add_done_callback(finished.put)
            if pending:
                arrived = [_next(finished)]
                while not finished.empty():  # what came while the caller was busy shares an insert
                    arrived.append(finished.get())
                known = [(future, *pending.pop(future)) for future in arrived]
                settled = _settle_all([(request, dispatch.collect(future, way)) for future, _, request, way in known])
                for (_, answered, _, _), reply in zip(known, settled, strict=True):
                    yield answered, reply
    finally:
        _streams.add(-1)
        left = [(request, dispatch.given_up(future, request, way)) for future, (_, request, way) in pending.items()]
        _settle_all(left)


def complete_together(requests: Iterable[LLMRequest], *, deadline: float) -> list[Reply]:
    """Ask a few questions at the same time and wait for all of them, but no longer than the deadline.

    The ledger rows of all are written by one insert when the last is answered or late, before this returns. What else
    `complete` says of transactions and of `parse` holds here too. An exception meanwhile, such as Ctrl-C, cancels what
    is in flight; replies that had arrived are settled all the same.

    Args:
        requests: The questions.
        deadline: Seconds for all of it: waiting for slots, retries and re-asks. Calls that are late are cancelled. As
            in `complete`, importing the SDK and making its clients (once per process) is not counted.

    Returns:
        A reply for each request, in their order.

    Raises:
        ValueError: `deadline` is not positive.
    """
    _check(deadline)
    asked = [(request, route(request)) for request in requests]
    check_stop()
    distant = {index: dispatch.ready(*one) for index, one in enumerate(asked) if dispatch.is_distant(one[1])}
    futures: dict[int, Future] = {}
    answered: dict[int, list[Exchange]] = {}
    handed_at = time.monotonic()
    try:
        for index, ground in distant.items():
            futures[index] = dispatch.hand_over(
                *asked[index], ground, deadline=deadline, waiting_counts=True, handed_at=handed_at
            )
        answered |= {index: [dispatch.at_hand(*one)] for index, one in enumerate(asked) if index not in distant}
        wait_until = handed_at + deadline + GRACE_TOGETHER
        _wait(futures.values(), wait_until - time.monotonic())
        for index, future in futures.items():
            late = future.cancel()
            way = asked[index][1]
            answered[index] = [dispatch.lost(way, TimeoutError())] if late else dispatch.collect(future, way)
    except BaseException:
        left = {index: dispatch.given_up(future, *asked[index]) for index, future in futures.items()}
        _settle_all([(asked[index][0], exchanges) for index, exchanges in (answered | left).items()])
        raise
    return _settle_all([(request, answered[index]) for index, (request, _) in enumerate(asked)])


class _Streams:
    """How many `complete_many` go side by side in this process: they share the calls that are handed over."""

    def __init__(self) -> None:
        self.open, self._lock = 0, threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self.open += number


_streams = _Streams()


def _wait(futures: Collection[Future], seconds: float) -> None:
    """Wait for all of the futures, at most so long, with an eye on the stop flag."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and concurrent.futures.wait(futures, timeout=min(left, LOOK)).not_done:
        check_stop()


def _next(finished: queue.SimpleQueue[Future]) -> Future:
    """The next future that is over, with an eye on the stop flag."""
    while True:
        check_stop()
        with suppress(queue.Empty):
            return finished.get(timeout=LOOK)


def _check(deadline: float) -> None:
    if not deadline > 0:
        raise ValueError(f"deadline is {deadline!r}; it must be a positive number of seconds")


def _settle(request: LLMRequest, exchanges: list[Exchange]) -> Reply:
    """Write the ledger and the traces of what happened, and make one reply of it."""
    return _settle_all([(request, exchanges)])[0]


def _settle_all(answered: Sequence[tuple[LLMRequest, list[Exchange]]]) -> list[Reply]:
    """The same for several requests, with one insert for all their calls."""
    call_ids = iter(
        ledger.record_all([(request, exchange) for request, exchanges in answered for exchange in exchanges])
    )
    settled: list[Reply] = []
    for request, exchanges in answered:
        replies = [replace(exchange.reply, call_id=next(call_ids)) for exchange in exchanges]
        for exchange in exchanges:
            tracing.record(request, exchange)
        if replies:
            settled.append(replace(replies[-1], earlier=tuple(replies[:-1])))
    return settled
