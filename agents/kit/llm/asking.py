"""One request over the network, by whichever provider: from waiting for a slot to the second question."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agents.kit.llm import endpoints
from agents.kit.llm.endpoints import Ability
from agents.kit.llm.loop import Background, Limiter, Trace, trace_of_call
from agents.kit.llm.providers.base import Failure, Message, NoMessage, Route, status_of
from agents.kit.llm.requests import (
    Exchange,
    LLMRequest,
    Reply,
    Status,
    read_answer,
    request_digest,
    short_line,
    with_example,
)

logger = logging.getLogger(__name__)

REFUSALS = (400, 422)  # 422 is what many servers written in Python answer to a field they do not know


def describe(problem: Exception, route: Route, *, http_status: int) -> Failure:
    """Return how a call failed that raised; the key is blanked from the error.

    What is none of the SDK's errors is logged with its traceback, unless the server answered 200: then the answer could not be read.
    """
    failure = route.remote.failure_of(problem, route)
    if failure is None and http_status == 200:
        error = f"{route.endpoint} answered 200 with something that is not JSON; is the base URL right?"
        failure = Failure(Status.REJECTED, error)
    if failure is None:
        logger.error("a call of %s failed in an unforeseen way", route.model, exc_info=problem)
        failure = Failure(Status.REJECTED, f"the call failed: {type(problem).__name__}: {problem}")
    could_be_a_word = len(route.key) <= 7  # such a key is no secret, and blanking it would spoil the sentence
    error = failure.error if could_be_a_word else failure.error.replace(route.key, "***")
    return Failure(failure.status, short_line(error))


@dataclass(slots=True, kw_only=True)
class Call:
    """A request on its way. The calling thread makes it, the loop's writes it.

    Attributes:
        deadline: Seconds for everything; `deadline_includes_waiting`: whether they run while the request waits for a slot.
        handed_at: When it was handed over, and `give_up_at`: until when it may take, in seconds on the loop's clock.
        sent_at: When it was first sent, in seconds since the epoch; None while it waits for a slot.
    """

    request: LLMRequest
    route: Route
    background: Background
    deadline: float
    deadline_includes_waiting: bool
    handed_at: float
    give_up_at: float = 0.0
    sent_at: float | None = None
    digest: str = ""
    waited_ms: int = 0

    def new_reply(self, status: Status, error: str, **fields: Any) -> Reply:
        """Return a reply with this status and error and what is known of the call, without answer or usage unless `fields` have them."""
        return Reply(
            status=status,
            error=short_line(error),
            provider=self.route.provider.name,
            endpoint=self.route.endpoint,
            model=self.route.model,
            request_digest=self.digest,
            waited_ms=self.waited_ms,
            **fields,
        )


async def answer(call: Call) -> list[Exchange]:
    """Wait for a slot, ask and, where the request wants it, ask again; the last exchange is the result, one before it went wrong.

    Without a slot in time nothing is sent, and the one exchange says so. The slot is given back also when the call is cancelled. Where
    the deadline does not include waiting, it runs from the moment the call has its slot, however long that took.
    """
    request, route = call.request, call.route
    limiter = call.background.limiter(route.base_url)
    limiter.configure(maximum=route.max_concurrency, gate_slots=route.gate_slots)
    clock = asyncio.get_running_loop().time
    call.give_up_at = call.handed_at + call.deadline
    call.digest = request_digest(request)  # before the wait: it takes time, in which a slot would be held for nothing
    started_at = time.time()
    try:
        async with asyncio.timeout_at(call.give_up_at if call.deadline_includes_waiting else None):
            slot = await limiter.acquire(gate=request.gate)
    except TimeoutError:
        call.waited_ms = _milliseconds(clock() - call.handed_at)
        return [Exchange(_reply_without_slot(call, limiter), started_at)]
    try:
        call.sent_at = time.time()
        call.waited_ms = _milliseconds(clock() - call.handed_at)
        if not call.deadline_includes_waiting:
            call.give_up_at = clock() + call.deadline
        return await _ask_and_ask_again(call)
    finally:
        limiter.release(slot)


def _reply_without_slot(call: Call, limiter: Limiter) -> Reply:
    """Return the reply to a call that got no slot: `rate_limited` while the server's pause lasts, which gate calls need not keep."""
    if not call.request.gate and (pause := limiter.pause_left()) > 0:
        error = f"{call.route.endpoint} asked for a pause, of which {pause:.1f} s are left"
        return call.new_reply(Status.RATE_LIMITED, error, attempts=0)
    error = f"no free slot within {call.deadline:g} s: {limiter.limit} calls may be in flight at {call.route.endpoint}"
    return call.new_reply(Status.TIMEOUT, error, attempts=0)


async def _ask_and_ask_again(call: Call) -> list[Exchange]:
    """Ask and, where the answer is malformed and the request allows it, ask once more, with the request's example before it.

    The example is shown at once where it saved the last answers of this endpoint, see `Ability`. A provider's own server is not observed:
    it enforces schemas.
    """
    request = call.request
    ability = endpoints.ability(call.route)
    can_show = request.schema is not None and request.example is not None
    first = await _send_and_read(call, ability, example=can_show and ability.example_first)
    exchanges = [first]
    if first.reply.status is Status.MALFORMED and request.reask and can_show:
        call.waited_ms = 0  # the wait is in the first exchange's row
        exchanges.append(await _send_and_read(call, ability, example=True))
    if request.schema is not None and not call.route.remote.is_own_server(call.route):
        ability.note([exchange.reply.status for exchange in exchanges])
    return exchanges


async def _send_and_read(call: Call, ability: Ability, *, example: bool) -> Exchange:
    """Send a request and read the answer; what goes wrong is a reply, too.

    A server that refuses something in the body, such as the temperature or the schema, gets the request again without it; if it then
    went through, the endpoint's ability remembers the refusal: what the server named at once, what was guessed when it happens again. All
    tries share one ledger row.
    """
    clock = asyncio.get_running_loop().time
    started_at = time.time()
    begun = clock()
    route = call.route
    provider = call.route.remote
    trace = Trace(limiter=call.background.limiter(route.base_url), provider=provider, give_up_at=call.give_up_at)
    trace_of_call.set(trace)
    request = with_example(call.request) if example else call.request
    without = set(ability.forgone)
    if not provider.takes_temperature(route):
        without.add("temperature")
    body = provider.body(request, route, without=without)
    answer = await _send(call, body, trace)
    named: dict[str, str] = {}
    guessed: dict[str, str] = {}
    left_out = ""
    while isinstance(answer, Failure) and _is_refused(answer, trace):
        error = answer.error
        left_out = provider.blamed(route, body, error)
        errors = named
        if not left_out:
            left_out = provider.suspected(route, body, error)
            errors = guessed
        if not left_out or left_out in named or left_out in guessed:
            break
        errors[left_out] = error
        body = provider.body(request, route, without={*without, *named, *guessed})
        answer = await _send(call, body, trace)
    if trace.http_status == 200:  # it was what was left out indeed
        ability.acquit(route, body)
        for what, error in named.items():
            ability.forgo(what, route, error)
        if left_out in guessed:  # what was guessed before did not help
            ability.suspect(left_out, route, guessed[left_out])
    if isinstance(answer, Failure):
        blocks: tuple[dict[str, Any], ...] = ()
        reply = _failed_reply(call, answer)
    else:
        blocks = answer.tool_blocks if call.request.tools else ()
        reply = _reply_from_message(call, answer)
    reply = replace(
        reply,
        latency_ms=_milliseconds(clock() - begun),
        attempts=trace.attempts,
        request_id=trace.request_id,
        temperature_applied="temperature" in body,
    )
    return Exchange(reply, started_at, body, blocks)


def _is_refused(failure: Failure, trace: Trace) -> bool:
    """Return whether a server refused something in the body, so that it may take the same with less."""
    return failure.status is Status.REJECTED and trace.http_status in REFUSALS


async def _send(call: Call, body: Mapping[str, Any], trace: Trace) -> Message | Failure:
    """Return what a server answered, or how the call failed.

    Past the deadline that is a time-out, or what the last answer was, where it was an HTTP error that the SDK wanted to try again.
    """
    route = call.route
    provider = call.route.remote
    client = call.background.clients.get(route, retries=call.request.retries)
    seconds = max(call.give_up_at - asyncio.get_running_loop().time(), 0.001)
    try:
        async with asyncio.timeout_at(call.give_up_at):
            answer = await provider.send(client, body, headers=call.request.headers, seconds=seconds)
        return provider.read(answer)
    except NoMessage as problem:
        return Failure(Status.REJECTED, f"{route.endpoint} answered 200 with: {problem}")
    except TimeoutError:
        error = f"no answer within the deadline of {call.deadline:g} s"
        if trace.http_status < 400:
            return Failure(Status.TIMEOUT, error)
        error += f"; the last one was HTTP {trace.http_status}, and the time left did not allow another try"
        return Failure(status_of(trace.http_status), error)
    except Exception as problem:  # noqa: BLE001 (a failure is a value; unforeseen ones are logged with it)
        return describe(problem, route, http_status=trace.http_status)


def _failed_reply(call: Call, failure: Failure) -> Reply:
    """Return a failed call; where a server that may serve any model complains of tools, with advice: many local models can use none."""
    error = failure.error
    if call.request.tools and not call.route.remote.is_own_server(call.route) and "tool" in error.lower():
        error += " (the request offers tools: a model that cannot use them cannot be an actor)"
    return call.new_reply(failure.status, error)


def _reply_from_message(call: Call, message: Message) -> Reply:
    """Return the reply that a server's message is, as `read_answer` judges it."""
    blocks = message.tool_blocks if call.request.tools else ()
    answer = read_answer(call.request, text=message.text, stop_reason=message.stop_reason, tool_blocks=blocks)
    return replace(
        call.new_reply(answer.status, answer.error),
        value=answer.value,
        text=message.text,
        tool_calls=answer.tool_calls,
        stop_reason=message.stop_reason,
        served_model=message.served_model,
        usage=message.usage,
    )


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))
