"""Lengths a persona sets: "one to three sentences, never more than four", "replies of at most twenty words"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evaluation.drafting.found import Found, is_hedged

_SMALL = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBERS = {word: number for number, word in enumerate(_SMALL, 1)} | {
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "a hundred": 100,
    "a single": 1,
}
_NUMBER = rf"(?:\d{{1,4}}|{'|'.join(_NUMBERS)})"
_UNIT = (
    r"(?:(?!sentences?\b|words?\b|characters?\b)[a-z-]+,? ){0,3}"
    r"(?P<unit>sentence|word|character)s?\b(?! (?:per|in (?:each|every|the|a)|long)\b)"
)
_AT_MOST = r"at (?:the )?most|(?:no|not|never) more than|never (?:[a-z]+ ){0,4}more than|a maximum of|up to"
_ANSWERS = r"\b(?:answers?|repl(?:y|ies)|speaks?|writes?) (?:only |always )?in (?:only |exactly )?"
_UPPER = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?P<low>{_NUMBER}) (?:to|or|-|\u2013) (?P<number>{_NUMBER}) {_UNIT}(?:,? (?:and )?never more than (?P<most>{_NUMBER})\b)?",
        rf"\b(?:{_AT_MOST}) (?P<number>{_NUMBER}) {_UNIT}",
        rf"\b(?P<number>{_NUMBER}) {_UNIT},? (?:at (?:the )?most|or (?:fewer|less)|maximum)\b",
        rf"\b(?P<below>fewer than|less than|under|below) (?P<number>{_NUMBER}) {_UNIT}",
        rf"{_ANSWERS}(?P<number>one|a single) (?P<unit>sentence)\b",
    )
)
_LOWER = (re.compile(rf"\b(?:at least|no fewer than|not less than) (?P<number>{_NUMBER}) {_UNIT}", re.IGNORECASE),)
_PART = re.compile(r"\b(paragraph|story|stories|speech|verse)s?\b", re.IGNORECASE)
_MESSAGE = re.compile(r"\b(messages?|repl(?:y|ies)|answers?|responses?|posts?|writes?|speaks?)\b", re.IGNORECASE)


def lengths(sentence: str) -> Iterator[Found]:
    """At most one upper and one lower bound of the length of a message."""
    for patterns, key, said in ((_UPPER, "max", "at most"), (_LOWER, "min", "at least")):
        for match in (found for pattern in patterns for found in pattern.finditer(sentence)):
            unit = match["unit"].lower() + "s"
            if is_hedged(sentence, match) or not _of_a_message(unit, sentence) or (key, unit) == ("min", "characters"):
                continue
            given = match.groupdict()
            number = _number(given.get("most") or match["number"]) - bool(given.get("below"))
            if number < 1:
                continue
            size = f"{number} {unit[:-1] if number == 1 else unit}"
            advice = f"Cut it to {size}." if key == "max" else f"Say more: {size} or more."
            says = f"writes {said} {size} in a message"
            yield Found(f"{said.replace(' ', '-')}-{unit}", says, {f"{key}_{unit}": number}, match.group(), advice)
            break


def _of_a_message(unit: str, sentence: str) -> bool:
    """Whether a limit is of a whole message: words may be those of a sentence, sentences those of a paragraph."""
    if unit == "sentences":
        return not _PART.search(sentence)
    return bool(_MESSAGE.search(sentence)) and not re.search(r"\bsentences?\b", sentence, re.IGNORECASE)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _NUMBERS[text.lower()]
