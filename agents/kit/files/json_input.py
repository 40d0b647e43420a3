"""Read JSON value by value, with the line of each; `Row` reads one object field by field and names what is wrong."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NoReturn

from agents.kit.files.source import FileError, Source
from agents.kit.files.times import parse_time

MAX_DOCUMENT = 256 * 1024 * 1024
"""Longest JSON that is not JSON Lines, in characters: its text is held in memory."""

MAX_DEPTH = 64
_SPACE = re.compile(r"[ \t\r\n]*")


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs: what reads JSON, as ``object_pairs_hook``, would keep only the last value of a key.

    Raises:
        ValueError: A key occurs twice.
    """
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the key {name[:60]!r} occurs twice in one object; allowed: each key once")
        values[name] = value
    return values


_decoder = json.JSONDecoder(parse_float=_number, parse_constant=_constant, object_pairs_hook=keys_once)


def parse(text: str, *, path: str, line: int) -> Any:
    """Return one JSON value.

    Raises:
        FileError: Not JSON, NaN or Infinity, a number too large, a key twice, or nested too deep.
    """
    with _located(path, line):
        try:
            return _decoder.decode(text)
        except json.JSONDecodeError as error:
            reason = f"not valid JSON: {error.msg} at column {error.colno}"
            raise FileError(path, line + error.lineno - 1, reason) from None


@contextmanager
def _located(path: str, line: int) -> Iterator[None]:
    """Turn the decoder's errors into errors of this line."""
    try:
        yield
    except RecursionError:
        raise FileError(path, line, "JSON nested too deep") from None
    except ValueError as error:
        raise FileError(path, line, f"not valid JSON: {error}") from None


def begins_like_json(head: str) -> bool:
    """Return whether a text begins with an object or a list; chat logs may begin with a time in square brackets."""
    if head[:1] == "{":
        return True
    return head[:1] == "[" and head[1:].lstrip()[:1] in ("{", "[", "]", '"')


def json_lines(source: Source) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) for each line that is not blank."""
    for line, text in source.lines():
        if text and not text.isspace():
            yield line, parse(text, path=source.name, line=line)


def json_values(source: Source) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) from JSON Lines, from the elements of one array, or from one document.

    Raises:
        FileError: Not JSON, not UTF-8, or, unless it is JSON Lines, longer than MAX_DOCUMENT.
    """
    if _is_json_lines(source):
        yield from json_lines(source)
        return
    text = source.head(MAX_DOCUMENT + 1)
    if len(text) > MAX_DOCUMENT:
        raise FileError(source.name, 0, f"JSON of more than {MAX_DOCUMENT:,} characters; use JSON Lines")
    if text.lstrip().startswith("["):
        yield from _elements(text, source.name)
    else:
        yield 1, parse(text, path=source.name, line=1)


def _is_json_lines(source: Source) -> bool:
    """Return whether the first line holds a complete JSON value and, when that is an array, another array follows.

    A first line that looks like a broken object counts as JSON Lines where the second one looks like an object: the error is then of the
    first line, not of the file. A single line with an array is one document.
    """
    rows = ((line, text) for line, text in source.lines() if text and not text.isspace())
    try:
        line, text = next(rows, (0, ""))
    except FileError:
        return False  # longer than a line may be: one document, or an error that reading it will name
    try:
        value = parse(text, path=source.name, line=line)
    except FileError:
        second = next(rows, (0, ""))[1].rstrip()  # an object of its own? then only the first line is broken
        return text.lstrip().startswith("{") and second.startswith("{") and second.endswith("}")
    return not isinstance(value, list) or next(rows, (0, ""))[1].lstrip().startswith("[")


def _elements(text: str, path: str) -> Iterator[tuple[int, Any]]:
    """Yield (line, element) of the array with which a text begins, one after the other: together they take many times its memory.

    Raises:
        FileError: An element is not JSON, the array ends too early, or text follows it; after the elements before it were yielded.
    """
    at, line = 0, 1

    def go_to(to: int) -> None:
        nonlocal at, line
        line += text.count("\n", at, to)
        at = to

    def peek() -> str:
        """Return the next character that is no white space; empty at the end."""
        go_to(_SPACE.match(text, at).end())  # type: ignore[union-attr]
        return text[at : at + 1]

    peek()
    go_to(at + 1)
    is_empty = peek() == "]"
    separator = "]" if is_empty else ","
    go_to(at + is_empty)
    while separator == ",":
        if not peek():
            raise FileError(path, line, "the JSON array ends too early")
        with _located(path, line):
            try:
                value, end = _decoder.raw_decode(text, at)
            except json.JSONDecodeError as error:
                reason = f"not valid JSON: {error.msg}"
                raise FileError(path, line + text.count("\n", at, error.pos), reason) from None
        yield line, value
        go_to(end)
        separator = peek()
        if separator not in {",", "]"}:
            what = f"{separator!r}" if separator else "the end of the file"
            raise FileError(path, line, f"expected ',' or ']' in the JSON array, found {what}")
        go_to(at + 1)
    if peek():
        raise FileError(path, line, "text after the end of the JSON array")


def _is_deeper(value: Any, limit: int) -> bool:
    """Return whether lists and objects in `value`, which is one, are nested deeper than `limit`; without recursion, which has a limit."""
    level = [value]
    for _ in range(limit + 1):
        inner = [item.values() if isinstance(item, dict) else item for item in level]
        level = [child for children in inner for child in children if isinstance(child, dict | list)]
        if not level:
            return False
    return True


class Row:
    """A JSON object and where it stands."""

    def __init__(self, value: Any, *, path: str, line: int, what: str = "a line") -> None:
        """Raise FileError unless `value` is an object; `what` names it in errors."""
        self.path, self.line, self.what = path, line, what
        if not isinstance(value, dict):
            self.fail(f"{what} must be a JSON object, got {shown(value)}")
        self.value: dict[str, Any] = value

    def fail(self, reason: str, *, advice: str = "") -> NoReturn:
        """Raise the error for this place in the file."""
        raise FileError(self.path, self.line, reason, advice=advice)

    def child(self, value: Any, what: str) -> Row:
        """Return an object inside this one."""
        return Row(value, path=self.path, line=self.line, what=what)

    def has(self, key: str) -> bool:
        return self.value.get(key) is not None

    def _typed(self, key: str, kind: type, what: str, default: Any = None) -> Any:
        """Return the value under a key, `default` where it is absent or null; fail unless it is of the kind, which `what` names."""
        value = self.value.get(key, default)
        value = default if value is None else value
        if not isinstance(value, kind):
            self.fail(f"{key!r} must be {what}, got {shown(value)}")
        return value

    def text(self, key: str, *, required: bool = False) -> str:
        """Return a text; absent or null is empty unless required."""
        if required and not self.has(key):
            self.fail(f"{self.what} has no {key!r}")
        return str(self._typed(key, str, "a text", ""))

    def name(self, key: str) -> str:
        """Return an id or a name: a text or a number; absent is empty."""
        value = self.value.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        return self.text(key)

    def list(self, key: str, *, required: bool = False) -> list[Any]:
        """Return a list; absent or null is empty unless required."""
        values: list[Any] = self._typed(key, list, "a list", None if required else [])
        return values

    def flag(self, key: str) -> bool:
        """Return a true or false; absent is false."""
        value = self.value.get(key, False)
        if not isinstance(value, bool):
            self.fail(f"{key!r} must be true or false, got {shown(value)}")
        return value

    def time(self, *keys: str) -> datetime | None:
        """Return the time under the first of `keys` that is there, naive where it has no offset; None where there is none."""
        for key in keys:
            if self.has(key):
                try:
                    return parse_time(self.value[key])
                except ValueError as error:
                    self.fail(f"{key!r}: {error}")
        return None

    def object(self, key: str) -> dict[str, Any]:
        """Return an object; absent or null is empty."""
        value: dict[str, Any] = self._typed(key, dict, "an object", {})
        if _is_deeper(value, MAX_DEPTH):
            self.fail(f"{key!r} is nested deeper than {MAX_DEPTH} levels")
        return value


def with_nested_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object that also has what the objects in it hold, under keys such as ``meta.build``; its own keys win."""
    nested: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            nested |= {f"{key}.{inner_key}": inner_value for inner_key, inner_value in inner.items()}
    return {**value, **{key: inner for key, inner in nested.items() if key not in value}}


def scalar_text(value: Any) -> str:
    """Return a text, a number, or true or false as a text; empty for everything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def shown(value: Any) -> str:
    """Return a short rendering for an error message."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
