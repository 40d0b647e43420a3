"""Rules: exact checks of a text that need no judge, each of which says in a sentence what the text breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from agents.kit.text.edits import GUARDS
from agents.kit.text.patterns import Undecided, check_phrase, find, find_all
from agents.kit.text.reading import parse_text
from agents.kit.text.tokens import has_emoji, split_sentences, tokenize


def _checked_phrase(value: str) -> str:
    """Return a phrase, or pattern between slashes, that can be searched for."""
    check_phrase(value)
    return value


def _checked_regex(value: str) -> str:
    """Return a pattern that can be searched for."""
    check_phrase(f"/{value}/")
    return value


Regex = Annotated[str, Field(min_length=1), AfterValidator(_checked_regex)]
Phrase = Annotated[str, Field(min_length=1), AfterValidator(_checked_phrase)]
Count = Annotated[int, Field(ge=0, le=100_000)]
# What a rule may hold a message to; the other two compare a text with its rewriting.
GUARDED = tuple(name for name in GUARDS if name not in ("sentences", "questions"))


def _known_guards(only: dict[str, str]) -> dict[str, str]:
    """Refuse unknown guards."""
    for name in only:
        if name not in GUARDED:
            raise ValueError(f"unknown guard {name!r}; allowed: {', '.join(GUARDED)}")
    return only


Reference = Annotated[str, Field(max_length=20_000)]


class Rule(BaseModel):
    """What a message must satisfy. Several keys in one rule must all hold."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    max_sentences: Count | None = Field(None, description="at most this many sentences")
    min_sentences: Count | None = Field(None, description="at least this many sentences")
    max_words: Count | None = Field(None, description="at most this many words")
    min_words: Count | None = Field(None, description="at least this many words")
    max_characters: Count | None = Field(None, description="at most this many characters")
    matches: Regex | None = Field(None, description="a regular expression (case ignored) that must be found")
    not_matches: Regex | None = Field(None, description="a regular expression (case ignored) that must not be found")
    contains_any: list[Phrase] | None = Field(None, min_length=1, description="at least one of these phrases")
    contains_all: list[Phrase] | None = Field(None, min_length=1, description="every one of these phrases")
    contains_none: list[Phrase] | None = Field(None, min_length=1, description="none of these phrases")
    lowercase: bool | None = Field(None, description="true: no upper-case letter")
    no_emoji: bool | None = Field(None, description="true: no emoji")
    only: Annotated[dict[str, Reference], Field(min_length=1), AfterValidator(_known_guards)] | None = Field(
        None, description="by guard, such as numbers or links: a text; the message holds no others than this text does"
    )

    @model_validator(mode="after")
    def _has_a_check(self) -> Rule:
        if not self.checks():
            raise ValueError(f"a rule needs at least one check; allowed: {', '.join(type(self).model_fields)}")
        return self

    def checks(self) -> dict[str, Any]:
        """Return the checks that are set, by name. ``lowercase: false`` and ``no_emoji: false`` check nothing."""
        return {name: value for name, value in self.model_dump(exclude_none=True).items() if value is not False}


# -- the checks of a rule: each returns what the text breaks, in a sentence; empty when it holds
def _at_most(what: str, count: Callable[[str], int]) -> Callable[[str, Any], str]:
    """Return a check that a text has at most so many of something."""

    def check(text: str, limit: int) -> str:
        number = count(text)
        return f"{number} {what}, at most {limit} allowed" if number > limit else ""

    return check


def _at_least(what: str, count: Callable[[str], int]) -> Callable[[str, Any], str]:
    """Return a check that a text has at least so many of something."""

    def check(text: str, limit: int) -> str:
        number = count(text)
        return f"{number} {what}, at least {limit} required" if number < limit else ""

    return check


def _count_sentences(text: str) -> int:
    return len(split_sentences(text))


def _count_words(text: str) -> int:
    return len(tokenize(text))


def _matches(text: str, pattern: str) -> str:
    return "" if find(f"/{pattern}/", text) else f"nothing matches {pattern!r}"


def _not_matches(text: str, pattern: str) -> str:
    match = find(f"/{pattern}/", text)
    return f"{match.group()!r} matches {pattern!r}" if match else ""


def _contains_any(text: str, phrases: list[str]) -> str:
    matches, undecided = find_all(phrases, text)
    if matches:
        return ""
    _raise_first(undecided)
    return f"none of {', '.join(map(repr, phrases))} occurs"


def _contains_all(text: str, phrases: list[str]) -> str:
    matches, undecided = find_all(phrases, text)
    missing = [phrase for phrase in phrases if phrase not in matches and phrase not in undecided]
    if missing:
        return f"missing: {', '.join(map(repr, missing))}"
    _raise_first(undecided)
    return ""


def _contains_none(text: str, phrases: list[str]) -> str:
    matches, undecided = find_all(phrases, text)
    if matches:
        return f"contains {', '.join(map(repr, matches))}"
    _raise_first(undecided)
    return ""


def _raise_first(undecided: dict[str, Undecided]) -> None:
    """Raise why a pattern could not say whether it matches; nothing where all could."""
    for reason in undecided.values():
        raise reason


def _only(text: str, references: dict[str, str]) -> str:
    """Say what the text has of each guard, such as numbers, that its reference has not; up to five of each, empty when nothing.

    E.g. ``not allowed: '42', '17' (numbers)``.
    """
    message = parse_text(text)
    problems = []
    for name, reference in references.items():
        added = GUARDS[name](parse_text(reference), message).added
        if added:
            problems.append(f"{', '.join(map(repr, added[:5]))} ({name})")
    return f"not allowed: {'; '.join(problems)}" if problems else ""


def _lowercase(text: str, _: bool) -> str:
    return "has upper-case letters" if any(character.isupper() for character in text) else ""


def _no_emoji(text: str, _: bool) -> str:
    return "has an emoji" if has_emoji(text) else ""


CHECKS: dict[str, Callable[[str, Any], str]] = {
    "max_sentences": _at_most("sentences", _count_sentences),
    "min_sentences": _at_least("sentences", _count_sentences),
    "max_words": _at_most("words", _count_words),
    "min_words": _at_least("words", _count_words),
    "max_characters": _at_most("characters", len),
    "matches": _matches,
    "not_matches": _not_matches,
    "contains_any": _contains_any,
    "contains_all": _contains_all,
    "contains_none": _contains_none,
    "lowercase": _lowercase,
    "only": _only,
    "no_emoji": _no_emoji,
}


def check_rule(rule: Rule, text: str) -> list[str]:
    """Return what the text breaks of the rule, one sentence per broken check; an empty list means that the rule holds.

    Where one check is broken, others that cannot be decided do not matter, and are not among the sentences.

    Raises:
        Undecided: No check is known to be broken, and a pattern of one of them cannot say.
    """
    problems: list[str] = []
    undecided: Undecided | None = None
    for name, value in rule.checks().items():
        try:
            problem = CHECKS[name](text, value)
        except Undecided as reason:
            undecided = undecided or reason
            continue
        if problem:
            problems.append(problem)
    if undecided is not None and not problems:
        raise undecided
    return problems


# Checks that a text which is still being written may break now and keep later. What breaks one of the others breaks it finally.
ONLY_OF_WHOLE_TEXTS = frozenset({"min_sentences", "min_words", "matches", "contains_any", "contains_all"})
# In a pattern: whether it matches depends on what follows.
_END_OF_TEXT = re.compile(r"(?<!\\)(?:\\\\)*(?:\$|\\[ZzB])|\(\?!")


def rule_while_growing(rule: Rule, *, inverted: bool) -> Rule | None:
    """Return what of a rule can be checked in a text that is still being written; None where it is nothing.

    Args:
        inverted: Whether the rule describes what must not be. Such a rule is checked only where a text that meets it keeps meeting it.
    """
    checks = rule.checks()
    if inverted:
        can_be_unmet_later = checks.keys() - ONLY_OF_WHOLE_TEXTS
        return None if can_be_unmet_later or _depends_on_end(checks.get("matches")) else rule
    kept = {}
    for name, value in checks.items():
        if name not in ONLY_OF_WHOLE_TEXTS and not (name == "not_matches" and _depends_on_end(value)):
            kept[name] = value
    return Rule(**kept) if kept else None


def _depends_on_end(pattern: str | None) -> bool:
    """Return whether a pattern that matches a text need not match it any more when more text follows."""
    return pattern is not None and _END_OF_TEXT.search(pattern) is not None
