"""From an answer to a status, a value and tool calls; one reading for every provider."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from agents.llm.extraction import NotOneObject, extract_object, storable
from agents.llm.requests import InvalidAnswer, LLMRequest, Reply, Status, ToolCall
from agents.llm.tool_use import read_tool_calls

logger = logging.getLogger(__name__)

MAX_ERROR = 500
CUT_SHORT = ("max_tokens", "model_context_window_exceeded")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call as the runtime sees it.

    Attributes:
        reply: How it ended.
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

    A cut answer is `truncated` even when its text happens to parse, for nobody knows what is missing; a tool call in it
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
        found = extract_object(text)
    except NotOneObject as problem:
        return Answer(Status.MALFORMED, error=str(problem))
    return parsed(request, found)


def _with_tool_calls(request: LLMRequest, text: str, blocks: Sequence[Mapping[str, Any]]) -> Answer:
    try:
        calls = read_tool_calls(request, blocks)
    except InvalidAnswer as problem:
        return Answer(Status.MALFORMED, error=one_line(str(problem)))
    found = parsed(request, text) if text.strip() else Answer(Status.OK)
    return replace(found, tool_calls=calls) if found.status is Status.OK else found


def parsed(request: LLMRequest, found: Any) -> Answer:
    """Apply the request's `parse`. It runs in the loop thread: it must be pure, quick and without database access."""
    if request.parse is None:
        return Answer(Status.OK, None if isinstance(found, str) else found)
    try:
        return Answer(Status.OK, request.parse(found))
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
