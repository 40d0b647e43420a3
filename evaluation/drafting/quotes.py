"""Quotes from a persona: whether they really stand there, and where."""

from __future__ import annotations

import re

from agents.text.tokens import tokenize

LONGEST_QUOTE = 500
FEWEST_WORDS = 2  # "the" stands in every persona and shows nothing
_ALIKE = ("'\u2019\u2018", '"\u201c\u201d\u201e', "-\u2010\u2011\u2013\u2014")
_SHAPES = {char: f"[{re.escape(chars)}]" for chars in _ALIKE for char in chars}
_AROUND = ' \t\r\n"\u201c\u201d\u201e\u00ab\u00bb'


def bare(quote: str) -> str:
    """A quote without the quotation marks somebody put around it, on one line."""
    return " ".join(quote.split()).strip(_AROUND).removesuffix("\u2026").removesuffix("...").strip()


def find_quote(quote: str, text: str) -> tuple[int, int] | None:
    """Where the quote stands in the text, as start and end; None where it does not.

    Case, white space and the shape of quotation marks and dashes do not matter; every word does.
    """
    words = bare(quote).split()
    if not words:
        return None
    body = r"\s+".join("".join(_SHAPES.get(char, re.escape(char)) for char in word) for word in words)
    before = "(?<![a-z0-9])" if _is_plain(words[0][0]) else ""
    after = "(?![a-z0-9])" if _is_plain(words[-1][-1]) else ""
    found = re.search(before + body + after, text, re.IGNORECASE)
    return found.span() if found else None


def quote_problem(quote: str, persona: str) -> str:
    """Why a quote shows nothing; empty when it does."""
    if len(quote) > LONGEST_QUOTE:
        return f"its quote is longer than {LONGEST_QUOTE} characters"
    if len(tokenize(bare(quote))) < FEWEST_WORDS:
        return f"its quote is shorter than {FEWEST_WORDS} words"
    return "" if find_quote(quote, persona) else "no such words in the persona"


def _is_plain(char: str) -> bool:
    """Word boundaries mean something only in scripts that put spaces between words."""
    return char.isascii() and char.isalnum()
