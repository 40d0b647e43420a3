"""Named conditions under which a proposition applies (AC-6.0.15). Where one is false the proposition is trivially true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agents.text.tokens import tokenize


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
