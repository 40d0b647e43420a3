"""Words, sentences and phrases. Deterministic, Unicode-aware, indifferent to case and to the shape of apostrophes."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Scripts written without spaces are split into single characters: a run of them is no word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+(?:['\u2019\u02bc][^\W_{_UNSPACED}]+)*")
_ASCII_TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")  # says the same of plain ASCII, in half the time

_ABBREVIATION = re.compile(
    r"\b(?:mr|mrs|ms|dr|prof|st|vs|approx|dept|e\.g|i\.e)\.$|(?-i:(?<![\w.])[A-HJ-Z]\.$)", re.IGNORECASE
)
_SOFT_ABBREVIATION = re.compile(  # may also end a sentence; the second half is U.S., Ph.D., a.m.
    r"\b(?:etc|inc|ltd|corp|sr|jr|al)\.$|(?<![\w.])[a-z]{1,2}(?:\.[a-z]{1,2})+\.$", re.IGNORECASE
)
_BOUNDARY = re.compile(r"(?:[.!?\u2026]+[\"'\u2019\u201d)\]]*(?=\s|$))|[\u3002\uff01\uff1f\u061f\u06d4\u0964]+|\n+")
_ENUMERATOR = re.compile(r"^\s*(?:\d{1,3}|[a-zA-Z])[.)]$")

_EMOJI = re.compile(
    "[\U0001f1e6-\U0001f1ff\U0001f300-\U0001f64f\U0001f680-\U0001f6ff\U0001f7e0-\U0001f7eb\U0001f900-\U0001faff"
    "\u2600-\u26ff\u2702-\u27b0\u231a\u231b\u23e9-\u23f3\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u2764\u203c\u2049]|[0-9#*]\ufe0f?\u20e3"
)


def tokenize(text: str) -> list[str]:
    """The words of a text, case-folded, without punctuation; ``don't`` stays one word. Same text, same list, always."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text.lower())
    found = "\n".join(_TOKEN.findall(unicodedata.normalize("NFKC", text)))
    return found.casefold().replace("\u2019", "'").replace("\u02bc", "'").split("\n") if found else []


def split_sentences(text: str) -> list[str]:
    """The sentences of a text.

    A sentence ends at ``. ! ? …`` (and their CJK, Arabic and Devanagari kin) before white space or the end, and at a line break.
    No sentence ends after an abbreviation (``Dr.``, ``e.g.``, an initial), a list number (``1.``), inside a number, or at an
    ellipsis that goes on in lower case. Pieces without a letter or digit do not count.
    """
    sentences: list[str] = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        piece, rest = text[start : match.end()], text[match.end() :].lstrip()
        mark = match.group().strip("\"'\u2019\u201d)]")
        if rest and "\n" not in match.group() and _goes_on(piece.rstrip(), mark, rest):
            continue
        sentences.append(piece)
        start = match.end()
    sentences.append(text[start:])
    return [s.strip() for s in sentences if any(char.isalnum() for char in s)]


def _goes_on(piece: str, mark: str, rest: str) -> bool:
    """Whether the sentence `piece` really continues with `rest` in spite of its closing `mark`."""
    if mark == ".":
        soft = _SOFT_ABBREVIATION.search(piece) and not rest[0].isupper()
        return bool(soft or _ABBREVIATION.search(piece) or _ENUMERATOR.match(piece))
    return mark in ("..", "...", "\u2026") and rest[0].islower()


def has_emoji(text: str) -> bool:
    """Whether the text holds a pictographic emoji (keycaps and flags count, plain digits and typographic signs do not)."""
    return _EMOJI.search(text) is not None


@lru_cache(maxsize=4096)
def phrase_pattern(phrase: str) -> re.Pattern[str]:
    """A compiled pattern for a phrase, or for ``/regex/``.

    A phrase matches whatever the case, on word boundaries, with any white space between its words and either shape of apostrophe.

    Raises:
        ValueError: The phrase is empty or the regular expression does not compile.
    """
    if len(phrase) > 2 and phrase.startswith("/") and phrase.endswith("/"):
        try:
            return re.compile(phrase[1:-1], re.IGNORECASE)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{phrase} is not a valid regular expression: {error}") from None
    words = phrase.split()
    if not words:
        raise ValueError("an empty phrase matches everything; write at least one word")
    body = r"\s+".join(re.sub("['\u2019]", "['\u2019]", re.escape(word)) for word in words)
    before = r"(?<!\w)" if words[0][0].isalnum() else ""
    after = r"(?!\w)" if words[-1][-1].isalnum() else ""
    return re.compile(before + body + after, re.IGNORECASE)


def find_phrases(text: str, phrases: list[str] | tuple[str, ...]) -> list[str]:
    """Those of `phrases` (or ``/regex/``) that occur in the text, in the order given."""
    return [phrase for phrase in phrases if phrase_pattern(phrase).search(text)]


def find_matches(text: str, phrases: list[str] | tuple[str, ...]) -> list[str]:
    """What of the text those of `phrases` (or ``/regex/``) that occur were found in: the first place of each, without repeats;
    the phrase itself where it matched nothing visible."""
    found = ((phrase, phrase_pattern(phrase).search(text)) for phrase in phrases)
    return list(dict.fromkeys(" ".join(match.group().split()) or phrase for phrase, match in found if match))
