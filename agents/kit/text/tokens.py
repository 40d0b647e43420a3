"""Words and sentences. Deterministic, Unicode-aware, in time that grows no faster than the text."""

from __future__ import annotations

import re
import unicodedata

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
LONGEST_ABBREVIATION = 24  # characters
_MARKS = ".!?\u2026"
_BOUNDARY = re.compile(  # a run of marks is tried once, from its start and without going back
    rf"(?<![{_MARKS}])[{_MARKS}]++[\"'\u2019\u201d)\]]*+(?=\s|$)|[\u3002\uff01\uff1f\u061f\u06d4\u0964]+|\n+"
)
_ENUMERATOR = re.compile(r"(?:\d{1,3}|[a-zA-Z])[.)]")
_SPACE = re.compile(r"\s*")

_EMOJI = re.compile(
    "[\U0001f1e6-\U0001f1ff\U0001f300-\U0001f64f\U0001f680-\U0001f6ff\U0001f7e0-\U0001f7eb\U0001f900-\U0001faff"
    "\u2600-\u26ff\u2702-\u27b0\u231a\u231b\u23e9-\u23f3\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u2764\u203c\u2049]|[0-9#*]\ufe0f?\u20e3"
)


def tokenize(text: str) -> list[str]:
    """Return the words of a text, case-folded, without punctuation; ``don't`` stays one word. Same text, same list, always."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text.lower())
    words = "\n".join(_TOKEN.findall(unicodedata.normalize("NFKC", text)))
    return words.casefold().replace("\u2019", "'").replace("\u02bc", "'").split("\n") if words else []


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text.

    A sentence ends at ``. ! ? …`` (and their CJK, Arabic and Devanagari kin) before white space or the end, and at a line break.
    No sentence ends after an abbreviation (``Dr.``, ``e.g.``, an initial), a list number (``1.``), inside a number, or at an
    ellipsis that goes on in lower case. Pieces without a letter or digit do not count.
    """
    sentences: list[str] = []
    start = 0
    for end in sentence_ends(text):
        sentences.append(text[start:end])
        start = end
    sentences.append(text[start:])
    return [s.strip() for s in sentences if any(char.isalnum() for char in s)]


def sentence_ends(text: str, *, growing: bool = False) -> list[int]:
    """Return the places right behind the sentences of a text that have an end, as `split_sentences` finds them, in rising order.

    Args:
        growing: Whether more text may follow. Then no sentence ends at the end of the text after an abbreviation, a list number or a
            digit, which may be the first half of a number.
    """
    ends: list[int] = []
    first = _skip_space(text, 0)  # of the sentence: its first character that is no space
    word = first  # place of the first character after the boundary that is no space
    for match in _BOUNDARY.finditer(text):
        end = match.end()
        if word < end:
            word = _skip_space(text, end)
        if "\n" not in match.group():
            if word < len(text) and _goes_on(text, first, match, text[word]):
                continue
            if growing and word == len(text) and _may_go_on(text, first, match):
                continue
        ends.append(end)
        first = word
    return ends


def _may_go_on(text: str, first: int, boundary: re.Match[str]) -> bool:
    """Return whether the sentence that began at `first` may continue although nothing follows its closing mark yet."""
    is_in_number = boundary.group() == "." and text[boundary.start() - 1 : boundary.start()].isdigit()
    if is_in_number and boundary.end() == len(text):
        return True
    return _goes_on(text, first, boundary, "A")


def _skip_space(text: str, start: int) -> int:
    """Return where the first character that is no white space stands; the text's length if there is none."""
    space = _SPACE.match(text, start)
    return space.end() if space else start


def _goes_on(text: str, first: int, boundary: re.Match[str], following: str) -> bool:
    """Return whether the sentence that began at `first` continues with the character `following` in spite of its closing mark.

    It does after an abbreviation or an initial, after one that may also end a sentence ("etc.") unless a capital follows, after a list
    number that is all of it so far, and after an ellipsis before lower case.
    """
    end = boundary.end()
    mark = boundary.group().strip("\"'\u2019\u201d)]")
    if mark == ".":
        near = max(first, end - LONGEST_ABBREVIATION)
        soft = _SOFT_ABBREVIATION.search(text, near, end) and not following.isupper()
        return bool(soft or _ABBREVIATION.search(text, near, end) or _ENUMERATOR.fullmatch(text, first, end))
    return mark in ("..", "...", "\u2026") and following.islower()


def has_emoji(text: str) -> bool:
    """Return whether the text holds a pictographic emoji (keycaps and flags count, plain digits and typographic signs do not)."""
    return _EMOJI.search(text) is not None
