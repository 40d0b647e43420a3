"""From an answer to a status, a value and tool calls; one reading for every provider."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from pydantic import ValidationError

from agents.llm.requests import InvalidAnswer, LLMRequest, Reply, Status, Tool, ToolCall, ToolResult

# A list of objects hides which of them is meant, so it is refused like two objects. A brace that opens no object is
# harmless only where it plainly is none, as in "{name}".
_OPENING = re.compile(r"\[\s*\{|\{")
_PLACEHOLDER = re.compile(r"\{\s*[^\s{}\[\]\"':][^{}\[\]\"':]*\}")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


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
    one: dict[str, Any] | None = None
    position = 0
    while opening := _OPENING.search(text, position):
        start = opening.start()
        if opening.group() != "{":
            raise NotOneObject("the answer holds a list of objects, not one JSON object")
        if placeholder := _PLACEHOLDER.match(text, start):
            position = placeholder.end()
            continue
        value, position = _decode(text, start)
        if one is not None:
            raise NotOneObject("the answer holds more than one JSON object")
        one = value
    if one is None:
        raise NotOneObject("the answer holds no JSON object" if text.strip() else "the answer is empty")
    try:
        return {storable(key): storable(item) for key, item in one.items()}
    except RecursionError:
        raise NotOneObject("the answer is nested too deeply") from None


def _decode(text: str, start: int) -> tuple[dict[str, Any], int]:
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


def storable(value: Any) -> Any:
    """`value` with NUL and lone surrogates in its strings replaced: no database takes them, and a model can write them."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value) if _UNSTORABLE.search(value) else value
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value


LONGEST_NAME = 64


def tool_part(tool: Tool) -> dict[str, Any]:
    """The entry of a request's `tools`."""
    return {
        "name": tool.name,
        "description": storable(tool.description),
        "input_schema": storable(dict(tool.input_schema)),
    }


def call_part(call: ToolCall) -> dict[str, Any]:
    """The block of an assistant turn in which the model asked for a tool."""
    return {"type": "tool_use", "id": storable(call.id), "name": call.name, "input": storable(dict(call.input))}


def result_part(result: ToolResult) -> dict[str, Any]:
    """The block of a user turn that answers a tool call."""
    part: dict[str, Any] = {"type": "tool_result", "tool_use_id": storable(result.call_id)}
    if result.text.strip():
        part["content"] = storable(result.text)
    if result.is_error:
        part["is_error"] = True
    return part


def tool_blocks(content: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """The tool calls in the content of an answer as the server wrote them, fit to be stored as JSON."""
    return tuple(
        {"id": _kept(block, "id"), "name": _kept(block, "name"), "input": _kept(block, "input")}
        for block in content
        if getattr(block, "type", "") == "tool_use"
    )


def _kept(block: Any, name: str) -> Any:
    """A field of a block; as text where it is nothing that JSON or a database can hold, such as NaN."""
    value = getattr(block, name, None)
    try:
        json.dumps(value, allow_nan=False)
        return storable(value)
    except (TypeError, ValueError, RecursionError):
        return f"unreadable {type(value).__name__}"


def read_tool_calls(request: LLMRequest, blocks: Sequence[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    """The tool calls of an answer.

    Some servers write the input as JSON text, or no input for a tool that needs none, or no id, or one that is in use:
    that is corrected. An id is made from the call's place in the conversation, so that a replay makes the same one.

    Raises:
        InvalidAnswer: A call names no tool, or its input is not an object.
    """
    in_use = {call.id for turn in request.turns for call in turn.tool_calls}
    made = (name for number in range(1, 10**9) if (name := f"call_{number}") not in in_use)
    return tuple(_read(block, in_use, made) for block in blocks)


def _read(block: Mapping[str, Any], in_use: set[str], made: Iterator[str]) -> ToolCall:
    name, id_ = block.get("name"), block.get("id")
    if not isinstance(name, str) or not 0 < len(name.strip()) <= LONGEST_NAME:
        raise InvalidAnswer(f"a tool call names {str(name)[:LONGEST_NAME]!r}, which is no name of a tool")
    if not isinstance(id_, str) or not id_ or id_ in in_use:
        id_ = next(made)
    in_use.add(id_)
    return ToolCall(id_, storable(name.strip()), _input_of(name, block.get("input")))


def _input_of(name: str, value: Any) -> Mapping[str, Any]:
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


logger = logging.getLogger(__name__)

MAX_ERROR = 500
CUT_SHORT = ("max_tokens", "model_context_window_exceeded")


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
    try:
        calls = read_tool_calls(request, blocks)
    except InvalidAnswer as problem:
        return Answer(Status.MALFORMED, error=one_line(str(problem)))
    answer = parsed(request, text) if text.strip() else Answer(Status.OK)
    return replace(answer, tool_calls=calls) if answer.status is Status.OK else answer


def parsed(request: LLMRequest, raw: Any) -> Answer:
    """Apply the request's `parse`. It runs in the loop thread: it must be pure, quick and without database access."""
    if request.parse is None:
        return Answer(Status.OK, None if isinstance(raw, str) else raw)
    try:
        return Answer(Status.OK, request.parse(raw))
    except ValidationError as problem:
        return Answer(Status.MALFORMED, error=describe_validation(problem))
    except InvalidAnswer as problem:
        return Answer(Status.MALFORMED, error=one_line(str(problem)))
    except Exception as problem:
        logger.exception("parse of task %s failed on an answer", request.task)
        return Answer(
            Status.MALFORMED, error=one_line(f"reading the answer failed: {type(problem).__name__}: {problem}")
        )


def describe_validation(problem: ValidationError) -> str:
    """The first complaint of pydantic in one line: where, what, and the value when it is short."""
    errors = problem.errors(include_url=False, include_context=False)
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"]) or "answer"
    value = repr(first["input"])
    got = f", got {value}" if len(value) <= 40 else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return one_line(f"{place}: {first['msg']}{got}{more}")


def one_line(text: str, limit: int = MAX_ERROR) -> str:
    """Text for people in one line of at most `limit` characters, fit for every database."""
    line = " ".join(storable(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
