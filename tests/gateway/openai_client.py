"""Asks a gateway with OpenAI's own SDK: run with LiteLLM's Python, which has it.

Reads ``{"base_url", "key", "at_once", "requests": [fields of chat.completions.create]}`` from standard input and writes one
line of JSON for each request, in their order: what each choice came to, when it was asked (`time.perf_counter`) and when its
pieces arrived, how it ended. A request may have ``headers``, and ``leave_after``: so many pieces after which the client goes away.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from openai import AsyncOpenAI, OpenAIError


async def ask(client: Any, request: dict[str, Any], turn: asyncio.Semaphore) -> dict[str, Any]:
    """Return what a client saw of one reply; times are seconds since the request."""
    headers = request.pop("headers", None)
    leave_after = request.pop("leave_after", None)
    seen: dict[str, Any] = {"texts": {}, "pieces": [], "finish": {}, "tool_calls": [], "error": ""}
    async with turn:
        begun = seen["begun"] = time.perf_counter()
        try:
            answer = await client.chat.completions.create(**request, extra_headers=headers)
            if request.get("stream"):
                async for chunk in answer:
                    note_chunk(seen, chunk, time.perf_counter() - begun)
                    if leave_after is not None and len(seen["pieces"]) >= leave_after:
                        await answer.close()
                        break
            else:
                note_whole(seen, answer, time.perf_counter() - begun)
        except OpenAIError as error:
            seen["error"] = f"{type(error).__name__}: {error}"
        seen["seconds"] = time.perf_counter() - begun
    return seen


def note_chunk(seen: dict[str, Any], chunk: Any, seconds: float) -> None:
    if chunk.usage:
        seen["usage"] = chunk.usage.model_dump()
    for choice in chunk.choices:
        index = str(choice.index)
        if choice.delta.content:
            seen["texts"][index] = seen["texts"].get(index, "") + choice.delta.content
            seen["pieces"].append([seconds, index, choice.delta.content])
        for call in choice.delta.tool_calls or []:
            seen["tool_calls"].append(call.function.name)
        if choice.finish_reason:
            seen["finish"][index] = choice.finish_reason


def note_whole(seen: dict[str, Any], answer: Any, seconds: float) -> None:
    for choice in answer.choices:
        seen["texts"][str(choice.index)] = choice.message.content
        seen["pieces"].append([seconds, str(choice.index), choice.message.content])
        seen["finish"][str(choice.index)] = choice.finish_reason
        for call in choice.message.tool_calls or []:
            seen["tool_calls"].append(call.function.name)


async def main() -> None:
    order = json.load(sys.stdin)
    turn = asyncio.Semaphore(order["at_once"])
    client = AsyncOpenAI(base_url=order["base_url"], api_key=order["key"], max_retries=0, timeout=120)
    replies = await asyncio.gather(*(ask(client, request, turn) for request in order["requests"]))
    for reply in replies:
        sys.stdout.write(json.dumps(reply) + "\n")


asyncio.run(main())
