"""What a person says in their own words: what they quote is somebody else's, and nobody's request is read from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = (
    12_000  # characters of own words that are read: a request stands at the beginning or the end of what is longer
)

_OPENING = re.compile(
    r"""
    ^[ ]{0,3}(?P<line>>.*(?:\n[ ]{0,3}>.*)*)       # quoted line by line
    | ^[ ]{0,3}(?P<fence>`{3,}|~{3,})              # a block of code
    | ^-{2,}[ ]?(?:original|forwarded)[ ]message[ ]?-{2,}(?P<rest>)   # a mail: what follows is another's
    | (?P<mark>\"{3}|'{3}|\[quote\b[^\]\n]{0,80}\]|<blockquote>|[\u201c\u201e\u00ab\u300c\u300e])
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_CLOSING = {
    "\u201c": "\u201d", "\u201e": "\u201c", "\u00ab": "\u00bb", "\u300c": "\u300d", "\u300e": "\u300f",
    "[": "[/quote]", "<": "</blockquote>", '"': '"""', "'": "'''",
}  # fmt: skip
_TYPOGRAPHIC = (
    "\u201c\u201e\u00ab\u300c\u300e"  # such quotes are a block when they go over a line's end, else part of a sentence
)


@dataclass(frozen=True, slots=True)
class Words:
    """A person's own words in a message.

    Attributes:
        text: Without what is quoted in blocks, of which a mark says how much it was; cut in the middle when it is too long.
        quoted: Characters of the quoted blocks.
        cut: Characters of own words that were left out.
    """

    text: str
    quoted: int = 0
    cut: int = 0

    @property
    def say_something(self) -> bool:
        """Whether there is a letter of any script: signs, numbers and emoji alone ask for nothing."""
        return any(char.isalpha() for char in _QUOTE_MARK.sub("", self.text))


_QUOTE_MARK = re.compile(r"\[quoted text, [\d,]+ characters?\]")


def own_words(text: str) -> Words:
    """Read a message. Takes time in proportion to its length, whatever it holds."""
    search = _Search(text)
    kept: list[str] = []
    quoted = position = 0
    while opening := _OPENING.search(text, position):
        end = _end(search, opening)
        if end is None:
            kept.append(text[position : opening.end()])
            position = opening.end()
            continue
        length = end - opening.start()
        quoted += length
        kept += (text[position : opening.start()], f"[quoted text, {length:,} character{'s' * (length != 1)}]")
        position = end
    kept.append(text[position:])
    return _shortened("".join(kept).strip(), quoted)


class _Search:
    """Looks from growing positions for the next place of a few texts, and remembers it: each character is looked at once per text."""

    def __init__(self, text: str) -> None:
        lowered = text.lower()
        self.text = lowered if len(lowered) == len(text) else text
        self._found: dict[str, int] = {}

    def next(self, needle: str, start: int) -> int:
        """The next place of `needle` at or after `start`; the length of the text when there is none."""
        found = self._found.get(needle, -1)
        if found < start:
            found = self.text.find(needle, start)
            found = self._found[needle] = len(self.text) if found < 0 else found
        return found


def _end(search: _Search, opening: re.Match[str]) -> int | None:
    """Where a quotation ends; None when it is none."""
    whole = len(search.text)
    if opening["line"]:
        return opening.end()
    if opening["rest"] is not None:
        return whole
    if opening["fence"]:
        closing = "\n" + opening["fence"]
        return min(whole, search.next(closing, opening.end()) + len(closing))
    closing, begin = _CLOSING[opening["mark"][0]], opening.end()
    closed = search.next(closing, begin)
    if closed == whole or (opening["mark"] in _TYPOGRAPHIC and search.next("\n", begin) > closed):
        return None
    return closed + len(closing)


def _shortened(text: str, quoted: int) -> Words:
    cut = len(text) - LONGEST
    if cut <= 0:
        return Words(text, quoted)
    half = LONGEST // 2
    return Words(f"{text[:half]}\n[… {cut:,} characters cut …]\n{text[-half:]}", quoted, cut)
