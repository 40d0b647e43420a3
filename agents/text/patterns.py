"""Regular expressions that operators write: only those that end soon, whatever a message says."""

from __future__ import annotations

from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined, unused-ignore]  # what `re` itself reads a pattern with
from typing import Any


def ends_soon(phrase: str) -> str:
    """Refuse a ``/regex/`` that may take for ever: thirty characters can keep ``/(a+)+$/`` busy for minutes, and nothing stops it.

    Raises:
        ValueError: Something that repeats without end holds something that repeats or chooses.
    """
    is_regex = len(phrase) > 2 and phrase.startswith("/") and phrase.endswith("/")
    if is_regex and _repeats_a_choice(_parser.parse(phrase[1:-1]), inside=False):
        raise ValueError(f"{phrase} repeats a group that itself repeats or chooses, which may take for ever")
    return phrase


def _repeats_a_choice(pattern: Any, *, inside: bool) -> bool:
    """Whether a part that may match in more than one way stands `inside` a part that is repeated without end."""
    for code, value in pattern:
        name, is_endless = str(code), False
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            fewest, most, _ = value
            is_endless = most is _constants.MAXREPEAT
            if inside and fewest != most:
                return True
        elif name == "BRANCH" and inside:
            return True
        if any(_repeats_a_choice(part, inside=inside or is_endless) for part in _parts(value)):
            return True
    return False


def _parts(value: Any) -> Iterator[Any]:
    """The patterns inside an element of a parsed pattern."""
    if isinstance(value, _parser.SubPattern):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _parts(item)
