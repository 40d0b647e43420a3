"""Rules: checks of a text that need no model. Exact, free, the same online and offline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from agents.text.patterns import Undecided, check_phrase, find, find_all
from agents.text.tokens import has_emoji, split_sentences, tokenize


def _regex(value: str) -> str:
    check_phrase(f"/{value}/")
    return value


def _phrase(value: str) -> str:
    check_phrase(value)
    return value


Regex = Annotated[str, Field(min_length=1), AfterValidator(_regex)]
Phrase = Annotated[str, Field(min_length=1), AfterValidator(_phrase)]
Count = Annotated[int, Field(ge=0, le=100_000)]


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

    @model_validator(mode="after")
    def _has_a_check(self) -> Rule:
        if not self.checks():
            raise ValueError(f"a rule needs at least one check; allowed: {', '.join(type(self).model_fields)}")
        return self

    def checks(self) -> dict[str, Any]:
        """The checks that are set, by name. ``lowercase: false`` and ``no_emoji: false`` check nothing."""
        return {name: value for name, value in self.model_dump(exclude_none=True).items() if value is not False}


def _at_most(what: str, count: Callable[[str], int]) -> Callable[[str, Any], str]:
    return lambda text, limit: "" if (n := count(text)) <= limit else f"{n} {what}, at most {limit} allowed"


def _at_least(what: str, count: Callable[[str], int]) -> Callable[[str, Any], str]:
    return lambda text, limit: "" if (n := count(text)) >= limit else f"{n} {what}, at least {limit} required"


def _sentences(text: str) -> int:
    return len(split_sentences(text))


def _words(text: str) -> int:
    return len(tokenize(text))


def _matches(text: str, pattern: str) -> str:
    return "" if find(f"/{pattern}/", text) else f"nothing matches {pattern!r}"


def _not_matches(text: str, pattern: str) -> str:
    found = find(f"/{pattern}/", text)
    return f"{found.group()!r} matches {pattern!r}" if found else ""


def _contains_any(text: str, phrases: list[str]) -> str:
    found, undecided = find_all(phrases, text)
    if not found and undecided:
        raise next(iter(undecided.values()))
    return "" if found else f"none of {', '.join(map(repr, phrases))} occurs"


def _contains_all(text: str, phrases: list[str]) -> str:
    found, undecided = find_all(phrases, text)
    missing = [phrase for phrase in phrases if phrase not in found and phrase not in undecided]
    if not missing and undecided:
        raise next(iter(undecided.values()))
    return f"missing: {', '.join(map(repr, missing))}" if missing else ""


def _contains_none(text: str, phrases: list[str]) -> str:
    found, undecided = find_all(phrases, text)
    if not found and undecided:
        raise next(iter(undecided.values()))
    return f"contains {', '.join(map(repr, found))}" if found else ""


CHECKS: dict[str, Callable[[str, Any], str]] = {
    "max_sentences": _at_most("sentences", _sentences),
    "min_sentences": _at_least("sentences", _sentences),
    "max_words": _at_most("words", _words),
    "min_words": _at_least("words", _words),
    "max_characters": _at_most("characters", len),
    "matches": _matches,
    "not_matches": _not_matches,
    "contains_any": _contains_any,
    "contains_all": _contains_all,
    "contains_none": _contains_none,
    "lowercase": lambda text, _: "has upper-case letters" if any(char.isupper() for char in text) else "",
    "no_emoji": lambda text, _: "has an emoji" if has_emoji(text) else "",
}


def check_rule(rule: Rule, text: str) -> list[str]:
    """What the text breaks of the rule, one sentence per broken check; an empty list means that the rule holds.

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
        else:
            problems += [problem] if problem else []
    if undecided is not None and not problems:
        raise undecided
    return problems


@dataclass(frozen=True, slots=True)
class Target:
    """What a precondition looks at: the text under judgement and where it was said."""

    text: str
    channel_kind: str = ""
    is_reply: bool = False


Precondition = Callable[[Target, Mapping[str, object], Mapping[str, str]], bool]
PRECONDITIONS: dict[str, Precondition] = {}


def precondition(function: Precondition) -> Precondition:
    """Register a precondition under its function's name, for use in proposition files.

    It is called with the target, additional context, and the claim's variables, and answers whether the claim applies.
    """
    PRECONDITIONS[function.__name__] = function
    return function


@precondition
def is_reply(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    """The message answers another one in a thread."""
    return target.is_reply


@precondition
def in_direct_message(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    """The message was sent in a direct message."""
    return target.channel_kind == "dm"


@precondition
def in_group(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    """The message was sent where more than two can read it."""
    return target.channel_kind != "dm"


@precondition
def asks_something(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    """The message holds a question mark."""
    return any(mark in target.text for mark in "?？؟")


@precondition
def has_ten_words(target: Target, context: Mapping[str, object], variables: Mapping[str, str]) -> bool:
    """The message has at least ten words."""
    return len(tokenize(target.text)) >= 10
