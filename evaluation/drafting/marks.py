"""Marks a persona forbids: "no slang, emoji or exclamation marks"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from evaluation.drafting.found import NOT, Found, is_hedged

_Mark = tuple[str, str, str, dict[str, Any], str]  # as people write it, id, claim, rule, advice
_LIST_ITEM = r"(?:\A|\n)[^\S\n]*(?:[-*•]|\d{1,2}[.)])\s"
MARKS: tuple[_Mark, ...] = (
    ("emojis?|emoticons?", "no-emoji", "uses no emoji", {"no_emoji": True}, "Say it in words."),
    (
        "exclamation (?:mark|point)s?",
        "no-exclamation-marks",
        "uses no exclamation marks",
        {"not_matches": "!"},
        "End the sentence with a full stop.",
    ),
    (
        "question marks?",
        "no-question-marks",
        "uses no question marks",
        {"not_matches": r"\?"},
        "Say it as a statement.",
    ),
    ("semicolons?", "no-semicolons", "uses no semicolons", {"not_matches": ";"}, "Make two sentences of it."),
    ("hash ?tags?", "no-hashtags", "uses no hashtags", {"not_matches": r"#\w"}, "Leave the hashtags out."),
    ("links?|urls?", "no-links", "sends no links", {"not_matches": r"https?://|www\."}, "Say what the link shows."),
    (
        "capitals|capital letters?|upper[- ]?case(?: letters?)?",
        "lower-case",
        "writes in lower case only",
        {"lowercase": True},
        "Write it without capital letters.",
    ),
    (
        "bullet(?:ed)? (?:point|list)s?|bullets|(?:numbered )?lists",
        "no-lists",
        "writes no lists",
        {"not_matches": _LIST_ITEM},
        "Say it in running sentences.",
    ),
)
_VERBS = "use[sd]?|using|writ(?:e|es|ing)|typ(?:e|es|ing)|put(?:s|ting)?|send(?:s|ing)?|add(?:s|ing)?"
_NEGATOR = re.compile(
    r"\b(?P<no>never|no|not|don['\u2019]t|doesn['\u2019]t|avoids?|without)\b"
    rf"(?: (?:ever|{_VERBS}|in|with|any|an?))*\s+",
    re.IGNORECASE,
)
_LIST_END = re.compile(r"[.;:()!?\u2014]|\bbut\b")
_SEPARATOR = re.compile(r",|\b(?:or|and|nor)\b")
_USING = re.compile(rf"^(?:{_VERBS}|the use of) (?:an? |any |in )?", re.IGNORECASE)


def forbidden_marks(sentence: str) -> Iterator[Found]:
    """A mark each for the members of a list behind a negation.

    Each must stand alone: "no heaps of exclamation marks" forbids none. Nothing is made of "never avoid emoji".
    """
    for match in _NEGATOR.finditer(sentence):
        rest = _LIST_END.split(sentence[match.end() :], maxsplit=1)[0]
        doubled = re.search(rf"{NOT.pattern}\s+$", sentence[: match.start()], re.IGNORECASE)
        if doubled or is_hedged(sentence, match) or re.match("avoid|without|only", rest, re.IGNORECASE):
            continue
        place = 0
        for part in _SEPARATOR.split(rest):
            place = rest.index(part, place) + len(part)
            item = re.sub(r"^(?:no|any|an?|never|use) ", "", part.strip(), flags=re.IGNORECASE)
            yield from _named(item, sentence[match.start() : match.end() + place].strip())


def marks_of_trait(line: str) -> Iterator[Found]:
    """The mark of a trait of strength 0, ``uses emoji: …``: what is never to be done."""
    yield from _named(_USING.sub("", line.partition(":")[0].strip()), line)


def demanded_mark(sentence: str) -> Iterator[Found]:
    """The one mark that may be demanded of every message."""
    match = re.search(
        r"\b(?:at least one|an|one) exclamation (?:mark|point) (?:in|to|at the end of)\s+(?:every|each) (?:message|reply|answer|post)\b",
        sentence,
        re.IGNORECASE,
    )
    if match and not is_hedged(sentence, match):
        says = "puts an exclamation mark into every message"
        yield Found("exclamation-mark", says, {"matches": "!"}, match.group(), "Say it with an exclamation mark.")


def _named(item: str, quote: str) -> Iterator[Found]:
    for names, id_, says, rule, advice in MARKS:
        if re.fullmatch(names, item.strip(), re.IGNORECASE):
            yield Found(id_, says, rule, quote, advice)
