"""Words a persona demands of every message, or forbids; and lower case. A habit (says "yeah") is no rule."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evaluation.drafting.found import NOT, Found, is_hedged

_QUOTED = '["\u201c\u201e][^"\u201c\u201d\u201e]{1,80}["\u201d\u201c]'
_PHRASE = re.compile('["\u201c\u201e]([^"\u201c\u201d\u201e]{1,80})["\u201d\u201c]')
_SAYS = r"(?:says?|uses?|writes?|includes?|adds?)"
_EVERY = r"(?:every|each) (?:message|reply|answer|post)"
_LOWER_CASE = re.compile(
    r"\b(?:writ(?:es?|ing)|typ(?:es?|ing)|texts?|speaks?)(?: \w+){0,2}? in (?:all[- ]|only )?lower[- ]?case\b"
    r"|\ball[- ]lower[- ]?case\b|\blower[- ]?case only\b",
    re.IGNORECASE,
)
_ENDS = "(?:end|close|finish|sign off|signs off|ends|closes|finishes)"
_PLACES = (
    ("ends", re.compile(rf"\b(?:always {_ENDS}|{_ENDS} {_EVERY}) with {_QUOTED}", re.IGNORECASE)),
    (
        "starts",
        re.compile(
            rf"\b(?:always (?:start|begin|open)s?|(?:start|begin|open)s? {_EVERY}) with {_QUOTED}", re.IGNORECASE
        ),
    ),
)
_ALWAYS = re.compile(rf"\balways {_SAYS} {_QUOTED}|\b{_SAYS} {_QUOTED} in {_EVERY}\b", re.IGNORECASE)
_NEVER = re.compile(
    rf"\b(?:never|do not|does not|don['\u2019]t|doesn['\u2019]t) {_SAYS} (?:the words? )?"
    rf"{_QUOTED}(?:(?:, or |, | or | and ){_QUOTED})*",
    re.IGNORECASE,
)


def lower_case(sentence: str) -> Iterator[Found]:
    match = _LOWER_CASE.search(sentence)
    if match and not is_hedged(sentence, match) and not NOT.search(sentence[: match.end()]):
        says, advice = "writes in lower case only", "Write it without capital letters."
        yield Found("lower-case", says, {"lowercase": True}, match.group(), advice)


def wording(sentence: str) -> Iterator[Found]:
    """What every message ends with, starts with, holds, or must not hold."""
    for where, pattern in _PLACES:
        match = pattern.search(sentence)
        if match and _is_plain(sentence, match):
            phrase = _phrases(match)[0]
            body = r"\s+".join(map(re.escape, phrase.split()))
            rule = {"matches": rf"{body}\W*\Z" if where == "ends" else rf"\A\W*{body}"}
            advice = f"The message {where} with \u201c{phrase}\u201d."
            yield Found(
                f"{where}-with", f"{where} every message with \u201c{phrase}\u201d", rule, match.group(), advice
            )
    match = _ALWAYS.search(sentence)
    if match and _is_plain(sentence, match):
        phrase = _phrases(match)[0]
        says, advice = f"says \u201c{phrase}\u201d in every message", f"Say \u201c{phrase}\u201d."
        yield Found("says-always", says, {"contains_all": [phrase]}, match.group(), advice)
    match = _NEVER.search(sentence)
    if match and not is_hedged(sentence, match):
        phrases = _phrases(match)
        says = "never says " + ", ".join(f"\u201c{phrase}\u201d" for phrase in phrases)
        yield Found("never-says", says, {"contains_none": phrases}, match.group(), "Find another word for it.")


def _is_plain(sentence: str, match: re.Match[str]) -> bool:
    return not is_hedged(sentence, match) and not NOT.search(sentence[: match.start()])


def _phrases(match: re.Match[str]) -> list[str]:
    """The quoted words, without the mark that closes a sentence inside of the quotation marks."""
    found = [phrase.strip() for phrase in _PHRASE.findall(match.group())]
    return [phrase.rstrip(",;") for phrase in found if phrase.strip(",;/ ")] or [""]
