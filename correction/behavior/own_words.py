"""Tell a person's own words in a message from what the message quotes, in time proportional to its length."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agents.kit.text.wording import counted

LONGEST_OWN_WORDS = 12_000  # characters that are read, from both ends of a longer message

_QUOTATION_START = re.compile(
    r"""
    ^[ \t]{0,3}(?P<lines>(?:>|&gt;).*(?:\n[ \t]{0,3}(?:>|&gt;).*)*)       # quoted line by line
    | ^[ \t]{0,3}(?P<fence>`{3,}|~{3,})              # a block of code
    | ^-{2,}[ ]?(?:original|forwarded)[ ]message[ ]?-{2,}(?P<mail>)   # a mail: what follows is another's
    | (?P<mark>\"{3}|'{3}|\[quote\b[^\]\n]{0,80}\]|<blockquote>|[\u201c\u201e\u00ab\u300c\u300e])
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_CLOSING_MARKS = {
    "\u201c": "\u201d", "\u201e": "\u201c", "\u00ab": "\u00bb", "\u300c": "\u300d", "\u300e": "\u300f",
    "[": "[/quote]", "<": "</blockquote>", '"': '"""', "'": "'''",
}  # fmt: skip
_TYPOGRAPHIC_MARKS = "\u201c\u201e\u00ab\u300c\u300e"
_NOTE_OF_QUOTATION = re.compile(r"\[quoted text, [\d,]+ characters?\]")


@dataclass(frozen=True, slots=True)
class OwnWords:
    """A person's own words in a message.

    Attributes:
        text: Without what is quoted in blocks, of which a note says how long it was; cut in the middle when it is too long.
        quoted: Characters of the quoted blocks.
        cut: Characters of own words that were left out.
        quotes: The quoted blocks: another's words, which ask for nothing, but may be what the message refers to.
    """

    text: str
    quoted: int = 0
    cut: int = 0
    quotes: tuple[str, ...] = ()

    @property
    def have_letters(self) -> bool:
        """Return whether there is a letter of any script: signs, numbers and emoji alone ask for nothing."""
        return any(char.isalpha() for char in _NOTE_OF_QUOTATION.sub("", self.text))


def own_words(text: str) -> OwnWords:
    """Return the author's own words of a message, and apart from them what it quotes.

    A note of its length stands for each quotation. Of over 12,000 characters of own words both ends are kept, and a note of the cut.
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # of some letters the lower case is longer: positions would differ
        lowered = text
    missing_marks: set[str] = set()  # closing marks that no longer come: each is searched for once
    parts: list[str] = []
    quotes: list[str] = []
    position = 0
    while opening := _QUOTATION_START.search(text, position):
        start = opening.start()
        end = _end_of_quotation(lowered, opening, missing_marks)
        if end is None:  # a mark without its partner quotes nothing
            parts.append(text[position : opening.end()])
            position = opening.end()
            continue
        quotes.append(text[start:end])
        parts.append(text[position:start])
        parts.append(f"[quoted text, {counted(end - start, 'character')}]")
        position = end
    parts.append(text[position:])
    own = "".join(parts).strip()
    quoted = sum(len(quote) for quote in quotes)
    cut = len(own) - LONGEST_OWN_WORDS
    if cut <= 0:
        return OwnWords(own, quoted, quotes=tuple(quotes))
    half = LONGEST_OWN_WORDS // 2
    shortened = f"{own[:half]}\n[… {cut:,} characters cut …]\n{own[-half:]}"
    return OwnWords(shortened, quoted, cut, tuple(quotes))


def _end_of_quotation(text: str, opening: re.Match[str], missing_marks: set[str]) -> int | None:
    """Return the position behind a quotation; None where the opening mark begins none, for it is never closed or is part of a sentence.

    Quoted lines end with the match itself; an e-mail's quotation, and an open code fence, at the end of the text.

    Args:
        text: In lower case.
        missing_marks: Closing marks that no longer come; one that is not found is added.
    """
    begin = opening.end()
    mark = opening["mark"]
    if opening["lines"]:
        return begin
    if opening["mail"] is not None:
        return len(text)
    closing = f"\n{opening['fence']}" if opening["fence"] else _CLOSING_MARKS[mark[0]]
    closed = -1
    if closing not in missing_marks:
        closed = text.find(closing, begin)
    if closed < 0:
        missing_marks.add(closing)
        return len(text) if opening["fence"] else None
    # Typographic marks quote a block when they go over the end of a line; else they are part of a sentence.
    if mark and mark in _TYPOGRAPHIC_MARKS and "\n" not in text[begin:closed]:
        return None
    return closed + len(closing)
