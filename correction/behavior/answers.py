"""The form of the three tiers' answers: JSON schemas, examples, and how an answer is read. Pure: read in the loop's thread.

Lenient where nothing can go wrong by it, careful where something can: an answer that leaves open how sure it is counts as unsure, one
that leaves open whether the change fits the persona as contradicting it. What is no answer at all is malformed, and asked once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from agents.llm import InvalidAnswer
from correction.behavior.map_answer import LONGEST_NAME, MOST_TOUCHED

CONFIDENCES = ("high", "medium", "low")
LONGEST_TEXT = 2_000  # characters kept of each text of an answer
_STRENGTHS = [round(step / 20, 2) for step in range(21)]
_SENTIMENTS = [round(step / 10 - 1, 1) for step in range(21)]
_TEXT = {"type": "string"}
_BOOLEAN = {"type": "boolean"}


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


SCHEMAS: Mapping[str, dict[str, Any]] = {
    "gate": _object(
        {"has_request": _BOOLEAN, "confidence": {"type": "string", "enum": list(CONFIDENCES)}, "reason": _TEXT}
    ),
    "extract": _object(dict.fromkeys(("behavior_name", "current_state", "requested_change"), _TEXT)),
    "map": _object(
        {
            "name": _TEXT,
            "description": _TEXT,
            "sentiment": {"type": "number", "enum": _SENTIMENTS},
            "strength": {"type": "number", "enum": _STRENGTHS},
            "is_new": _BOOLEAN,
            "replaces_trait": {"anyOf": [_TEXT, {"type": "null"}]},
            "contradicts_persona": _BOOLEAN,
            "contradiction": _TEXT,
            "touches": {"type": "array", "items": _TEXT},
        },
        required=[],  # an empty object says that nothing is to be changed
    ),
}
EXAMPLES: Mapping[str, dict[str, Any]] = {
    "gate": {"has_request": True, "confidence": "high", "reason": "The message forbids the character to use slang."},
    "extract": {
        "behavior_name": "slang",
        "current_state": "The character uses slang.",
        "requested_change": "It shall use slang only now and then.",
    },
    "map": {
        "name": "slang",
        "description": "Now and then lets a slang word slip in where it fits.",
        "sentiment": 0.0,
        "strength": 0.3,
        "is_new": True,
        "replaces_trait": None,
        "contradicts_persona": False,
        "contradiction": "",
        "touches": [],
    },
}


def read_gate(data: Any) -> dict[str, Any]:
    """``has_request``, ``confidence`` (one of `CONFIDENCES`) and ``reason``.

    Raises:
        InvalidAnswer: It does not say true or false.
    """
    found = _fields(data)
    if not isinstance(found.get("has_request"), bool):
        raise InvalidAnswer(f"has_request: expected true or false, got {_short(found.get('has_request'))}")
    said = found.get("confidence")
    confidence = said.strip().casefold() if isinstance(said, str) else ""
    answer: dict[str, Any] = {
        "has_request": found["has_request"],
        "confidence": confidence if confidence in CONFIDENCES else "low",
        "reason": _text(found, "reason"),
    }
    if confidence not in CONFIDENCES:
        answer["warning"] = f"confidence {_short(said)} is none of {', '.join(CONFIDENCES)}; taken as low"
    return answer


def read_extract(data: Any) -> dict[str, Any]:
    """``behavior_name`` (empty: no behaviour was found after all), ``current_state`` and ``requested_change``.

    Raises:
        InvalidAnswer: It names no behaviour and does not say that there is none.
    """
    found = _fields(data)
    if found and not isinstance(found.get("behavior_name"), str | None):
        raise InvalidAnswer(f"behavior_name: expected a text, got {_short(found['behavior_name'])}")
    if found and "behavior_name" not in found:
        raise InvalidAnswer("behavior_name: missing")
    return {name: _text(found, name) for name in ("behavior_name", "current_state", "requested_change")}


def read_map_answer(data: Any) -> dict[str, Any]:
    """The trait as the model would have it; empty when nothing is to be changed. Its numbers are not yet checked for their range.

    Raises:
        InvalidAnswer: A field that decides what becomes of the trait is not of its type.
    """
    found = _fields(data)
    name = found.get("name")
    if not isinstance(name, str | None):
        raise InvalidAnswer(f"name: expected a text, got {_short(name)}")
    if not found or (name is not None and not name.strip()):
        return {}
    if name is None:
        raise InvalidAnswer("name: missing")
    replaces = found.get("replaces_trait")
    if not isinstance(replaces, str | None):
        raise InvalidAnswer(f"replaces_trait: expected a text or null, got {_short(replaces)}")
    answer: dict[str, Any] = {
        "name": _text(found, "name"),
        "description": _text(found, "description"),
        **{key: _number(found, key) for key in ("sentiment", "strength") if found.get(key) is not None},
        "is_new": found.get("is_new") is True,
        "replaces_trait": _text(found, "replaces_trait") or None,
        "contradicts_persona": found.get("contradicts_persona") is not False,
        "contradiction": _text(found, "contradiction"),
    }
    if isinstance(touches := found.get("touches"), list):  # left out = it is not known whether there are any
        answer["touches"] = [
            " ".join(name.split())[:LONGEST_NAME] for name in touches[:MOST_TOUCHED] if isinstance(name, str)
        ]
    if not isinstance(found.get("contradicts_persona"), bool):
        answer["contradiction"] = answer["contradiction"] or "the answer leaves open whether it fits the persona"
    return answer


READERS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "gate": read_gate,
    "extract": read_extract,
    "map": read_map_answer,
}


def _fields(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidAnswer(f"expected a JSON object, got {type(data).__name__}")
    return data


def _text(found: Mapping[str, Any], name: str) -> str:
    """A text on one line; empty where there is none. What is too long is cut, visibly."""
    value = found.get(name)
    line = " ".join(value.split()) if isinstance(value, str) else ""
    return line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"


def _number(found: Mapping[str, Any], name: str) -> float:
    """A number, also one written as a text ("0.3"): small models do that, and it leaves no doubt.

    Raises:
        InvalidAnswer: It is none, or not finite.
    """
    value = found[name]
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidAnswer(f"{name}: expected a number, got {_short(value)}")
    return number


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
