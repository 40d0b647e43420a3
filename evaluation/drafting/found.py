"""What the readers of a persona's sentences share: what they find, and when a sentence is too soft to make a rule of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

HEDGE = re.compile(
    r"\b(usually|mostly|(?<!at )(?<!at the )most|often|about|around|roughly|tends?|typically|sometimes|generally|prefer\w*"
    r"|rarely|seldom|hardly|almost|nearly|barely|likes? to|may|might|can|could|try|tries|mainly|normally|occasionally"
    r"|first|last)\b",
    re.IGNORECASE,
)
NOT = re.compile(r"\b(never|not|no|don['\u2019]t|doesn['\u2019]t)\b", re.IGNORECASE)
_CLAUSE = re.compile(r"[.;:(),\u2014\u2013]")


@dataclass(frozen=True, slots=True)
class Found:
    """A rule, and the words it was found in.

    Attributes:
        id: What it is about, the same for the same thing.
        says: The claim without its subject: ``uses no emoji``.
        rule: The checks.
        quote: The words of the persona.
        advice: What to do when it is broken.
    """

    id: str
    says: str
    rule: dict[str, Any]
    quote: str
    advice: str


def clause_before(sentence: str, place: int) -> str:
    """The part of the clause that stands before a place: what hedges there hedges it."""
    return _CLAUSE.split(sentence[:place])[-1]


def is_hedged(sentence: str, match: re.Match[str]) -> bool:
    """Whether what matched is said with a reservation."""
    return bool(HEDGE.search(clause_before(sentence, match.start())) or HEDGE.search(match.group()))
