"""Finding a person's words in other texts: stretches of what they said, and their name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

ERASED = "[erased]"
SHORTEST_QUOTE = 20  # characters
# Keys whose values say how an exchange is built, not what was said.
_STRUCTURE = frozenset({"type", "role", "tool", "nonce", "call_id", "id", "name", "cache", "ends"})


class Words:
    """What a person said, and what they are called.

    A quote is any stretch of at least `shortest` characters of one of their texts, whatever its case and white space. Beside it, a
    text that is nothing but one of their shorter messages counts where the person is known to have been.
    """

    def __init__(self, texts: Iterable[str], *, names: Iterable[str], label: str, shortest: int = SHORTEST_QUOTE):
        self.label, self.shortest = label, shortest
        windows: set[str] = set()
        whole: set[str] = set()
        for text in texts:
            folded = _folded(text)
            windows.update(folded[i : i + shortest] for i in range(len(folded) - shortest + 1))
            if folded and folded != ERASED:
                whole.add(folded)
        self._windows, self._whole = windows, whole
        self._name = _pattern([name for name in names if name and name != label])

    def quoted(self, text: str) -> bool:
        """Whether the text has a quote in it."""
        folded, n, windows = _folded(text), self.shortest, self._windows
        return any(folded[i : i + n] in windows for i in range(len(folded) - n + 1))

    def named(self, value: Any) -> bool:
        """Whether a text, or a text anywhere in a JSON value, has the name in it."""
        return self._name is not None and any(self._name.search(text) for text in _texts(value))

    def without(self, value: Any, *, near: bool) -> Any:
        """A text or JSON value without the person's words.

        Args:
            value: What is kept now.
            near: Whether the person is known to have been there: then their name and short messages go, too.
        """
        if isinstance(value, str):
            return self._without(value, near)
        if isinstance(value, dict):
            return {self._without(key, near): self.without(one, near=near) for key, one in value.items()}
        return [self.without(one, near=near) for one in value] if isinstance(value, list) else value

    def _without(self, text: str, near: bool) -> str:
        if near and _folded(text) in self._whole:
            return ERASED
        if self.quoted(text):
            text = self._without_quotes(text)
        return self._name.sub(self.label, text) if near and self._name is not None else text

    def _without_quotes(self, text: str) -> str:
        folded, places = _folded_with_places(text)
        kept, done, i = [], 0, 0
        while i <= len(folded) - self.shortest:
            if folded[i : i + self.shortest] not in self._windows:
                i += 1
                continue
            begin = i
            while folded[i : i + self.shortest] in self._windows:
                i += 1
            i += self.shortest - 1
            kept += [text[done : places[begin]], ERASED]
            done = places[i - 1] + 1
        return "".join(kept) + text[done:]


def blanked(value: Any) -> Any:
    """A text or JSON value with every text in it replaced by the mark; its build stays."""
    if isinstance(value, str):
        return ERASED if value else value
    if isinstance(value, dict):
        return {
            key: one if key in _STRUCTURE and not isinstance(one, dict | list) else blanked(one)
            for key, one in value.items()
        }
    return [blanked(one) for one in value] if isinstance(value, list) else value


def _folded(text: str) -> str:
    return " ".join(text.lower().split())


def _folded_with_places(text: str) -> tuple[str, list[int]]:
    """As `_folded`, with the place in `text` of each character."""
    chars: list[str] = []
    places: list[int] = []
    for place, char in enumerate(text):
        for low in " " if char.isspace() else char.lower():
            if low != " " or (chars and chars[-1] != " "):
                chars.append(low)
                places.append(place)
    return "".join(chars), places


def _pattern(names: list[str]) -> re.Pattern[str] | None:
    """Any of the names as words. One that could be a word of the language ("Will", "May") only as it is written."""
    if not names:
        return None
    ways = (re.escape(n) if n.isalpha() else f"(?i:{re.escape(n)})" for n in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{'|'.join(ways)})(?!\w)")


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from (key, *_texts(one))
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
