"""An imitation of the API's prompt cache, so that tests and benchmarks can count what breakpoints are worth.

It knows what the documentation says: a prefix is written at each breakpoint and read at the longest breakpoint known, prefixes shorter
than a minimum are not kept, at most four breakpoints are allowed, and what one call writes another can read once the first is answered.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

CHARACTERS_PER_TOKEN = 4


class PromptCache:
    """Usage figures for request bodies, in the order in which they come.

    Args:
        minimum: Tokens a prefix must have to be kept.
        delay: Seconds until what a call writes can be read.
    """

    def __init__(self, *, minimum: int = 0, delay: float = 0.0) -> None:
        self.minimum, self.delay = minimum, delay
        self._readable: dict[str, float] = {}

    def usage(self, body: dict[str, Any], *, output_tokens: int = 10) -> dict[str, int]:
        """What the API would bill for this request."""
        marks, total = _breakpoints(body)
        assert len(marks) <= 4, f"{len(marks)} breakpoints: the API allows 4"
        kept = [(digest, tokens) for digest, tokens in marks if tokens >= self.minimum]
        now = time.monotonic()
        read = max((tokens for digest, tokens in kept if self._readable.get(digest, now + 1) <= now), default=0)
        written = max((tokens for _, tokens in kept), default=0)
        for digest, _ in kept:
            self._readable.setdefault(digest, now + self.delay)
        return {
            "input_tokens": total - max(read, written),
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": max(0, written - read),
            "output_tokens": output_tokens,
        }


def _breakpoints(body: dict[str, Any]) -> tuple[list[tuple[str, int]], int]:
    """Digest and tokens of the prefix up to each breakpoint, and the tokens of everything."""
    blocks = [*body.get("tools", []), *body.get("system", [])]
    blocks += [{**part, "role": message["role"]} for message in body["messages"] for part in message["content"]]
    digest, characters, marks = hashlib.sha256(body["model"].encode()), 0, []
    for block in blocks:
        plain = {name: value for name, value in block.items() if name != "cache_control"}
        digest.update(json.dumps(plain, sort_keys=True).encode())
        characters += len(block.get("text", ""))
        if "cache_control" in block:
            marks.append((digest.hexdigest(), characters // CHARACTERS_PER_TOKEN))
    return marks, characters // CHARACTERS_PER_TOKEN
