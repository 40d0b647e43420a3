"""The body of a Messages API request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agents.llm.extraction import storable
from agents.llm.requests import Block, LLMRequest, Turn
from agents.llm.tool_use import call_part, result_part, tool_part

MAX_BREAKPOINTS = 4  # the API refuses more
EXAMPLE_QUESTION = (
    "Show the form of the answer with an example: one JSON object and nothing else. Its content is invented."
)


def body_of(request: LLMRequest, *, model: str, structured: bool, example: bool) -> dict[str, Any]:
    """What is sent, key and headers aside.

    Args:
        request: The question.
        model: Model asked for.
        structured: Whether to send the schema as `output_config`; not for servers that refuse it.
        example: Whether to put the request's example before the last user turn, as an exchange that already happened.
            Small models follow such an example far better than a description; the conversation still ends with the
            user.
    """
    system = _texts(request.system)
    messages = [message for turn in request.turns if (message := _message(turn))["content"]]
    _limit_breakpoints([*system, *(part for message in messages for part in message["content"])])
    if example and request.example is not None:
        answer = json.dumps(request.example, ensure_ascii=False)
        messages[-1:-1] = [
            {"role": "user", "content": [{"type": "text", "text": EXAMPLE_QUESTION}]},
            {"role": "assistant", "content": [{"type": "text", "text": answer}]},
        ]
    body: dict[str, Any] = {"model": model, "max_tokens": request.max_tokens, "messages": messages}
    if system:
        body["system"] = system
    if request.tools:
        body["tools"] = [tool_part(tool) for tool in request.tools]
    if structured and request.schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": dict(request.schema)}}
    if model.startswith("claude-haiku-5"):
        body["thinking"] = {"type": "disabled"}  # it thinks unless told not to, and thoughts count against max_tokens
    return body


def with_example(request: LLMRequest) -> LLMRequest:
    """The request with its example as an exchange that already happened, for a second try of its own."""
    answer = json.dumps(request.example, ensure_ascii=False)
    shown = (Turn("user", (Block(EXAMPLE_QUESTION),)), Turn("assistant", (Block(answer),)))
    return replace(request, turns=(*request.turns[:-1], *shown, request.turns[-1]), example=None, reask=False)


def _message(turn: Turn) -> dict[str, Any]:
    """Results of tools first and calls of tools last, which is the only order that the API takes."""
    results, calls = map(result_part, turn.tool_results), map(call_part, turn.tool_calls)
    return {"role": turn.role, "content": [*results, *_texts(turn.blocks), *calls]}


def _texts(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """The blocks that say something: the API refuses empty ones, and white space counts as empty."""
    return [_text(block) for block in blocks if block.text.strip()]


def _text(block: Block) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "text", "text": storable(block.text)}  # a lone surrogate cannot be sent
    if block.cache:
        part["cache_control"] = {"type": "ephemeral"}
    return part


def _limit_breakpoints(parts: list[dict[str, Any]]) -> None:
    """Keep the last breakpoints: each covers all text before it, so the later ones cover more."""
    marked = [part for part in parts if "cache_control" in part]
    for part in marked[:-MAX_BREAKPOINTS]:
        del part["cache_control"]
