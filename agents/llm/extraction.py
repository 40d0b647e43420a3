"""The one JSON object in the text of an answer, or the reason why there is none. Pure, no Django."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

# A list of objects hides which of them is meant, so it is refused like two objects. A brace that opens no object is
# harmless only where it plainly is none, as in "{name}".
_OPENING = re.compile(r"\[\s*\{|\{")
_PLACEHOLDER = re.compile(r"\{\s*[^\s{}\[\]\"':][^{}\[\]\"':]*\}")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


class NotOneObject(ValueError):
    """The text does not hold exactly one JSON object. Its message says what was found instead."""


class _DuplicateKey(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKey(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


# strict=False lets line breaks stand inside strings: small models write them, and they leave no doubt about the value.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite, strict=False)


def extract_object(text: str) -> dict[str, Any]:
    """Return the one top-level JSON object in `text`, which may stand alone, in a fence or in prose.

    Raises:
        NotOneObject: There is no object, more than one, a list of objects, something that looks like an object but is
            not JSON (Python literals, NaN, a cut end), or an object that has a key twice.
    """
    found: dict[str, Any] | None = None
    position = 0
    while opening := _OPENING.search(text, position):
        start = opening.start()
        if opening.group() != "{":
            raise NotOneObject("the answer holds a list of objects, not one JSON object")
        if placeholder := _PLACEHOLDER.match(text, start):
            position = placeholder.end()
            continue
        value, position = _decode(text, start)
        if found is not None:
            raise NotOneObject("the answer holds more than one JSON object")
        found = value
    if found is None:
        raise NotOneObject("the answer holds no JSON object" if text.strip() else "the answer is empty")
    try:
        return {storable(key): storable(item) for key, item in found.items()}
    except RecursionError:
        raise NotOneObject("the answer is nested too deeply") from None


def _decode(text: str, start: int) -> tuple[dict[str, Any], int]:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except _DuplicateKey as problem:
        raise NotOneObject(str(problem)) from None
    except json.JSONDecodeError as problem:
        raise NotOneObject(f"the answer holds something like an object that is not JSON: {problem.msg}") from None
    except RecursionError:
        raise NotOneObject("the answer is nested too deeply") from None
    except ValueError as problem:  # NaN, 1e999, an integer of thousands of digits
        raise NotOneObject(f"the answer is not JSON: {problem}") from None
    return value, end


def storable(value: Any) -> Any:
    """`value` with NUL and lone surrogates in its strings replaced: no database takes them, and a model can write them."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value) if _UNSTORABLE.search(value) else value
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value
