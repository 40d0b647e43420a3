"""What a message is about, by rules: the intents of swarms, own ones by registration, and which of an agent's swarms takes part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agents.kit.text.tokens import split_sentences
from agents.swarm.models import Swarm

GENERAL = "general"
READ_CHARACTERS = 2_000  # of a message: who wants a meal logged says so at once
COMMANDS = (
    "food_log",
    "food_undo",
    "kpi_today",
    "kpi_remaining",
)  # carried out by a tool, which itself says what it lacks

# Words of the intents about food.
_FOODS = (
    r"eggs?|bread|toast|rice|pasta|noodles|chicken|beef|pork|fish|salmon|tuna|cheese|milk|yogh?urt|butter|oats|oatmeal|porridge|cereal|"
    r"apples?|bananas?|oranges?|berries|salad|soup|sandwich(?:es)?|pizza|burgers?|fries|potato(?:es)?|beans|nuts|cake|cookies?|chocolate|"
    r"coffee|latte|juice|beer|wine|shake|smoothie|steak|tofu|lentils|avocados?|breakfast|lunch|dinner|snack|meal"
)
_NUTRIENTS = r"calories|kcal|protein|carbs?|carbohydrates|fat|fib(?:re|er)|macros?|nutrients?"
_WEEKDAYS = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
# What may stand before what is asked for: "Yes, could you please …".
LEAD_IN = (
    r"(?:(?:please|ok(?:ay)?|yes|oops|sorry|and|now|(?:can|could|would|will) you|i(?:'d like| want) (?:you )?to),? )*"
)

_IS_QUESTION = re.compile(r"\?|^\s*(?:how|what|which|is|are|does|do|can|could|should|why|when)\b", re.IGNORECASE)
_NAMES_FOOD = re.compile(rf"\b(?:{_FOODS})\b", re.IGNORECASE)
_NAMES_FOOD_OR_NUTRIENT = re.compile(rf"\b(?:{_FOODS}|{_NUTRIENTS})\b", re.IGNORECASE)
_NAMES_DAILY_FIGURE = re.compile(rf"\b(?:{_NUTRIENTS}|eat|eaten|goal|target)\b", re.IGNORECASE)
_SAYS_TODAY = re.compile(r"\b(?:today|so far|this morning)\b", re.IGNORECASE)
_SAYS_LEFT = re.compile(r"\b(?:left|remaining|remain|to go|still (?:have|eat|need)|more can i)\b", re.IGNORECASE)
_SAYS_I_ATE = re.compile(
    rf"\bi(?:'ve| have)?(?: just| also| only)? (?:ate|eaten|drank)\b"
    rf"|\bi(?:'ve| have)?(?: just| also)? had\b[^.?!]{{0,200}}\b(?:{_FOODS})\b",
    re.IGNORECASE,
)
_ASKS_TO_LOG = re.compile(
    rf"^\W*{LEAD_IN}(?:log|track|record)\b(?:[^.?!]*\b(?:that|this|it|them|{_FOODS})\b)",
    re.IGNORECASE,
)
_ASKS_TO_UNDO = re.compile(
    rf"^\W*(?:no,? )?{LEAD_IN}(?:undo|delete|remove|scratch|take back)\b[^.?!]*\b(?:that|it|last|meal|entry|log(?:ged)?)\b"
    rf"|^\W*undo\W*$|\bi (?:did not|didn't) (?:eat|have) (?:that|it|the (?:{_FOODS}))\b",
    re.IGNORECASE,
)
_TELLS_OF_ANOTHER_MEAL = re.compile(  # of another day, of another person, or of none
    rf"\b(?:yesterday|(?:days?|weeks?|months?|years?) ago"
    rf"|last (?:night|week(?:end)?|month|year|time|summer|winter|spring|autumn|fall|{_WEEKDAYS})|on {_WEEKDAYS}|the other day|used to"
    r"|(?:when|while|as) i (?:was|lived)|as a (?:kid|child)|if|said|says|told)\b"
    r"|\b(?:my|our) \w+(?:'s| ate| had| drank)\b|\b(?:his|her|their)\b",
    re.IGNORECASE,
)


def _is_question(text: str) -> bool:
    return _IS_QUESTION.search(text) is not None


def _asks_to_undo(text: str) -> bool:
    return _ASKS_TO_UNDO.search(text) is not None


def _asks_what_is_left(text: str) -> bool:
    return _is_question(text) and bool(_SAYS_LEFT.search(text)) and bool(_NAMES_DAILY_FIGURE.search(text))


def _asks_about_today(text: str) -> bool:
    return _is_question(text) and bool(_SAYS_TODAY.search(text)) and bool(_NAMES_DAILY_FIGURE.search(text))


def _asks_to_log(text: str) -> bool:
    """Return whether a person wants a meal logged, or says that they ate one; only their own, and of today."""
    if _ASKS_TO_LOG.search(text):
        return _TELLS_OF_ANOTHER_MEAL.search(text) is None
    if _is_question(text):
        return False
    own_meals = [sentence for sentence in split_sentences(text) if _SAYS_I_ATE.search(sentence)]
    return any(not _TELLS_OF_ANOTHER_MEAL.search(sentence) for sentence in own_meals)


def _asks_about_food(text: str) -> bool:
    return _is_question(text) and _NAMES_FOOD_OR_NUTRIENT.search(text) is not None


def _names_food(text: str) -> bool:
    return _NAMES_FOOD.search(text) is not None


Rule = Callable[[str], bool]

INTENTS: dict[str, Rule] = {  # the first whose rule holds; a message for which none holds is `general`
    "food_undo": _asks_to_undo,
    "kpi_remaining": _asks_what_is_left,
    "kpi_today": _asks_about_today,
    "food_log": _asks_to_log,
    "food_question": _asks_about_food,
    "food_mention": _names_food,
}


def register_intent(name: str, rule: Rule) -> None:
    """Add an intent, e.g. in an app's `ready`; its rule is tried before those of Plumbline.

    Args:
        name: Lower-case letters, digits and ``_``; swarms answer to it by this name.
        rule: Returns whether a message's text has this intent; quick, and without a model.

    Raises:
        ValueError: The name is in use, or is no name.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        raise ValueError(f"intent {name!r}; allowed: a letter a-z, then up to 63 letters, digits and _")
    if name in intents():
        raise ValueError(f"intent {name!r} is registered already; allowed: a name of its own")
    later_intents = dict(INTENTS)
    INTENTS.clear()  # the same dictionary, with the new one first: other modules have imported it
    INTENTS[name] = rule
    INTENTS.update(later_intents)


def intents() -> list[str]:
    """Return all names that a swarm may answer to."""
    return [GENERAL, *INTENTS]


def intent_of(text: str) -> str:
    """Return the intent of a message, as its beginning shows it."""
    beginning = text[:READ_CHARACTERS]
    for name, rule in INTENTS.items():
        if rule(beginning):
            return name
    return GENERAL


@dataclass(frozen=True, slots=True)
class ChosenSwarms:
    """The swarms of an agent that take part in a turn.

    Attributes:
        voice: The swarm of the intent `general`, which calibrates and polishes.
        role: Another swarm, of the message's intent; it brings tools and main prompts of its own.
    """

    voice: Swarm | None
    role: Swarm | None


def swarms_for(swarms: Iterable[Swarm], intent: str) -> ChosenSwarms:
    """Choose among an agent's swarms, those that are off aside, the ones that take part in a turn of this intent.

    Of several for one intent the first counts. The role is None where the voice has the intent, too.
    """
    voice: Swarm | None = None
    role: Swarm | None = None
    for swarm in swarms:
        if not swarm.enabled:
            continue
        if GENERAL in swarm.intents:
            voice = voice or swarm
        if intent in swarm.intents:
            role = role or swarm
    if role is voice:
        role = None
    return ChosenSwarms(voice, role)
