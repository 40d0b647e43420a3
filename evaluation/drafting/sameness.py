"""Whether a proposition says what another one says already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agents.text.vocabulary import vocabulary
from evaluation.propositions.rules import Rule
from evaluation.propositions.schema import Proposition, PropositionSpec

ALIKE = 0.75  # share of the words of two claims that both have, from which they say the same
# What turns a claim into its opposite: a claim and the anti-pattern of its opposite are one.
_NEGATIONS = frozenset("no not never without avoid avoids doesn't don't isn't".split())  # noqa: SIM905 (words)


@dataclass(frozen=True, slots=True)
class Existing:
    """What is compared of a proposition."""

    id: str
    words: frozenset[str]
    checks: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, found: Proposition | PropositionSpec) -> Existing:
        words = vocabulary([found.claim.replace("{{agent_name}}", " ")]) - _NEGATIONS
        return cls(found.id, words, tuple(found.rule.checks().items()) if isinstance(found.rule, Rule) else ())


def says_the_same(new: Existing, existing: Iterable[Existing]) -> str:
    """The id of one that says what the new one says; empty when there is none.

    A rule says the same when the other's rule cannot hold without it; other claims when at least three quarters of their words
    are the same. A rule and a claim with the same words say the same, too.
    """
    for other in existing:
        if new.checks and other.checks:
            if all(_covered(name, value, dict(other.checks)) for name, value in new.checks):
                return other.id
        elif _alike(new.words, other.words):
            return other.id
    return ""


def _covered(name: str, value: Any, others: dict[str, Any]) -> bool:
    """Whether what one check asks for is asked for by the others."""
    if name not in others:
        return False
    other = others[name]
    if name.startswith("max_"):
        return bool(other <= value)
    if name.startswith("min_"):
        return bool(other >= value)
    if name in ("contains_none", "contains_all"):
        return set(map(str.lower, value)) <= set(map(str.lower, other))
    return bool(other == value)


def _alike(a: frozenset[str], b: frozenset[str]) -> bool:
    both = len(a | b)
    return bool(both) and len(a & b) / both >= ALIKE
