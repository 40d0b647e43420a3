"""The key under which an answer is stored and found again."""

from __future__ import annotations

import hashlib
import json

from agents.llm.requests import LLMRequest

CHARACTERS_PER_TOKEN = 4


def request_digest(request: LLMRequest) -> str:
    """SHA-256 (hex) of what was asked: system, turns, schema and `max_tokens`.

    Not of the model: a replay answers for whichever model was asked. The request's nonce counts as a constant, for it
    differs in every run. Where cache breakpoints stand does not change the question and does not count.
    """
    question = {
        "system": [block.text for block in request.system],
        "turns": [[turn.role, [block.text for block in turn.blocks]] for turn in request.turns],
        "schema": request.schema,
        "max_tokens": request.max_tokens,
    }
    canonical = json.dumps(question, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    if request.nonce:
        canonical = canonical.replace(json.dumps(request.nonce, ensure_ascii=False)[1:-1], "NONCE")
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def estimate_tokens(request: LLMRequest) -> int:
    """Input tokens of a request, **estimated** as a quarter of its characters; for dry runs only.

    Off by tens of percent: newer tokenizers count about 30 % more for the same English text, other scripts several
    times more. Real counts come from the server and stand in the ledger.
    """
    blocks = [*request.system, *(block for turn in request.turns for block in turn.blocks)]
    characters = sum(len(block.text) for block in blocks)
    if request.schema is not None:
        characters += len(json.dumps(request.schema))
    return -(-characters // CHARACTERS_PER_TOKEN)
