"""Other people's words in Markdown: they are data, so nothing in them is structure, a link or a mention."""

from __future__ import annotations

import re
import unicodedata

_WORD_JOINER = "\u2060"
_BREAKS = re.compile(r"\s+")
_NOT_WORDS = re.compile(r"[^\w ]|_")
# Not a full stop that ends a sentence (but 1. and www.), nor a sign inside a figure, a time or a word: 0.9, 13:48, life-changing.
_STRUCTURE = re.compile(
    r"(?:(?<![^\W\d_])\.|\.(?=\S))(?!(?<=\d\.)\d)"
    r"|:(?=\S)(?!(?<=\d:)\d)"
    r"|(?<!\w)-|-(?!\w)"
    r"|[#$%&*+/<=>@\[\\\]^_`{|}~]"
)


def plain(text: str, limit: int = 240) -> str:
    """Return one line without control, direction-changing and invisible characters, cut at `limit`."""
    line = _BREAKS.sub(" ", text).strip()
    line = "".join(c for c in line if c == "\u200d" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def as_text(text: str, limit: int = 240) -> str:
    """Escape a text for a page of Markdown, also in a heading or a table cell: one line that is read as it was written.

    What Markdown could read as structure is written as a character reference, which it never does; a mark that could mention or refer
    is also parted from what follows it.
    """
    return _STRUCTURE.sub(_reference, plain(text, limit))


def as_code(text: str, limit: int = 240) -> str:
    """Return a text as Markdown code, which mentions and links nothing on GitHub or GitLab; only letters, digits and spaces stay."""
    escaped = _NOT_WORDS.sub(_reference, plain(text, limit))
    return f"<code>{escaped}</code>" if escaped else ""


def _reference(match: re.Match[str]) -> str:
    mark = match.group()
    return f"&#{ord(mark)};{_WORD_JOINER if mark in '@#' else ''}"
