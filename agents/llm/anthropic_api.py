"""One request to Anthropic's Messages API, or to a server that speaks it, from waiting for a slot to the re-ask."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.llm import endpoints
from agents.llm.answers import Exchange, one_line, read_answer
from agents.llm.client import Trace, trace_of_call
from agents.llm.digest import request_digest
from agents.llm.endpoints import Ability, Route
from agents.llm.extraction import storable
from agents.llm.failures import describe, status_of
from agents.llm.limiter import Limiter
from agents.llm.loop import Background
from agents.llm.messages import body_of
from agents.llm.requests import LLMRequest, Reply, Status, Usage
from agents.llm.tool_use import tool_blocks
from agents.llm.wire import post_message

logger = logging.getLogger(__name__)

# Words by which the API blames the schema for a 400. Other servers word it as they like: there any 400 will do.
MOST_TOKENS = 2**31 - 1  # the largest integer of a ledger column; a server that says more is not believed
SCHEMA_WORDS = ("output_config", "output_format", "json_schema", "schema", "structured")


@dataclass(slots=True)
class Stage:
    """How far a request got: when it was first sent, in seconds since the epoch. Written in the loop's thread, read in the caller's."""

    sent_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request on its way: who answers it and until when (`give_up_at`, seconds on the loop's clock)."""

    request: LLMRequest
    route: Route
    background: Background
    deadline: float
    give_up_at: float
    digest: str
    waited_ms: int = 0

    def blank(self, status: Status, error: str, **fields: Any) -> Reply:
        return Reply(
            status=status,
            error=one_line(error),
            provider="anthropic",
            endpoint=self.route.endpoint,
            model=self.route.model,
            request_digest=self.digest,
            waited_ms=self.waited_ms,
            **fields,
        )


@dataclass(frozen=True, slots=True)
class Received:
    """What one attempt to get an answer brought: a message of the SDK, or a failure."""

    message: Any = None
    status: Status | None = None
    error: str = ""
    http_status: int = 0


async def answer(
    request: LLMRequest,
    route: Route,
    background: Background,
    *,
    deadline: float,
    handed_at: float,
    waiting_counts: bool,
    stage: Stage,
) -> list[Exchange]:
    """Ask and, where the request wants it, ask again; the last exchange is the result, those before it went wrong.

    Args:
        request: The question.
        route: Who answers it.
        background: The loop's clients and limiters.
        deadline: Seconds for everything.
        handed_at: When the calling thread handed the request over, on the loop's clock.
        waiting_counts: Whether the deadline runs while the request waits for a slot.
        stage: Told when the request is sent, for a caller that gives it up.
    """
    limiter = background.limiter(route.base_url)
    limiter.configure(maximum=route.max_concurrency, gate_slots=route.gate_slots)
    clock = asyncio.get_running_loop().time
    call = Call(
        request=request,
        route=route,
        background=background,
        deadline=deadline,
        give_up_at=handed_at + deadline,
        digest=request_digest(request),  # now: no slot is held meanwhile
    )
    started_at = time.time()
    try:
        async with asyncio.timeout_at(call.give_up_at if waiting_counts else None):
            slot = await limiter.acquire(gate=request.gate)
    except TimeoutError:
        call = replace(call, waited_ms=_milliseconds(clock() - handed_at))
        return [Exchange(_no_slot(call, limiter), started_at)]
    stage.sent_at = time.time()
    try:
        call = replace(
            call,
            waited_ms=_milliseconds(clock() - handed_at),
            give_up_at=call.give_up_at if waiting_counts else clock() + deadline,
        )
        return await _converse(call)
    finally:
        limiter.release(slot)


def _no_slot(call: Call, limiter: Limiter) -> Reply:
    if not call.request.gate and (pause := limiter.pause_left()) > 0:
        error = f"{call.route.endpoint} asked for a pause, of which {pause:.1f} s are left"
        return call.blank(Status.RATE_LIMITED, error, attempts=0)
    error = f"no free slot within {call.deadline:g} s: {limiter.limit} calls may be in flight at {call.route.endpoint}"
    return call.blank(Status.TIMEOUT, error, attempts=0)


async def _converse(call: Call) -> list[Exchange]:
    request, ability = call.request, endpoints.ability(call.route)
    can_show = request.schema is not None and request.example is not None
    first = await _exchange(call, ability, example=can_show and ability.example_first)
    exchanges = [first]
    if first.reply.status is Status.MALFORMED and request.reask and can_show:
        exchanges.append(await _exchange(replace(call, waited_ms=0), ability, example=True))
    if request.schema is not None and not call.route.is_default_endpoint:
        endpoints.learn(call.route, ability, [exchange.reply.status for exchange in exchanges])
    return exchanges


async def _exchange(call: Call, ability: Ability, *, example: bool) -> Exchange:
    clock = asyncio.get_running_loop().time
    started_at, begun = time.time(), clock()
    trace = Trace(limiter=call.background.limiter(call.route.base_url), give_up_at=call.give_up_at)
    trace_of_call.set(trace)
    body = body_of(call.request, model=call.route.model, structured=ability.structured, example=example)
    received = await _send(call, body, trace)
    if received.http_status == 400 and "output_config" in body and _blames_schema(call.route, received.error):
        without = {name: value for name, value in body.items() if name != "output_config"}
        second = await _send(call, without, trace)
        if second.http_status == 200:  # it was the schema indeed
            endpoints.remember_no_schema(call.route, ability, received.error)
        if second.http_status != 400:
            body, received = without, second
    blocks = tool_blocks(_content(received) or ()) if call.request.tools else ()
    reply = _reply(call, received, blocks)
    seen: dict[str, Any] = {
        "latency_ms": _milliseconds(clock() - begun),
        "attempts": trace.attempts,
        "heard": trace.http_status > 0 if trace.attempts else None,
        "request_id": trace.request_id,
    }
    return Exchange(replace(reply, **seen), started_at, body, blocks)


async def _send(call: Call, body: Mapping[str, Any], trace: Trace) -> Received:
    client = call.background.clients.get(base_url=call.route.base_url, key=call.route.key, retries=call.request.retries)
    remaining = max(call.give_up_at - asyncio.get_running_loop().time(), 0.001)
    try:
        async with asyncio.timeout_at(call.give_up_at):
            message = await post_message(client, body, timeout=remaining)
    except TimeoutError:
        status = status_of(trace.http_status) if trace.http_status >= 400 else Status.TIMEOUT
        error = f"no answer within the deadline of {call.deadline:g} s"
        if trace.http_status >= 400:
            error += f"; the last one was HTTP {trace.http_status}, and the time left did not allow another try"
        return Received(status=status, error=error, http_status=trace.http_status)
    except Exception as problem:  # noqa: BLE001 (a failure is a value; unforeseen ones are logged with it)
        status, error = describe(problem, call.route, trace)
        return Received(status=status, error=error, http_status=trace.http_status)
    return Received(message=message, http_status=trace.http_status)


def _blames_schema(route: Route, error: str) -> bool:
    return not route.is_default_endpoint or any(word in error.lower() for word in SCHEMA_WORDS)


def _content(received: Received) -> list[Any] | None:
    content = getattr(received.message, "content", None)
    return content if isinstance(content, list) else None


def _reply(call: Call, received: Received, blocks: Sequence[Mapping[str, Any]]) -> Reply:
    if received.status is not None:
        return call.blank(received.status, received.error + _tools_hint(call, received.error))
    message, content = received.message, _content(received)
    if content is None:
        # Some servers answer 200 to what they refuse, and a wrong base URL can lead to any web page.
        complaint = getattr(message, "error", None) or "not a message of the Messages API; is the base URL right?"
        error = f"{call.route.endpoint} answered 200 with: {complaint}"
        return call.blank(Status.REJECTED, error + _tools_hint(call, error))
    text = text_of(content)
    stop_reason = str(getattr(message, "stop_reason", None) or "")
    found = read_answer(call.request, text=text, stop_reason=stop_reason, tool_blocks=blocks)
    return replace(
        call.blank(found.status, found.error),
        value=found.value,
        text=text,
        tool_calls=found.tool_calls,
        stop_reason=stop_reason,
        served_model=str(getattr(message, "model", None) or ""),
        usage=usage_of(message),
    )


def _tools_hint(call: Call, error: str) -> str:
    """What to add where a server other than Anthropic's complains of tools: many a local model can use none."""
    if call.request.tools and not call.route.is_default_endpoint and "tool" in error.lower():
        return " (the request offers tools: a model that cannot use them cannot be an actor)"
    return ""


def text_of(content: Sequence[Any]) -> str:
    """What a message of the SDK says, its text blocks joined."""
    texts = [getattr(block, "text", None) for block in content if getattr(block, "type", "") == "text"]
    said: str = storable("".join(part for part in texts if isinstance(part, str)))
    return said


def usage_of(message: Any) -> Usage:
    """The tokens that a message of the SDK says it took."""
    usage = getattr(message, "usage", None)

    def count(name: str) -> int | None:
        value = getattr(usage, name, None)
        return value if type(value) is int and 0 <= value <= MOST_TOKENS else None

    return Usage(
        input_tokens=count("input_tokens"),
        output_tokens=count("output_tokens"),
        cache_read_tokens=count("cache_read_input_tokens"),
        cache_write_tokens=count("cache_creation_input_tokens"),
    )


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))
