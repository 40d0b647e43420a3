"""Rules and preconditions: checks of a message that need no model. Exact, free, the same online and offline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from agents.text.patterns import Undecided, check_phrase, find, find_all
from agents.text.tokens import has_emoji, split_sentences, tokenize


def _phrase(value: str) -> str:
    check_phrase(value)
    return value


def _regex(value: str) -> str:
    return _phrase(f"/{value}/")[1:-1]


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


def _limit(what: str, count: Callable[[str], int], *, most: bool) -> Callable[[str, Any], str]:
    def check(text: str, limit: int) -> str:
        n = count(text)
        if n <= limit if most else n >= limit:
            return ""
        return f"{n} {what}, at most {limit} allowed" if most else f"{n} {what}, at least {limit} required"

    return check


def _sentences(text: str) -> int:
    return len(split_sentences(text))


def _words(text: str) -> int:
    return len(tokenize(text))


def _matches(text: str, pattern: str) -> str:
    return "" if find(f"/{pattern}/", text) else f"nothing matches {pattern!r}"


def _not_matches(text: str, pattern: str) -> str:
    match = find(f"/{pattern}/", text)
    return f"{match.group()!r} matches {pattern!r}" if match else ""


def _contains_any(text: str, phrases: list[str]) -> str:
    matches, undecided = find_all(phrases, text)
    return "" if matches else _unless(undecided, f"none of {', '.join(map(repr, phrases))} occurs")


def _contains_all(text: str, phrases: list[str]) -> str:
    matches, undecided = find_all(phrases, text)
    missing = [phrase for phrase in phrases if phrase not in matches and phrase not in undecided]
    return f"missing: {', '.join(map(repr, missing))}" if missing else _unless(undecided, "")


def _contains_none(text: str, phrases: list[str]) -> str:
    matches, undecided = find_all(phrases, text)
    return f"contains {', '.join(map(repr, matches))}" if matches else _unless(undecided, "")


def _unless(undecided: dict[str, Undecided], problem: str) -> str:
    """Return the problem, unless a pattern cannot say whether there is one."""
    for reason in undecided.values():
        raise reason
    return problem


CHECKS: dict[str, Callable[[str, Any], str]] = {
    "max_sentences": _limit("sentences", _sentences, most=True),
    "min_sentences": _limit("sentences", _sentences, most=False),
    "max_words": _limit("words", _words, most=True),
    "min_words": _limit("words", _words, most=False),
    "max_characters": _limit("characters", len, most=True),
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


Precondition = Callable[[Target, Mapping[str, object], Mapping[str, str]], bool]  # additional context, variables
# By the name in proposition files: whether the proposition applies. Where it does not, it is trivially true (AC-6.0.15).
PRECONDITIONS: dict[str, Precondition] = {
    "is_reply": lambda target, context, variables: target.is_reply,  # to another message, in a thread
    "in_direct_message": lambda target, context, variables: target.channel_kind == "dm",
    "in_group": lambda target, context, variables: target.channel_kind != "dm",  # more than two can read it
    "asks_something": lambda target, context, variables: any(mark in target.text for mark in "?？؟"),
    "has_ten_words": lambda target, context, variables: len(tokenize(target.text)) >= 10,
}
