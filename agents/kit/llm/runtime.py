"""Call a model: three synchronous functions, with a failure as a value, and a circuit breaker per endpoint for the gate."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from agents.kit.llm import asking, endpoints, ledger
from agents.kit.llm.asking import Call
from agents.kit.llm.endpoints import route_of
from agents.kit.llm.loop import background
from agents.kit.llm.providers import LocalProvider
from agents.kit.llm.providers.base import Route
from agents.kit.llm.requests import ROLES, Exchange, LLMRequest, Reply, Role, Status, Usage, request_digest
from agents.kit.running import POLL_SECONDS, check_stop

logger = logging.getLogger(__name__)

Future = concurrent.futures.Future[list[Exchange]]

GRACE = 0.1  # seconds past the deadline, enough for the loop to cancel what hangs
LOOKAHEAD = 2  # requests handed over per call that may be in flight: enough that no slot waits for the calling thread


def warm_up(role: Role, *, model: str = "") -> None:
    """Import the SDK and make the client of a role, once per process, before any deadline runs: it takes 1.5 to 3 s."""
    route = route_of(role, model)
    if route.is_distant:
        background().clients.get(route, retries=0)


def warm_up_all() -> None:
    """Warm up each role when a worker starts: during the import a thread with work does not look at the stop flag."""
    for role in ROLES:
        warm_up(role)


def complete(request: LLMRequest, *, deadline: float = 5.0) -> Reply:
    """Ask a model one question.

    The call's ledger row is written before this returns, in the calling thread, also when the call failed; a re-ask has
    a row of its own. Do not hold a transaction open across it. The request's `parse` runs in the loop's thread, where it
    holds up every other call: it must be pure and quick, and must not touch the database.

    Args:
        deadline: Seconds for everything: waiting for a slot, retries and the re-ask. The call is cancelled at its end.
            Importing the SDK and making its client (seconds, once per process) is not counted.

    Returns:
        The answer, or why there is none: never raises for what a server or a network does. A `timeout` with 0 attempts
        means that no slot was free in time; `rate_limited` with 0 attempts, that the server had asked for a pause.

    Raises:
        ValueError: `deadline` is not positive.
    """
    return complete_together([request], deadline=deadline)[0]


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
    _check_deadline(deadline)
    return _stream(iter(requests), deadline)


def _stream(source: Iterator[LLMRequest | None], deadline: float) -> Generator[tuple[int, Reply], None, None]:
    """Hand requests over while the window has room, and yield what arrives; see `complete_many`.

    The window is shared by all streams of the process. Requests that need no network are answered at once, in this thread. What is in
    flight when the caller stops is cancelled; its ledger rows are written, its replies are dropped.
    """
    in_flight: dict[Future, tuple[int, Call]] = {}
    arrived: queue.SimpleQueue[Future] = queue.SimpleQueue()
    index = -1
    window = 1
    source_is_empty = False

    def note_arrival(future: Future) -> None:
        _handed_over_by_process.add(-1)
        arrived.put(future)

    def may_hand_over() -> bool:
        if source_is_empty or not arrived.empty():
            return False
        # A stream may always have one call, however many others have.
        return not in_flight or _handed_over_by_process.calls < window

    try:
        while in_flight or not source_is_empty:
            while may_hand_over():
                check_stop()
                try:
                    request = next(source)
                except StopIteration:
                    source_is_empty = True
                    break
                if request is None:
                    source_is_empty = not in_flight  # what is in flight may bring more to ask
                    break
                index += 1
                route = endpoints.route(request)
                if not route.is_distant:
                    yield index, _settle_all([(request, [_answer_without_network(request, route)])])[0]
                    continue
                # The latter are for gate calls only.
                slots_of_endpoint = route.max_concurrency + route.gate_slots
                window = LOOKAHEAD * slots_of_endpoint
                call = _prepare_call(request, route, deadline=deadline, deadline_includes_waiting=request.gate)
                future = call.background.submit(asking.answer(call))
                in_flight[future] = index, call
                _handed_over_by_process.add(1)
                future.add_done_callback(note_arrival)
            if in_flight:
                yield from _settle_arrived(_all_that_arrived(arrived), in_flight)
    finally:
        given_up = []
        for future, (_, call) in in_flight.items():
            given_up.append((call.request, _cancel_and_collect(future, call)))
        _settle_all(given_up)


def _all_that_arrived(arrived: queue.SimpleQueue[Future]) -> list[Future]:
    """Wait for a future, and return it with all others that came while the caller was busy: they share an insert."""
    futures = [_next_arrived(arrived)]
    while not arrived.empty():
        futures.append(arrived.get())
    return futures


def _settle_arrived(
    futures: Sequence[Future], in_flight: dict[Future, tuple[int, Call]]
) -> Iterator[tuple[int, Reply]]:
    """Take futures out of those in flight, write their ledger rows, and yield index and reply of each."""
    indices = []
    answered = []
    for future in futures:
        index, call = in_flight.pop(future)
        indices.append(index)
        answered.append((call.request, _collect(future, call.route)))
    yield from zip(indices, _settle_all(answered), strict=True)


def complete_together(requests: Iterable[LLMRequest], *, deadline: float) -> list[Reply]:
    """Ask a few questions at the same time, see `complete`, and wait for all of them, but no longer than the deadline.

    Their ledger rows are written by one insert. An exception meanwhile, such as Ctrl-C, cancels what is in flight; replies that had
    arrived are settled all the same.

    Returns:
        A reply for each request, in their order.

    Raises:
        ValueError: `deadline` is not positive.
        Stopped: The worker is to stop.
    """
    _check_deadline(deadline)
    routed = [(request, endpoints.route(request)) for request in requests]
    check_stop()
    calls: dict[int, Call] = {}
    for index, (request, route) in enumerate(routed):
        if route.is_distant:
            calls[index] = _prepare_call(request, route, deadline=deadline, deadline_includes_waiting=True)
    futures: dict[int, Future] = {}
    exchanges: dict[int, list[Exchange]] = {}
    handed_at = time.monotonic()
    try:
        for index, call in calls.items():
            call.handed_at = handed_at
            futures[index] = call.background.submit(asking.answer(call))
        for index, (request, route) in enumerate(routed):
            if index not in calls:
                exchanges[index] = [_answer_without_network(request, route)]
        _wait_for_all(futures.values(), handed_at + deadline + GRACE - time.monotonic())
        for index, future in futures.items():
            is_late = not future.done() and future.cancel()
            if is_late:
                exchanges[index] = [_unanswered_exchange(calls[index].route, TimeoutError())]
            else:
                exchanges[index] = _collect(future, calls[index].route)
    except BaseException:
        for index, future in futures.items():
            exchanges[index] = _cancel_and_collect(future, calls[index])
        _settle_all([(routed[index][0], exchanges[index]) for index in exchanges])
        raise
    return _settle_all([(request, exchanges[index]) for index, (request, _) in enumerate(routed)])


class _HandedOver:
    """Calls that all `complete_many` of this process have handed over and that are not over yet: they share one window.

    Else a question of another caller would wait for the windows of all of them.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self.calls += number


_handed_over_by_process = _HandedOver()


def _wait_for_all(futures: Collection[Future], seconds: float) -> None:
    """Wait for all of the futures, at most so long, with an eye on the stop flag."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and concurrent.futures.wait(futures, min(left, POLL_SECONDS)).not_done:
        check_stop()


def _next_arrived(finished: queue.SimpleQueue[Future]) -> Future:
    """Return the next future that is over, with an eye on the stop flag."""
    while True:
        check_stop()
        with suppress(queue.Empty):
            return finished.get(timeout=POLL_SECONDS)


def _check_deadline(deadline: float) -> None:
    if not deadline > 0:
        raise ValueError(f"deadline is {deadline!r}; it must be a positive number of seconds")


def _settle_all(answered: Sequence[tuple[LLMRequest, list[Exchange]]]) -> list[Reply]:
    """Write the ledger rows of the calls, by one insert, add their Sentry spans, and return one reply for each request.

    A request without calls (never sent, its caller stops) gets no reply.
    """
    calls: list[tuple[LLMRequest, Exchange]] = []
    for request, exchanges in answered:
        calls += [(request, exchange) for exchange in exchanges]
    call_ids = iter(ledger.record_all(calls))
    for request, exchange in calls:  # after the ledger: paid calls must have their rows whatever tracing does
        _add_sentry_span(request, exchange)
    settled: list[Reply] = []
    for _, exchanges in answered:
        replies = [replace(exchange.reply, call_id=next(call_ids)) for exchange in exchanges]
        if replies:  # the last one counts; those before it were asked again
            settled.append(replace(replies[-1], earlier=tuple(replies[:-1])))
    return settled


def _prepare_call(request: LLMRequest, route: Route, *, deadline: float, deadline_includes_waiting: bool) -> Call:
    """Return a call that can be handed over: the loop has the client of its endpoint, which is made once and which no deadline counts."""
    loop = background()
    loop.clients.get(route, retries=request.retries)
    return Call(
        request=request,
        route=route,
        background=loop,
        deadline=deadline,
        deadline_includes_waiting=deadline_includes_waiting,
        handed_at=time.monotonic(),
    )


def _cancel_and_collect(future: Future, call: Call) -> list[Exchange]:
    """Cancel a call whose caller stops or crashed.

    Returns:
        Its exchanges, if it had arrived; one `unavailable`, of unknown cost, if it had been sent; none, if it still waited for a slot.
    """
    if not future.cancel() and not future.cancelled() and future.exception() is None:
        return future.result()
    if call.sent_at is None:
        return []
    seconds = time.time() - call.sent_at
    error = f"given up {seconds:.1f} s after it was sent: its caller stopped, and the call was cancelled"
    reply = replace(
        _without_answer(call.route, Status.UNAVAILABLE, error), attempts=1, latency_ms=round(seconds * 1000)
    )
    return [Exchange(replace(reply, request_digest=request_digest(call.request)), call.sent_at)]


def _collect(future: Future, route: Route) -> list[Exchange]:
    """Return the calls of a future that is over; a call that went wrong is among them as a value, also when the loop was closed."""
    try:
        return future.result()
    except concurrent.futures.CancelledError as problem:
        return [_unanswered_exchange(route, problem)]


def _unanswered_exchange(route: Route, problem: BaseException) -> Exchange:
    """Return a call that the loop did not answer: it is stuck, or it was closed."""
    if isinstance(problem, TimeoutError):
        reply = _without_answer(route, Status.TIMEOUT, "no answer within the deadline")
    else:
        reply = _without_answer(route, Status.UNAVAILABLE, "the process is shutting down")
    return Exchange(replace(reply, attempts=1), time.time())


def _answer_without_network(request: LLMRequest, route: Route) -> Exchange:
    """Return the answer of a provider that needs no network, or the refusal of a request that cannot be sent."""
    if route.problem or not isinstance(route.provider, LocalProvider):
        return Exchange(_without_answer(route, Status.REJECTED, route.problem), time.time())
    started_at = time.time()
    start = time.perf_counter()
    digest = request_digest(request)
    provided = route.provider.answer(request, route.model, digest)
    reply = Reply(
        status=provided.answer.status,
        value=provided.answer.value,
        error=provided.answer.error,
        text=provided.text,
        tool_calls=provided.answer.tool_calls,
        stop_reason=provided.stop_reason,
        provider=route.provider.name,
        model=route.model,
        served_model=provided.served_model,
        usage=Usage(0, 0, 0, 0),
        request_digest=digest,
        latency_ms=round((time.perf_counter() - start) * 1000),
        attempts=0,
    )
    return Exchange(reply, started_at)


def _without_answer(route: Route, status: Status, error: str) -> Reply:
    return Reply(
        status=status,
        error=error,
        provider=route.provider.name,
        endpoint=route.endpoint,
        model=route.model,
        attempts=0,
    )


def _add_sentry_span(request: LLMRequest, exchange: Exchange) -> None:
    """Add a finished Sentry span to the calling thread's transaction, if there is one; never the text of a prompt or an answer.

    The call ran in another thread, so its span is made afterwards, with the times at which it really ran.
    """
    sentry_sdk = sys.modules.get("sentry_sdk")  # imported by the settings when there is a DSN: it takes 0.3 s
    if sentry_sdk is None or not sentry_sdk.get_client().is_active():
        return
    reply = exchange.reply
    start = datetime.fromtimestamp(exchange.started_at, UTC)
    under = sentry_sdk.start_span if request.span is None else request.span.start_child
    span = under(op="llm.call", name=f"llm.{request.role}", start_timestamp=start)
    for name, value in {
        "llm.model": reply.model,
        "llm.served_model": reply.served_model,
        "llm.provider": reply.provider,
        "llm.status": str(reply.status),
        "llm.purpose": request.label.purpose,
        "llm.dimension": request.label.dimension,
        "llm.attempts": reply.attempts,
        "llm.waited_ms": reply.waited_ms,
        "llm.input_tokens": reply.usage.input_tokens,
        "llm.output_tokens": reply.usage.output_tokens,
        "llm.cache_read_tokens": reply.usage.cache_read_tokens,
        "llm.cache_write_tokens": reply.usage.cache_write_tokens,
    }.items():
        if value not in (None, ""):
            span.set_data(name, value)
    span.set_status("ok" if reply.ok else "internal_error")
    span.finish(end_timestamp=start + timedelta(milliseconds=reply.latency_ms))


TIMEOUTS = 3  # in a row, from different agents or messages
PROBE_PAUSE = 5.0  # seconds between two probes
LEAST_SILENCE = 1.0  # seconds; a judge that is silent for less is only slow
LEAST_SHARE = 0.9  # of the deadline that must be silence of the judge: waiting for a slot of our own is no fault of it


@dataclass(slots=True)
class Breaker:
    """What is known of an endpoint that hangs; safe to use from several threads."""

    endpoint: str
    clock: Callable[[], float]
    lock: threading.Lock = field(default_factory=threading.Lock)
    silent: set[Hashable] = field(default_factory=set)  # what the time-outs in a row were about
    probe_at: float | None = None  # when the next probe may begin; None while the breaker is closed

    def lets_through(self, about: Hashable | None) -> bool:
        """Return whether to call. While the endpoint hangs only a probe is let through every PROBE_PAUSE seconds; a call without `about`
        is none, as its time-out would prove nothing."""
        with self.lock:
            if self.probe_at is None:
                return True
            if about is None or self.clock() < self.probe_at:
                return False
            self.probe_at = self.clock() + PROBE_PAUSE
            return True

    def note(self, about: Hashable | None, answered: bool | None) -> None:
        """Note whether the endpoint answered; None where its silence proves nothing.

        An answer closes the breaker. TIMEOUTS of different agents or messages without an answer between them open it, with a warning.
        """
        with self.lock:
            if answered:
                if self.probe_at is not None:
                    logger.warning("the judge at %s answers again: drafts are checked", self.endpoint)
                self.silent.clear()
                self.probe_at = None
            elif answered is False and about is not None:
                self.silent.add(about)
                if self.probe_at is None and len(self.silent) >= TIMEOUTS:
                    self.probe_at = self.clock() + PROBE_PAUSE
                    words = "the judge at %s sent nothing to %d drafts in a row: drafts pass unchecked, one every %g s tries it"
                    logger.warning(words, self.endpoint, TIMEOUTS, PROBE_PAUSE)

    @property
    def reason(self) -> str:
        return f"the judge at {self.endpoint} was not asked: {TIMEOUTS} drafts in a row had no answer from it in time"


_breakers: dict[str, Breaker] = {}
_clock: Callable[[], float] = time.monotonic


def forget(clock: Callable[[], float] = time.monotonic) -> None:
    """Close the breakers of all endpoints. `clock` gives seconds that never go back."""
    global _clock, _breakers
    _clock = clock
    _breakers = {}


os.register_at_fork(after_in_child=forget)  # another thread of the parent may hold a lock


def complete_guarded(requests: Sequence[LLMRequest], *, deadline: float, about: Hashable | None) -> list[Reply]:
    """Ask as `complete_together` does, but do not ask an endpoint that hangs (see `Breaker`); all requests are for one endpoint.

    Args:
        deadline: Seconds for all of it.
        about: Tells this draft from others, so that one draft repeated does not stop the checks of all. None where less
            time is left than is configured: such a time-out proves nothing, and such a draft does not probe.

    Returns:
        A reply for each request, in their order; `timeout` with 0 attempts and no ledger row where the endpoint hangs.
    """
    route = endpoints.route(requests[0]) if requests else None
    if route is None or not route.is_distant:
        return complete_together(requests, deadline=deadline)
    breaker = _breakers.get(route.base_url) or _breakers.setdefault(route.base_url, Breaker(route.endpoint, _clock))
    if not breaker.lets_through(about):
        return [_without_answer(route, Status.TIMEOUT, breaker.reason)] * len(requests)
    replies = complete_together(requests, deadline=deadline)
    breaker.note(about, _endpoint_answered(replies, deadline))
    return replies


def _endpoint_answered(replies: Sequence[Reply], deadline: float) -> bool | None:
    """Return whether the judge answered one draft; None where its silence proves nothing, as it was short or nothing was sent.

    An error, or a refused connection, is an answer: the endpoint does not hang.
    """
    sent = [reply for reply in replies if reply.attempts]
    if any(reply.status is not Status.TIMEOUT for reply in sent):
        return True
    least_silence_ms = max(LEAST_SILENCE, LEAST_SHARE * deadline) * 1000
    was_silent = any(reply.latency_ms >= least_silence_ms for reply in sent)
    return False if was_silent else None
