"""Preconditions of propositions (AC-6.0.15): ours, and a team's own functions (`PROPOSITION_PRECONDITIONS`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings

from agents.kit.team_functions import TeamFunctions, import_team_functions
from agents.kit.text.tokens import tokenize


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a precondition: the text under judgement and where it was said."""

    text: str
    channel_kind: str = ""
    is_reply: bool = False


Precondition = Callable[[Target, Mapping[str, object], Mapping[str, str]], bool]  # additional context, variables
# By the name in proposition files: whether the proposition applies. Where it does not, it is trivially true.
PRECONDITIONS: dict[str, Precondition] = {
    "is_reply": lambda target, context, variables: target.is_reply,  # to another message, in a thread
    "in_direct_message": lambda target, context, variables: target.channel_kind == "dm",
    "in_group": lambda target, context, variables: target.channel_kind != "dm",  # more than two can read it
    "asks_something": lambda target, context, variables: any(mark in target.text for mark in "?？؟"),
    "has_ten_words": lambda target, context, variables: len(tokenize(target.text)) >= 10,
}


def known_preconditions() -> dict[str, Precondition]:
    """Return all preconditions by name: those of this module, and of `PROPOSITION_PRECONDITIONS` those that can be used."""
    return {**PRECONDITIONS, **_team_preconditions(tuple(settings.PROPOSITION_PRECONDITIONS)).usable}


def precondition_problems() -> Mapping[str, str]:
    """Return the paths of `PROPOSITION_PRECONDITIONS` that cannot be used, each with what is wrong."""
    return _team_preconditions(tuple(settings.PROPOSITION_PRECONDITIONS)).problems


@lru_cache(maxsize=8)
def _team_preconditions(paths: tuple[str, ...]) -> TeamFunctions[Precondition]:
    return import_team_functions(paths, kind="precondition", taken=PRECONDITIONS, checked=_checked_precondition)


def _checked_precondition(function: Precondition) -> Precondition:
    """Return the function, if it takes what a precondition is given.

    Raises:
        ValueError: It takes other arguments.
    """
    arguments = list(inspect.signature(function).parameters)
    if len(arguments) != 3:
        raise ValueError(f"its arguments are ({', '.join(arguments)}); allowed: (target, context, variables)")
    return function
