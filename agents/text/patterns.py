"""Regular expressions that operators write: only those that end soon, whatever a message says."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from re import _compiler, _constants, _parser  # type: ignore[attr-defined, unused-ignore]  # what `re` itself reads with
from typing import Any

LONGEST = 500  # characters of one pattern
MOST_WAYS = 1_000  # in which a repeated group may match one text
MOST_IN_A_ROW = 2  # repeats that can take the same characters from each other
MOST_CHOICES = 6  # between alternatives, one after another
_BACK, _CHOICES = "back", "choices"  # counted beside the characters: repeated back-references, and choices
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_SINGLE = ("LITERAL", "NOT_LITERAL", "ANY", "IN")  # what takes exactly one character
_TRIED = frozenset(string.printable + "é漢٣ ")  # stand for all characters, with those that the pattern names


def ends_soon(phrase: str) -> str:
    """Refuse a ``/regex/`` that may take for ever: thirty characters can keep ``/(a+)+$/`` busy for minutes, and nothing stops it.

    Raises:
        ValueError: It is longer than 500 characters or not valid; something is repeated that can match in very many ways; or more
            than two repeats in a row can take the same characters, or more than six choices follow each other.
    """
    if not (len(phrase) > 2 and phrase.startswith("/") and phrase.endswith("/")):
        return phrase
    text = phrase[1:-1]
    if len(text) > LONGEST:
        raise ValueError(f"{phrase[:40]}… has {len(text):,} characters; a regular expression may have {LONGEST}")
    try:
        pattern = _parser.parse(text, re.IGNORECASE)
        row = _Row(_TRIED | set(text))
        row.ways(pattern)
        row.walk(pattern, Counter())
    except _Endless as problem:
        raise ValueError(f"{phrase} {problem}, which may take for ever") from None
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{phrase} is not a valid regular expression: {error}") from None
    return phrase


class _Endless(Exception):
    """What of a pattern may take for ever."""


class _Row:
    """Counts, for each character, the repeats in a row that can take it: each more multiplies the tries by the text's length."""

    def __init__(self, tried: frozenset[str]) -> None:
        self._tried = tried
        self._words = frozenset(char for char in tried if re.fullmatch(r"\w", char))

    def ways(self, pattern: Any) -> float:
        """In how many ways a pattern can match at one place, at most.

        Raises:
            _Endless: A part that can match in several ways is repeated so often that they multiply beyond what is tried in a moment.
        """
        ways = 1.0
        for code, value in pattern:
            name = str(code)
            if name in _REPEATS:
                fewest, most, inside = value
                each = 1.0 if self._is_marked_off(inside) else self.ways(inside)
                endless = most is _constants.MAXREPEAT
                if each > 1 and most > 1 and (endless or math.log(each) * int(most) > math.log(MOST_WAYS)):
                    raise _Endless("repeats a group that itself repeats or chooses")
                ways *= math.inf if endless else (int(most) - fewest + 1) * (each ** int(most) if each > 1 else 1)
            elif name == "BRANCH":
                ways *= sum(self.ways(part) for part in _parts(value))
            else:
                ways *= math.prod(self.ways(part) for part in _parts(value))
        return ways

    def _is_marked_off(self, pattern: Any) -> bool:
        """Whether a group such as ``\\S+\\s+`` can be repeated in one way only: no part can take what the next one begins with."""
        while len(pattern) == 1 and str(pattern[0][0]) == "SUBPATTERN":
            pattern = pattern[0][1][-1]
        taken = []
        for code, value in pattern:
            name = str(code)
            inside = value[2] if name in _REPEATS and value[0] > 0 else [(code, value)]
            if len(inside) != 1 or str(inside[0][0]) not in _SINGLE:
                return False
            taken.append(self._chars(inside))
        return len(taken) > 1 and not any(one & following for one, following in pairwise([*taken, taken[0]]))

    def walk(self, pattern: Any, row: Counter[str]) -> Counter[str]:
        """The counts after a pattern, from those before it.

        Raises:
            _Endless: They grow too large.
        """
        before: frozenset[str] = frozenset()
        for code, value in pattern:
            name = str(code)
            if name == "AT":
                if str(value) == "AT_BOUNDARY" and before and (before <= self._words or not before & self._words):
                    row = _only(row, frozenset())  # a run of letters ends in one place only
                continue
            before = self._chars([(code, value)])
            if name in _SINGLE:
                row = _only(row, before)
            elif name in _REPEATS:
                row = self._repeat(value, row)
            elif name == "BRANCH":
                row = self._either(list(_parts(value)), row)
            elif name in ("ASSERT", "ASSERT_NOT"):
                for part in _parts(value):
                    self.walk(part, Counter())
            else:
                for part in _parts(value):
                    row = self.walk(part, row)
        return row

    def _repeat(self, value: Any, row: Counter[str]) -> Counter[str]:
        fewest, most, inside = value
        once = self.walk(inside, row)
        if fewest == most:
            return self.walk(inside, once) if fewest > 1 else once
        if most == 1 and self.ways(inside) > 1:
            return once | row
        if self._is_marked_off(inside):
            return self.walk(inside, once) | (Counter() if fewest else row)
        chars = frozenset([_BACK]) if len(inside) and str(inside[0][0]) == "GROUPREF" else self._chars(inside)
        return _counted((_only(row, chars) if fewest else row) + Counter(chars))

    def _either(self, parts: list[Any], row: Counter[str]) -> Counter[str]:
        """After a choice; one between something and nothing is a repeat of at most one."""
        together: Counter[str] = Counter()
        for part in parts:
            together |= self.walk(part, row)
        if not all(len(part) for part in parts):
            together += Counter(frozenset().union(*map(self._chars, parts)) or self._tried)
        return _counted(together + Counter([_CHOICES]))

    def _chars(self, pattern: Any) -> frozenset[str]:
        """The characters that parts of a pattern can take."""
        found: frozenset[str] = frozenset()
        for code, value in pattern:
            name = str(code)
            if name == "LITERAL":
                found |= {char for char in self._tried if char.lower() == chr(value).lower()}
            elif name in _SINGLE:
                one = _compiler.compile(_parser.SubPattern(_parser.State(), [(code, value)]), re.IGNORECASE)
                found |= {char for char in self._tried if one.fullmatch(char)}
            elif name in ("GROUPREF", "GROUPREF_EXISTS"):
                found |= self._tried
            elif name not in ("ASSERT", "ASSERT_NOT"):
                for part in _parts(value):
                    found |= self._chars(part)
        return found


def _counted(row: Counter[str]) -> Counter[str]:
    if row[_CHOICES] > MOST_CHOICES:
        raise _Endless(f"has more than {MOST_CHOICES} choices in a row")
    if any(count > MOST_IN_A_ROW for key, count in row.items() if key != _CHOICES):
        raise _Endless(f"has more than {MOST_IN_A_ROW} repeats in a row that can take the same characters")
    return row


def _only(row: Counter[str], chars: frozenset[str]) -> Counter[str]:
    return Counter({char: count for char, count in row.items() if char in chars or char in (_BACK, _CHOICES)})


def _parts(value: Any) -> Iterator[Any]:
    """The patterns inside an element of a parsed pattern."""
    if isinstance(value, _parser.SubPattern):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _parts(item)
