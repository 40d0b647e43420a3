"""A person's own words in a message: what they quote, and code, asks for nothing.

`own_words` takes quoted blocks away before any model reads the message; `masked` marks quotations and code within it, for patterns.
"""

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


QUOTE, CODE = "\ue000", "\ue001"  # of the private use area: no text holds them after masking but from here
LONGEST_SPAN = 2_000  # characters of a quotation within a line
LONGEST_READ = 4_000  # characters of a message, from its beginning and its end

_PRIVATE = re.compile("[\ue000-\ue0ff]")
_BLOCKS = re.compile(
    r"(?P<code>^[ \t]{0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]{0,3}(?P=fence)[`~]*[ \t]*$|\Z))"
    r"|(?P<lines>(?:^[ \t]{0,3}(?:>|&gt;)[^\n]*(?:\n|\Z))+)"
    r"|(?P<mark>\[quoted text, [\d,]+ characters?\])",
    re.MULTILINE | re.DOTALL,
)
_INLINE_CODE = re.compile(r"(`{1,3})[^`\n]{1,2000}?\1")
_PAIRS = (
    ("\u201c", "\u201d\u201c"),
    ("\u201e", "\u201c\u201d"),
    ("\u00ab", "\u00bb"),
    ("\u00bb", "\u00ab"),
    ("\u300c", "\u300d"),
    ("\u300e", "\u300f"),
)
_QUOTED = re.compile(
    "|".join(rf"{opening}[^{closing}{opening}]{{1,{LONGEST_SPAN}}}[{closing}]" for opening, closing in _PAIRS)
    + rf'|"[^"]{{1,{LONGEST_SPAN}}}"'
    + r"|(?<![\w'])['\u2018][^'\u2018\u2019\n]{1,300}(?:['\u2019]\w[^'\u2018\u2019\n]{0,300}){0,5}['\u2019](?!\w)"
)
_CODE_LINE = re.compile(
    r"""^[ \t]*(?:
        (?:def|class|function|func|fn|public|private|static|const|let|var|return)\b[^\n]*[({=;][^\n]*
        |(?:if|while|for|elif|else|except|try)\b[^\n]*[):][ \t]*$[^\n]*
        |(?:import[ ]\w|from[ ]\w+[ ]import[ ]|\#include)[^\n]*
        |(?:git|npm|pip|docker|kubectl|curl|sudo|cd|ls|echo|select|insert|update)[ ][^\n]*(?:[ ]--?\w|[;|"']|[ ]from[ ])[^\n]*
        |[\w.]{1,60}\([^\n]*\)[ \t]*;?[ \t]*$
        |[\w.\[\]]{1,60}[ ]?[-+*/]?=[ ]?[^\n]+
        |[{}\[\]][^\n]*[:,{}\]][^\n]*
        |</?\w+[^>\n]*>[^\n]*
        |\w*(?:Error|Exception)\b:[^\n]*|Traceback[^\n]*
        |//[^\n]*|/\*[^\n]*|\$[ ][^\n]*
        )""",
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)


def masked(text: str) -> str:
    """The message with `QUOTE` for each quotation and `CODE` for each stretch of code; its middle is left out where it is very long."""
    text = _PRIVATE.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n"))
    if (
        len(text) > 2 * LONGEST_READ
    ):  # blocks are looked for in more than is read in the end, so that their ends are found
        text = text[: LONGEST_READ * 4] + ("\n" + text[-LONGEST_READ * 4 :] if len(text) > LONGEST_READ * 4 else "")
    text = _BLOCKS.sub(lambda found: f"\n{CODE if found['code'] else QUOTE}\n", text)
    text = _INLINE_CODE.sub(f" {CODE} ", text)
    text = _QUOTED.sub(f" {QUOTE} ", text)
    text = _CODE_LINE.sub(f" {CODE} ", text)
    if len(text) > LONGEST_READ:
        half = LONGEST_READ // 2
        text = f"{text[:half]}\n{text[-half:]}"
    return text
