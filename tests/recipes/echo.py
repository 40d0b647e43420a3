"""A provider that answers ``echo:TEXT`` with the text."""

from __future__ import annotations

from typing import Any

from agents.kit.llm.requests import Answer, LLMRequest, read_answer


def answer(request: LLMRequest, model: str, digest: str) -> tuple[Answer, dict[str, Any]]:
    """Answer with what stands after the colon."""
    text = model.partition(":")[2]
    stored = {"text": text, "stop_reason": "end_turn", "served_model": model}
    return read_answer(request, text=text, stop_reason="end_turn", tool_blocks=[]), stored
