"""The form of a judge's answer: its JSON schema, with an integer enum 0 to 9, and an example of it (AC-6.0.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.propositions.schema import Proposition

CONFIDENCES = [round(i / 10, 1) for i in range(11)]


def entry_schema(hard: bool, advised: bool) -> dict[str, Any]:
    """The fields of one claim's answer."""
    properties: dict[str, Any] = {
        "evidence": {"type": "string", "enum": ["present", "absent"]},
        "reasoning": {"type": "string"},
        "justification": {"type": "string"},
    }
    if hard:
        properties["flaws"] = {"type": "array", "items": {"type": "string"}}
    properties["value"] = {"type": "integer", "enum": list(range(10))}
    properties["confidence"] = {"type": "number", "enum": CONFIDENCES}
    if advised:
        properties["recommendations"] = {"type": "string"}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def answer_schema(keyed: Mapping[str, Proposition], advised: Sequence[str]) -> dict[str, Any]:
    """The schema of a whole answer: the fields themselves for one claim, an entry per key for several."""
    hard = any(p.hard for p in keyed.values())
    if len(keyed) == 1:
        return entry_schema(hard, bool(advised))
    properties = {key: entry_schema(hard, key in advised) for key in keyed}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def example_answer(keyed: Mapping[str, Proposition]) -> dict[str, Any]:
    """A valid answer to another question; only its shape is to be followed."""
    entry: dict[str, Any] = {
        "evidence": "present",
        "reasoning": "Two of the three sentences show what the claim says, the last one works against it.",
        "justification": "The second sentence says it outright.",
        "value": 6,
        "confidence": 0.7,
    }
    if any(p.hard for p in keyed.values()):
        entry = {**entry, "flaws": ["the last sentence contradicts the persona"]}
    return entry if len(keyed) == 1 else dict.fromkeys(keyed, entry)
