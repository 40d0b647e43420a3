"""One request to Anthropic's Messages API, or to a server that speaks it, from waiting for a slot to the re-ask."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.kit.llm import endpoints
from agents.kit.llm.endpoints import Ability, Route
from agents.kit.llm.loop import SPEND_LIMIT, Background, Limiter, Trace, trace_of_call
from agents.kit.llm.requests import (
    Block,
    Exchange,
    LLMRequest,
    Reply,
    Status,
    Turn,
    Usage,
    call_part,
    read_answer,
    request_digest,
    result_part,
    short_line,
    tool_blocks,
    tool_part,
)
from agents.kit.text.storable import storable

MAX_BREAKPOINTS = 4  # the API refuses more
EXAMPLE_QUESTION = (
    "Show the form of the answer with an example: one JSON object and nothing else. Its content is invented."
)


def body_of(
    request: LLMRequest, *, model: str, structured: bool, example: bool, temperature: bool = False
) -> dict[str, Any]:
    """Return the body of a call as it is sent. Blank blocks and empty turns are left out, and all but the last cache breakpoints.

    Args:
        structured: Whether to send the schema as `output_config`; not for servers that refuse it.
        example: Whether to put the request's example before the last user turn, as an exchange that already happened.
            Small models follow such an example far better than a description; the conversation still ends with the
            user.
        temperature: Whether to send the request's temperature.
    """
    system = _texts(request.system)
    messages = []
    blocks = [*system]
    for turn in request.turns:
        message = _message(turn)
        if message["content"]:
            messages.append(message)
            blocks += message["content"]
    _limit_breakpoints(blocks)
    if example and request.example is not None:
        answer = json.dumps(request.example, ensure_ascii=False)
        messages[-1:-1] = [  # before the last one
            {"role": "user", "content": [{"type": "text", "text": EXAMPLE_QUESTION}]},
            {"role": "assistant", "content": [{"type": "text", "text": answer}]},
        ]
    body: dict[str, Any] = {"model": model, "max_tokens": request.max_tokens, "messages": messages}
    if system:
        body["system"] = system
    if request.tools:
        body["tools"] = [tool_part(tool) for tool in request.tools]
    if temperature and request.temperature is not None:
        body["temperature"] = request.temperature
    if structured and request.schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": dict(request.schema)}}
    if model.startswith("claude-haiku-5"):
        body["thinking"] = {"type": "disabled"}  # it thinks by default, and thoughts count against max_tokens
    return body


def with_example(request: LLMRequest) -> LLMRequest:
    """Return the request with its example as an exchange that already happened, for a second try of its own."""
    answer = json.dumps(request.example, ensure_ascii=False)
    question_turn = Turn("user", (Block(EXAMPLE_QUESTION),))
    answer_turn = Turn("assistant", (Block(answer),))
    *earlier, last = request.turns
    return replace(request, turns=(*earlier, question_turn, answer_turn, last), example=None, reask=False)


def _message(turn: Turn) -> dict[str, Any]:
    """Return a turn's blocks with results of tools first and calls of tools last, which is the only order that the API takes."""
    results = [result_part(result) for result in turn.tool_results]
    calls = [call_part(call) for call in turn.tool_calls]
    return {"role": turn.role, "content": [*results, *_texts(turn.blocks), *calls]}


def _texts(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Return the blocks that say something: the API refuses empty ones, and white space counts as empty."""
    return [_text(block) for block in blocks if block.text.strip()]


def _text(block: Block) -> dict[str, Any]:
    content: dict[str, Any] = {"type": "text", "text": storable(block.text)}  # a lone surrogate cannot be sent
    if block.cache:
        content["cache_control"] = {"type": "ephemeral"}
    return content


def _limit_breakpoints(blocks: list[dict[str, Any]]) -> None:
    """Keep the last breakpoints: each covers all text before it, so the later ones cover more."""
    marked = [block for block in blocks if "cache_control" in block]
    for block in marked[:-MAX_BREAKPOINTS]:
        del block["cache_control"]


logger = logging.getLogger(__name__)

MAX_DETAIL = 300
HINTS = {
    401: "check ANTHROPIC_API_KEY",
    402: "check the account's billing",
}


def status_of(http_status: int) -> Status:
    """Return what an HTTP error status means for the caller: wait (`rate_limited`), try later (`unavailable`), or change something."""
    if http_status == 429:
        return Status.RATE_LIMITED
    if http_status in (408, 409) or http_status >= 500:
        return Status.UNAVAILABLE
    return Status.REJECTED


def describe(problem: Exception, route: Route, trace: Trace) -> tuple[Status, str]:
    """Return the status and the error line of a call that raised; the key is blanked from it.

    What is none of the SDK's errors is logged with its traceback, unless the server answered 200: then the answer could not be read.
    """
    import anthropic

    if isinstance(problem, anthropic.APIStatusError):
        status, error = status_of(problem.status_code), _status_error(problem, route)
    elif isinstance(problem, anthropic.APITimeoutError):
        status, error = Status.TIMEOUT, f"{route.endpoint} did not answer in time"
    elif isinstance(problem, anthropic.APIConnectionError):
        cause = problem.__cause__ or problem
        status, error = (
            Status.UNAVAILABLE,
            f"no answer from {route.endpoint}: {type(cause).__name__}: {cause}".rstrip(": "),
        )
    elif trace.http_status == 200:
        status, error = (
            Status.REJECTED,
            f"{route.endpoint} answered 200 with something that is not JSON; is the base URL right?",
        )
    else:
        logger.error("a call of %s failed in an unforeseen way", route.model, exc_info=problem)
        status, error = Status.REJECTED, f"the call failed: {type(problem).__name__}: {problem}"
    could_be_a_word = len(route.key) <= 7  # such a key is no secret, and blanking it would spoil the sentence
    return status, short_line(error if could_be_a_word else error.replace(route.key, "***"))


def _status_error(problem: object, route: Route) -> str:
    """Return an error's code, the server's own words (300 characters) and, where it is known, what to do.

    For example ``HTTP 401: invalid x-api-key (check ANTHROPIC_API_KEY)``.
    """
    import anthropic

    assert isinstance(problem, anthropic.APIStatusError)  # noqa: S101
    words = problem.api_message or (problem.body if isinstance(problem.body, str) else "") or "no reason given"
    hint = HINTS.get(problem.status_code, "")
    if problem.status_code == 404:
        hint = _not_found(words, route)
    if problem.status_code == 429 and SPEND_LIMIT in (problem.error_code or ""):
        hint = "a spend limit is reached; retrying will not help before it is raised"
    return short_line(f"HTTP {problem.status_code}: {words}", MAX_DETAIL) + (f" ({hint})" if hint else "")


def _not_found(words: str, route: Route) -> str:
    """Return what a 404 means: the model, where the server speaks of one, else an address at which there is no such server."""
    if "model" in words.lower() or route.model in words:
        return "check the model's name"
    return f"this server has no /v1/messages: check the base URL {route.endpoint}, to which /v1/messages is added"


# Words by which the API blames the schema for a 400. Other servers word it as they like: there any 400 will do.
MOST_TOKENS = 2**31 - 1  # the largest integer of a ledger column; a server that says more is not believed
SCHEMA_WORDS = ("output_config", "output_format", "json_schema", "schema", "structured")


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
            provider="anthropic",
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
        call.sent_at, call.waited_ms = time.time(), _milliseconds(clock() - call.handed_at)
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

    The example is shown at once where it saved the last answers of this endpoint, see `Ability`. Anthropic's own API is not observed: it
    enforces schemas.
    """
    request, ability = call.request, endpoints.ability(call.route)
    can_show = request.schema is not None and request.example is not None
    first = await _send_and_read(call, ability, example=can_show and ability.example_first)
    exchanges = [first]
    if first.reply.status is Status.MALFORMED and request.reask and can_show:
        call.waited_ms = 0  # the wait is in the first exchange's row
        exchanges.append(await _send_and_read(call, ability, example=True))
    if request.schema is not None and not call.route.is_default_endpoint:
        ability.note([exchange.reply.status for exchange in exchanges])
    return exchanges


async def _send_and_read(call: Call, ability: Ability, *, example: bool) -> Exchange:
    """Send a request and read the answer; what goes wrong is a reply, too.

    A server that refuses (400) the temperature or the schema gets the request once more without it. The endpoint's ability remembers
    the refusal of a temperature at once, that of a schema only if the request then went through. All tries share one ledger row.
    """
    clock = asyncio.get_running_loop().time
    started_at, begun = time.time(), clock()
    trace = Trace(limiter=call.background.limiter(call.route.base_url), give_up_at=call.give_up_at)
    trace_of_call.set(trace)
    body = body_of(
        call.request,
        model=call.route.model,
        structured=ability.schema,
        example=example,
        temperature=ability.temperature and call.route.takes_temperature,
    )
    message, failure = await _send(call, body, trace)
    if failure and trace.http_status == 400 and "temperature" in body and "temperature" in failure[1].lower():
        ability.forgo("temperature", call.route, failure[1])
        del body["temperature"]
        message, failure = await _send(call, body, trace)
    if failure and trace.http_status == 400 and "output_config" in body and _may_blame_schema(call.route, failure[1]):
        without = {name: value for name, value in body.items() if name != "output_config"}
        again = await _send(call, without, trace)
        if trace.http_status == 200:  # it was the schema indeed
            ability.forgo("schema", call.route, failure[1])
        if trace.http_status != 400:  # a second 400 is about something else: the first one is reported
            body, (message, failure) = without, again
    content = getattr(message, "content", None)
    blocks = tool_blocks(content) if call.request.tools and isinstance(content, list) else ()
    reply = _failed_reply(call, *failure) if failure else _reply_from_message(call, message, blocks)
    seen: dict[str, Any] = {
        "latency_ms": _milliseconds(clock() - begun),
        "attempts": trace.attempts,
        "request_id": trace.request_id,
        "temperature_applied": "temperature" in body,
    }
    return Exchange(replace(reply, **seen), started_at, body, blocks)


async def _send(call: Call, body: Mapping[str, Any], trace: Trace) -> tuple[Any, tuple[Status, str] | None]:
    """Return a message of the SDK and None, or None and how it failed, as status and error line.

    Past the deadline that is a time-out, or what the last answer was, where it was an HTTP error that the SDK wanted to try again.
    """
    client = call.background.clients.get(base_url=call.route.base_url, key=call.route.key, retries=call.request.retries)
    known = {name: value for name, value in body.items() if name != "temperature"}
    others = {name: value for name, value in body.items() if name == "temperature"}  # the SDK's method does not take it
    remaining = max(call.give_up_at - asyncio.get_running_loop().time(), 0.001)
    try:
        async with asyncio.timeout_at(call.give_up_at):
            message = await client.messages.create(
                **known, extra_body=others, extra_headers=dict(call.request.headers), timeout=remaining
            )
            return message, None
    except TimeoutError:
        error = f"no answer within the deadline of {call.deadline:g} s"
        if trace.http_status < 400:
            return None, (Status.TIMEOUT, error)
        error += f"; the last one was HTTP {trace.http_status}, and the time left did not allow another try"
        return None, (status_of(trace.http_status), error)
    except Exception as problem:  # noqa: BLE001 (a failure is a value; unforeseen ones are logged with it)
        return None, describe(problem, call.route, trace)


def _may_blame_schema(route: Route, error: str) -> bool:
    """Return whether a 400 may be about the schema: by Anthropic's words for it, on another server always."""
    return not route.is_default_endpoint or any(word in error.lower() for word in SCHEMA_WORDS)


def _failed_reply(call: Call, status: Status, error: str) -> Reply:
    """Return a failed call; where a server other than Anthropic's complains of tools, with advice: many local models can use none."""
    if call.request.tools and not call.route.is_default_endpoint and "tool" in error.lower():
        error += " (the request offers tools: a model that cannot use them cannot be an actor)"
    return call.new_reply(status, error)


def _reply_from_message(call: Call, message: Any, blocks: Sequence[Mapping[str, Any]]) -> Reply:
    """Return the reply that a server's message is: `rejected` where it is no message of the API, else as `read_answer` judges it."""
    content = getattr(message, "content", None)
    if not isinstance(content, list):
        # Some servers answer 200 to what they refuse, and a wrong base URL can lead to any web page.
        complaint = getattr(message, "error", None) or "not a message of the Messages API; is the base URL right?"
        return _failed_reply(call, Status.REJECTED, f"{call.route.endpoint} answered 200 with: {complaint}")
    text = text_of(content)
    stop_reason = str(getattr(message, "stop_reason", None) or "")
    answer = read_answer(call.request, text=text, stop_reason=stop_reason, tool_blocks=blocks)
    return replace(
        call.new_reply(answer.status, answer.error),
        value=answer.value,
        text=text,
        tool_calls=answer.tool_calls,
        stop_reason=stop_reason,
        served_model=str(getattr(message, "model", None) or ""),
        usage=usage_of(message),
    )


def text_of(content: Sequence[Any]) -> str:
    """Return what a message of the SDK says, its text blocks joined."""
    texts = [getattr(block, "text", None) for block in content if getattr(block, "type", "") == "text"]
    text: str = storable("".join(text for text in texts if isinstance(text, str)))
    return text


def usage_of(message: Any) -> Usage:
    """Return the tokens that a message of the SDK says it took; None for a count that is missing, negative, or too large to store."""
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
