"""The key under which an answer is stored and found again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from agents.llm.requests import LLMRequest

CHARACTERS_PER_TOKEN = 4


def request_digest(request: LLMRequest) -> str:
    """SHA-256 (hex) of what was asked: system, turns, schema, `max_tokens` and, where there are any, tools.

    Not of the model: a replay answers for whichever model was asked. The request's nonce counts as a constant, for it
    differs in every run, and so do the ids of tool calls: which call a result answers counts as the call's number.
    Where cache breakpoints stand does not change the question and does not count.
    """
    question: dict[str, Any] = {
        "system": [block.text for block in request.system],
        "turns": _turns(request),
        "schema": request.schema,
        "max_tokens": request.max_tokens,
    }
    if request.tools:
        question["tools"] = [[tool.name, tool.description, dict(tool.input_schema)] for tool in request.tools]
    canonical = json.dumps(question, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    if request.nonce:
        canonical = canonical.replace(json.dumps(request.nonce, ensure_ascii=False)[1:-1], "NONCE")
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _turns(request: LLMRequest) -> list[list[Any]]:
    """Role and texts of each turn; then its tool calls and results, if it has any."""
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


def estimate_tokens(request: LLMRequest) -> int:
    """Input tokens of a request, **estimated** as a quarter of its characters; for dry runs only.

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
    return -(-characters // CHARACTERS_PER_TOKEN)
