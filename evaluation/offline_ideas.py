"""Ideas for the offline provider: only those that somebody marked as one. It does not read, and says so by counting nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agents.llm.requests import LLMRequest
from agents.text.tokens import tokenize

ALIKE = 0.5  # share of the telling words two ideas must have in common to be taken for the same

_POINT = re.compile(r"^\s*(?:[-*\u2022\u30fb]|\d{1,2}[.)\u3001])\s*(?P<idea>\S.*)$")
_ANNOUNCED = re.compile(
    r"(?:^|(?<=[.!?\n]\s)|(?<=[.!?\n]))\s*(?:(?:my|new|another|one more|here'?s (?:an|my))\s+)?"
    r"(?:idea|proposal|suggestion|アイデア|提案|اقتراح|فكرة)\s*(?:\d+\s*)?[:\uff1a]\s*(?P<idea>[^\n.!?。！？]+)",
    re.IGNORECASE,
)


def list_ideas(request: LLMRequest) -> dict[str, Any]:
    """Points of lists, and what is announced as ``Idea: …`` (responder for the task ``ideas``)."""
    found = [
        {"idea": idea, "description": "", "entries": [number]}
        for number, text in enumerate(request.facts["lines"], 1)
        for idea in _marked(text)
    ]
    return {"ideas": found}


def _marked(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if point := _POINT.match(line):
            yield point["idea"].strip().rstrip(".!;,。")
    for announced in _ANNOUNCED.finditer(text):
        yield announced["idea"].strip()


def collapse(request: LLMRequest) -> dict[str, Any]:
    """Ideas that share at least half of their telling words with an earlier one (responder for the task ``collapse``)."""
    words = [_telling(idea) for idea in request.facts["ideas"]]
    same = []
    for later in range(request.facts["known"], len(words)):
        first = next((n for n in range(later) if _alike(words[n], words[later])), None)
        if first is not None:
            same.append({"idea": later + 1, "same_as": first + 1})
    return {"same": same}


def _telling(idea: str) -> frozenset[str]:
    """Long words by their stem, as far as their first six letters are one; single characters of scripts without spaces as they are."""
    return frozenset(word[:6] for word in tokenize(idea) if len(word) > 3 or not word.isascii())


def _alike(a: frozenset[str], b: frozenset[str]) -> bool:
    return bool(a and b) and len(a & b) / len(a | b) >= ALIKE
