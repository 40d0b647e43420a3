"""Tools on the wire: what the model may use, what it wants to use, what came of it. One reading for every provider."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.llm.extraction import NotOneObject, extract_object, storable
from agents.llm.requests import InvalidAnswer, LLMRequest, Tool, ToolCall, ToolResult

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

    Some servers write the input as JSON text, or no input for a tool that needs none, or no id, or one that is taken:
    that is put right. An id is made from the call's place in the conversation, so that a replay makes the same one.

    Raises:
        InvalidAnswer: A call names no tool, or its input is not an object.
    """
    taken = {call.id for turn in request.turns for call in turn.tool_calls}
    made = (name for number in range(1, 10**9) if (name := f"call_{number}") not in taken)
    return tuple(_read(block, taken, made) for block in blocks)


def _read(block: Mapping[str, Any], taken: set[str], made: Iterator[str]) -> ToolCall:
    name, id_ = block.get("name"), block.get("id")
    if not isinstance(name, str) or not 0 < len(name.strip()) <= LONGEST_NAME:
        raise InvalidAnswer(f"a tool call names {str(name)[:LONGEST_NAME]!r}, which is no name of a tool")
    if not isinstance(id_, str) or not id_ or id_ in taken:
        id_ = next(made)
    taken.add(id_)
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
