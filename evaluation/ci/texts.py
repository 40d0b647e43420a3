"""Texts of agents, users and judges as they may stand in a report: they are data there, never markup, mentions or control codes."""

from __future__ import annotations

import re
import unicodedata

_WORD_JOINER = "\u2060"
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAKS = re.compile(r"\s+")


def plain(text: str, limit: int = 240) -> str:
    """One line without control, direction-changing and invisible characters, cut at `limit`."""
    line = _BREAKS.sub(" ", text).strip()
    line = "".join(c for c in line if c == "\u200d" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def as_code(text: str, limit: int = 240) -> str:
    """For a comment on GitHub or GitLab, also in a table cell: code, so that nobody is mentioned and nothing is linked.

    Everything but letters, digits and spaces is written as a character reference, which Markdown never reads as structure; a mark
    that could mention or refer is also parted from what follows it.
    """
    shown = "".join(_reference(c) for c in plain(text, limit))
    return f"<code>{shown}</code>" if shown else ""


def _reference(character: str) -> str:
    if character.isalnum() or character == " ":
        return character
    reference = f"&#{ord(character)};"
    return reference + _WORD_JOINER if character in "@#" else reference


def as_xml(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold; escaping is the writer's."""
    return _NOT_IN_XML.sub("\ufffd", text)
