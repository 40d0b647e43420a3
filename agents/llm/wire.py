"""A message's way over the network: through the SDK, with its retries, headers and errors, but with JSON of our own on both sides.

Its typed way in and out costs a walk over every value of the request and a pydantic model per part of the answer: a fifth of its CPU,
for types that nobody here reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import anthropic

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)  # as the SDK writes it


class NotJson(ValueError):
    """The answer calls itself JSON and is none."""


async def post_message(client: anthropic.AsyncAnthropic, body: Mapping[str, Any], *, timeout: float) -> Any:
    """Create a message.

    Args:
        client: Who sends it.
        body: Plain data.
        timeout: Seconds for each read, as the SDK takes it.

    Returns:
        The message with the attributes that the SDK's has; an object without them where the answer is no message.

    Raises:
        NotJson: The answer cannot be read.
        anthropic.APIError: What the SDK raises.
    """
    import httpx2

    response = await client.post(
        "/v1/messages",
        cast_to=httpx2.Response,
        content=_ENCODER.encode(body).encode(),
        options={"timeout": timeout},
    )
    try:
        found = json.loads(response.content)
    except (ValueError, RecursionError) as problem:
        if response.headers.get("content-type", "").partition(";")[0].strip().lower().endswith("json"):
            raise NotJson(str(problem)) from problem
        return None
    return _message(found) if isinstance(found, dict) else None


def _message(found: dict[str, Any]) -> SimpleNamespace:
    message = SimpleNamespace(**found)
    content, usage = found.get("content"), found.get("usage")
    if isinstance(content, list):
        message.content = [SimpleNamespace(**part) if isinstance(part, dict) else part for part in content]
    if isinstance(usage, dict):
        message.usage = SimpleNamespace(**usage)
    return message
