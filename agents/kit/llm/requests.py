"""A question to a model and what comes back: the values, frozen and without Django, and the one reading of an answer for every provider."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, NoReturn

from pydantic import ValidationError

from agents.kit.text.storable import storable

logger = logging.getLogger(__name__)

MAX_ERROR = 500
LONGEST_NAME = 64
CHARACTERS_PER_TOKEN = 4
UNKNOWN_END = "unknown:"  # stands before a server's reason to end an answer where it is none that is known
CUT_SHORT = ("max_tokens", "model_context_window_exceeded")

Role = Literal["judge", "actor"]
ROLES: tuple[Role, ...] = ("judge", "actor")


class Status(StrEnum):
    """How a call ended. A failure is a value: nothing above `agents.kit.llm` catches the SDK's exceptions."""

    OK = "ok"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    REJECTED = "rejected"


# What asking again cannot help: a key that is refused, a model or an address that does not exist.
_MISCONFIGURED = re.compile(
    r"\brejected: (HTTP 40[134]:|HTTP 400:.*(\bmodel\b.*(not|invalid|unknown|exist)|(invalid|unknown) model)|.*is the base URL right)",
    re.IGNORECASE,
)


def is_misconfigured(failure: str) -> bool:
    """Return whether a failed call, as ``STATUS: ERROR``, was refused for its key, model or address, so that the settings are wrong."""
    return _MISCONFIGURED.search(failure) is not None


class InvalidAnswer(ValueError):
    """Raised by a request's `parse` when the JSON object is not what was asked for. Its text says what and why."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of prompt text. `cache` sets a prompt-cache breakpoint after it: everything up to here is static."""

    text: str
    cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function the model may ask for. `input_schema` is the JSON schema (type object) of its input."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish to use a tool. `input` is what it wrote, not yet validated; `id` is unique within a conversation."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered, as the model reads it."""

    call_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the conversation sent to the model.

    `tool_results` stand first in a user turn, before its blocks; `tool_calls` last in an assistant turn.
    """

    role: Literal["user", "assistant"]
    blocks: tuple[Block, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a call is for: the columns of its ledger row. Ids, never ORM objects, so that the value may cross threads.

    `item` tells equal questions of one piece of work apart, e.g. repeated judgements; it is no column.
    """

    purpose: str
    mechanism: str = ""
    dimension: str = ""
    agent_id: int | None = None
    run_id: int | None = None
    work_id: str = ""
    item: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMRequest:
    """One question to a model.

    Attributes:
        role: Whose model and endpoint answers, ``judge`` or ``actor``.
        task: Name of the offline responder (`offline_responders` of an app), e.g. ``score``.
        turns: The conversation; ends with a user turn.
        schema: JSON schema of the answer; None asks for free text.
        parse: Turns the decoded JSON object into the caller's value; raises `InvalidAnswer`. None keeps the object.
        example: A valid answer, shown as an earlier assistant turn when the first one was malformed.
        reask: Whether a malformed answer is asked again once (offline evaluation; never in the gate).
        max_tokens: Most tokens of the answer.
        retries: Retries after 408, 409, 429, >= 500 and connection errors (gate 0).
        gate: Whether the call may use the slots reserved for the gate.
        model: Overrides the role's model.
        nonce: Random text used in this prompt's fences; replaced by a constant in the request's digest, so that a replay finds it.
        tools: What the model may use; with tools an answer may be text, tool calls or both, and `schema` stays None.
        temperature: 0 to 2, where one is wished for; sent only to servers known to take it.
        facts: Structured input for the offline provider; never sent over the network.
        headers: Further HTTP headers of the call, for a gateway on the way; never in the request's digest, never stored or logged.
            A batch does not send them.
        span: The Sentry span that the call belongs under; None for the one that is current when it is settled.
    """

    role: Role
    task: str
    system: tuple[Block, ...]
    turns: tuple[Turn, ...]
    label: Label
    schema: Mapping[str, Any] | None = None
    parse: Callable[[Any], Any] | None = None
    example: Mapping[str, Any] | None = None
    reask: bool = False
    max_tokens: int = 2048
    retries: int = 0
    gate: bool = False
    model: str = ""
    nonce: str = ""
    tools: tuple[Tool, ...] = ()
    temperature: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    span: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call; None where the server did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer, or the reason why there is none.

    Attributes:
        status: `Status.OK` exactly when `value` (structured) or `text` (free) can be used.
        value: What `parse` returned, or the decoded object.
        error: One line for people when the status is not ``ok``.
        provider: The name of who answered, such as ``offline``.
        endpoint: Base URL without credentials; empty for offline and replay.
        model: The model asked for. `served_model`: the one the server says it used.
        latency_ms: Wall time of this call without waiting for a slot. `waited_ms`: waiting for a slot.
        temperature_applied: Whether the request's temperature was sent.
        call_id: Primary key of the ledger row; None only when writing it failed.
        batch: Whether it was answered in a batch, at the batch price.
        earlier: Replies of this request before a re-ask; each has its own ledger row.
    """

    status: Status
    value: Any = None
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    error: str = ""
    stop_reason: str = ""
    provider: str = ""
    endpoint: str = ""
    model: str = ""
    served_model: str = ""
    usage: Usage = Usage()
    request_id: str = ""
    request_digest: str = ""
    latency_ms: int = 0
    waited_ms: int = 0
    attempts: int = 1
    temperature_applied: bool = False
    call_id: int | None = None
    batch: bool = False
    earlier: tuple[Reply, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status is Status.OK


def request_digest(request: LLMRequest) -> str:
    """Return the SHA-256 (hex) of what was asked: system, turns, schema, `max_tokens` and, where there are any, tools.

    Of the temperature where one is set. Not of the model: a replay answers for whichever model was asked. The
    request's nonce counts as a constant, for it differs in every run, and so do the ids of tool calls: which
    call a result answers counts as the call's number. Where cache breakpoints stand does not change the
    question and does not count.
    """
    question: dict[str, Any] = {
        "system": [block.text for block in request.system],
        "turns": _turns_without_ids(request),
        "schema": request.schema,
        "max_tokens": request.max_tokens,
    }
    if request.temperature is not None:
        question["temperature"] = request.temperature
    if request.tools:
        question["tools"] = [[tool.name, tool.description, dict(tool.input_schema)] for tool in request.tools]
    canonical = json.dumps(question, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    if request.nonce:
        nonce_in_json = json.dumps(request.nonce, ensure_ascii=False)[1:-1]  # escaped, without the quotes
        canonical = canonical.replace(nonce_in_json, "NONCE")
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _turns_without_ids(request: LLMRequest) -> list[list[Any]]:
    """Return the role and texts of each turn, with its tool calls and results, if it has any.

    The id of a call is replaced by the call's number in the conversation; a result of a call that is not in it has number 0.
    """
    numbers: dict[str, int] = {}
    turns: list[list[Any]] = []
    for turn in request.turns:
        entry: list[Any] = [turn.role, [block.text for block in turn.blocks]]
        for call in turn.tool_calls:
            numbers.setdefault(call.id, len(numbers) + 1)
        if turn.tool_calls or turn.tool_results:
            entry.append([[numbers[call.id], call.name, dict(call.input)] for call in turn.tool_calls])
            entry.append([[numbers.get(done.call_id, 0), done.text, done.is_error] for done in turn.tool_results])
        turns.append(entry)
    return turns


EXAMPLE_QUESTION = (
    "Show the form of the answer with an example: one JSON object and nothing else. Its content is invented."
)


def with_example(request: LLMRequest) -> LLMRequest:
    """Return the request with its example before the last turn, as an exchange that already happened.

    Small models follow such an example far better than a description; the conversation still ends with the user.
    """
    answer = json.dumps(request.example, ensure_ascii=False)
    question_turn = Turn("user", (Block(EXAMPLE_QUESTION),))
    answer_turn = Turn("assistant", (Block(answer),))
    *earlier, last = request.turns
    return replace(request, turns=(*earlier, question_turn, answer_turn, last), example=None, reask=False)


def estimate_tokens(request: LLMRequest) -> int:
    """Return the input tokens of a request, **estimated** as a quarter of its characters; for dry runs only.

    Off by tens of percent: newer tokenizers count about 30 % more for the same English text, other scripts several
    times more. Real counts come from the server and stand in the ledger.
    """
    blocks = [*request.system, *(block for turn in request.turns for block in turn.blocks)]
    characters = sum(len(block.text) for block in blocks)
    for turn in request.turns:
        characters += sum(len(call.name) + len(json.dumps(dict(call.input))) for call in turn.tool_calls)
        characters += sum(len(result.text) for result in turn.tool_results)
    if request.schema is not None:
        characters += len(json.dumps(request.schema))
    for tool in request.tools:
        characters += len(tool.name) + len(tool.description) + len(json.dumps(dict(tool.input_schema)))
    return -(-characters // CHARACTERS_PER_TOKEN)  # rounded up


# A list of objects hides which of them is meant, so it is refused like two objects. A brace that opens no object is
# harmless only where it plainly is none, as in "{name}".
_OPENING = re.compile(r"\[\s*\{|\{")
_PLACEHOLDER = re.compile(r"\{\s*[^\s{}\[\]\"':][^{}\[\]\"':]*\}")


class NotOneObject(ValueError):
    """The text does not hold exactly one JSON object. Its message says what it holds instead."""


class _DuplicateKey(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKey(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice in one object")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


# strict=False lets line breaks stand inside strings: small models write them, and they leave no doubt about the value.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite, strict=False)


def extract_object(text: str) -> dict[str, Any]:
    """Return the one top-level JSON object in `text`, which may stand alone, in a fence or in prose.

    Raises:
        NotOneObject: There is no object, more than one, a list of objects, something that looks like an object but is
            not JSON (Python literals, NaN, a cut end), or an object that has a key twice.
    """
    found_object: dict[str, Any] | None = None
    position = 0
    while opening := _OPENING.search(text, position):
        start = opening.start()
        if opening.group() != "{":
            raise NotOneObject("the answer holds a list of objects, not one JSON object")
        if placeholder := _PLACEHOLDER.match(text, start):  # such as "{name}"
            position = placeholder.end()
            continue
        value, position = _decode(text, start)
        if found_object is not None:
            raise NotOneObject("the answer holds more than one JSON object")
        found_object = value
    if found_object is None:
        raise NotOneObject("the answer holds no JSON object" if text.strip() else "the answer is empty")
    try:
        return {storable(key): storable(item) for key, item in found_object.items()}
    except RecursionError:
        raise NotOneObject("the answer is nested too deeply") from None


def _decode(text: str, start: int) -> tuple[dict[str, Any], int]:
    """Return the JSON object that begins at `start`, and where it ends.

    Raises:
        NotOneObject: There is none; every problem of the decoder as a sentence about the answer.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except _DuplicateKey as problem:
        raise NotOneObject(str(problem)) from None
    except json.JSONDecodeError as problem:
        raise NotOneObject(f"the answer holds something like an object that is not JSON: {problem.msg}") from None
    except RecursionError:
        raise NotOneObject("the answer is nested too deeply") from None
    except ValueError as problem:  # NaN, 1e999, an integer of thousands of digits
        raise NotOneObject(f"the answer is not JSON: {problem}") from None
    return value, end


def tool_block(id_: object, name: object, input_: object) -> dict[str, Any]:
    """Return a tool call as the model wrote it, unchecked, but fit to be stored as JSON."""
    return {"id": _storable_or_type(id_), "name": _storable_or_type(name), "input": _storable_or_type(input_)}


def _storable_or_type(value: object) -> Any:
    """Return a value as it can be stored; as text where it is nothing that JSON or a database can hold, such as NaN."""
    try:
        json.dumps(value, allow_nan=False)
        return storable(value)
    except (TypeError, ValueError, RecursionError):
        return f"unreadable {type(value).__name__}"


def are_objects(value: Any) -> bool:
    """Return whether this is a list of JSON objects, as stored tool calls are."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def read_tool_calls(request: LLMRequest, blocks: Sequence[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    """Return the tool calls of an answer.

    Some servers write the input as JSON text, or no input for a tool that needs none, or no id, or one that is in use:
    that is corrected. An id is made from the call's place in the conversation, so that a replay makes the same one.

    Raises:
        InvalidAnswer: A call names no tool, or its input is not an object.
    """
    in_use = {call.id for turn in request.turns for call in turn.tool_calls}
    # Looked for one by one: an id that a block before has brought along is in use, too.
    new_ids = (name for number in range(1, 10**9) if (name := f"call_{number}") not in in_use)
    return tuple(_read_tool_call(block, in_use, new_ids) for block in blocks)


def _read_tool_call(block: Mapping[str, Any], in_use: set[str], new_ids: Iterator[str]) -> ToolCall:
    """Return one tool call, with the next of the `new_ids` where its own is missing or in use, and add its id to those in use.

    Raises:
        InvalidAnswer: It names no tool, or its input is not an object.
    """
    name, id_ = block.get("name"), block.get("id")
    if not isinstance(name, str) or not 0 < len(name.strip()) <= LONGEST_NAME:
        raise InvalidAnswer(f"a tool call names {str(name)[:LONGEST_NAME]!r}, which is no name of a tool")
    if not isinstance(id_, str) or not id_ or id_ in in_use:
        id_ = next(new_ids)
    in_use.add(id_)
    return ToolCall(id_, storable(name.strip()), _input_of(name, block.get("input")))


def _input_of(name: str, value: Any) -> Mapping[str, Any]:
    """Return the input of a tool call as an object: none or blank is empty, JSON text is decoded.

    Raises:
        InvalidAnswer: It is something else, or nested too deeply.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}
    if isinstance(value, str):
        try:
            return extract_object(value)
        except NotOneObject as problem:
            raise InvalidAnswer(f"the input of the tool {name} is not a JSON object: {problem}") from None
    if not isinstance(value, Mapping):
        raise InvalidAnswer(f"the input of the tool {name} must be an object, not {type(value).__name__}")
    try:
        return {storable(key): storable(item) for key, item in value.items()}
    except RecursionError:
        raise InvalidAnswer(f"the input of the tool {name} is nested too deeply") from None


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call as the runtime sees it.

    Attributes:
        started_at: When, in seconds since the epoch.
        body: What was sent over the network, without the key; None when nothing was.
        tool_blocks: The tool calls as the model wrote them, also where the answer could not be used.
    """

    reply: Reply
    started_at: float
    body: Mapping[str, Any] | None = None
    tool_blocks: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer amounts to."""

    status: Status
    value: Any = None
    error: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


def read_answer(
    request: LLMRequest, *, text: str, stop_reason: str, tool_blocks: Sequence[Mapping[str, Any]] = ()
) -> Answer:
    """Judge what a model gave, stop reason first.

    A cut answer is `truncated` even when its text happens to parse, because a part is missing; a tool call in it
    must not be carried out. Without a schema the text is the answer, and an empty one is `malformed` unless it comes
    with tool calls; `parse`, where given, then receives the text. Tool calls count only where the request has tools.
    """
    if stop_reason == "refusal":
        return Answer(Status.REFUSED, error="the model refused to answer")
    if stop_reason in CUT_SHORT:
        limit = f"max_tokens={request.max_tokens}" if stop_reason == "max_tokens" else "the model's context window"
        return Answer(Status.TRUNCATED, error=f"the answer was cut at {limit}")
    if stop_reason.startswith(UNKNOWN_END):
        reason = stop_reason.removeprefix(UNKNOWN_END)
        return Answer(Status.TRUNCATED, error=f"the answer may be cut: the server ended it with {reason!r}")
    if request.tools and tool_blocks:
        return _with_tool_calls(request, text, tool_blocks)
    if request.schema is None:
        return parsed(request, text) if text.strip() else Answer(Status.MALFORMED, error="the answer is empty")
    try:
        value = extract_object(text)
    except NotOneObject as problem:
        return Answer(Status.MALFORMED, error=str(problem))
    return parsed(request, value)


def _with_tool_calls(request: LLMRequest, text: str, blocks: Sequence[Mapping[str, Any]]) -> Answer:
    """Return an answer with tool calls, and the text beside them, if any, as value; `malformed`, without calls, where either is wrong."""
    try:
        calls = read_tool_calls(request, blocks)
    except InvalidAnswer as problem:
        return Answer(Status.MALFORMED, error=short_line(str(problem)))
    answer = parsed(request, text) if text.strip() else Answer(Status.OK)
    return replace(answer, tool_calls=calls) if answer.status is Status.OK else answer


def parsed(request: LLMRequest, raw: Any) -> Answer:
    """Apply the request's `parse`; `malformed` where it raises. Without one an object is the value, and a text has no value.

    It runs in the loop thread: `parse` must be pure, quick and without database access.
    """
    if request.parse is None:
        return Answer(Status.OK, None if isinstance(raw, str) else raw)
    try:
        return Answer(Status.OK, request.parse(raw))
    except ValidationError as problem:
        return Answer(Status.MALFORMED, error=describe_validation(problem))
    except InvalidAnswer as problem:
        return Answer(Status.MALFORMED, error=short_line(str(problem)))
    except Exception as problem:
        logger.exception("parse of task %s failed on an answer", request.task)
        return Answer(
            Status.MALFORMED, error=short_line(f"reading the answer failed: {type(problem).__name__}: {problem}")
        )


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object with exactly these properties, as structured output wants it."""
    required = list(properties)
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


def describe_validation(problem: ValidationError) -> str:
    """Return the first complaint of pydantic in one line: where, what, the value when it is short, and how many more there are.

    For example ``score: Input should be less than or equal to 5, got 7 (and 1 more)``.
    """
    errors = problem.errors(include_url=False, include_context=False)
    first = errors[0]
    field = ".".join(map(str, first["loc"])) or "answer"
    value = repr(first["input"])
    got = f", got {value}" if len(value) <= 40 else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return short_line(f"{field}: {first['msg']}{got}{more}")


def short_line(text: str, limit: int = MAX_ERROR) -> str:
    """Return a text for people in one line of at most `limit` characters, fit for every database."""
    line = " ".join(storable(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
