"""What a message is about, by rules: the intents of swarms, own ones by registration, and which of an agent's swarms takes part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from agents.kit.text.tokens import split_sentences
from agents.swarm.models import Swarm

GENERAL = "general"
READ_CHARACTERS = 2_000  # of a message: who wants a meal logged says so at once
# Whose tools know what "that" is, or say that they do not.
COMMANDS = ("food_log", "food_undo", "kpi_today", "kpi_remaining")

# What can be eaten, what it holds, and how a person says that they ate it.
_FOODS = (
    r"eggs?|bread|toast|rice|pasta|noodles|chicken|beef|pork|fish|salmon|tuna|cheese|milk|yogh?urt|butter|oats|oatmeal|porridge|cereal|"
    r"apples?|bananas?|oranges?|berries|salad|soup|sandwich(?:es)?|pizza|burgers?|fries|potato(?:es)?|beans|nuts|cake|cookies?|chocolate|"
    r"coffee|latte|juice|beer|wine|shake|smoothie|steak|tofu|lentils|avocados?|breakfast|lunch|dinner|snack|meal"
)
_NUTRIENTS = r"calories|kcal|protein|carbs?|carbohydrates|fat|fib(?:re|er)|macros?|nutrients?"
_ASKED = re.compile(r"\?|^\s*(?:how|what|which|is|are|does|do|can|could|should|why|when)\b", re.IGNORECASE)
_EATEN = re.compile(
    rf"\bi(?:'ve| have)?(?: just| also| only)? (?:ate|eaten|drank)\b"
    rf"|\bi(?:'ve| have)?(?: just| also)? had\b[^.?!]{{0,200}}\b(?:{_FOODS})\b",
    re.IGNORECASE,
)
_LOG = re.compile(
    rf"^\W*(?:please |ok(?:ay)?,? |yes,? |and |now )*(?:log|track|record)\b(?:[^.?!]*\b(?:that|this|it|them|{_FOODS})\b)",
    re.IGNORECASE,
)
_DAYS = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_OTHER_MEAL = re.compile(  # one of another day, of another person, or of none
    rf"\b(?:yesterday|(?:days?|weeks?|months?|years?) ago"
    rf"|last (?:night|week(?:end)?|month|year|time|summer|winter|spring|autumn|fall|{_DAYS})|on {_DAYS}|the other day|used to"
    r"|(?:when|while|as) i (?:was|lived)|as a (?:kid|child)|if|said|says|told)\b"
    r"|\b(?:my|our) \w+(?:'s| ate| had| drank)\b|\b(?:his|her|their)\b",
    re.IGNORECASE,
)
_UNDO = re.compile(
    r"^\W*(?:please |no,? |oops,? |sorry,? )*(?:undo|delete|remove|scratch|take back)\b[^.?!]*\b(?:that|it|last|meal|entry|log(?:ged)?)\b"
    rf"|^\W*undo\W*$|\bi (?:did not|didn't) (?:eat|have) (?:that|it|the (?:{_FOODS}))\b",
    re.IGNORECASE,
)
_FOOD = re.compile(rf"\b(?:{_FOODS})\b", re.IGNORECASE)
_OF_FOOD = re.compile(rf"\b(?:{_FOODS}|{_NUTRIENTS})\b", re.IGNORECASE)
_NUTRIENT = re.compile(rf"\b(?:{_NUTRIENTS}|eat|eaten|goal|target)\b", re.IGNORECASE)
_TODAY = re.compile(r"\b(?:today|so far|this morning)\b", re.IGNORECASE)
_LEFT = re.compile(r"\b(?:left|remaining|remain|to go|still (?:have|eat|need)|more can i)\b", re.IGNORECASE)


def _asks(text: str) -> bool:
    return _ASKED.search(text) is not None


def _logs(text: str) -> bool:
    """Whether a person has a meal of their own logged that they ate today."""
    if _LOG.search(text):
        return _OTHER_MEAL.search(text) is None
    if _asks(text):
        return False
    return any(_EATEN.search(sentence) and not _OTHER_MEAL.search(sentence) for sentence in split_sentences(text))


Rule = Callable[[str], bool]

INTENTS: dict[str, Rule] = {  # the first whose rule holds; a message for which none holds is `general`
    "food_undo": lambda text: _UNDO.search(text) is not None,
    "kpi_remaining": lambda text: _asks(text) and bool(_LEFT.search(text) and _NUTRIENT.search(text)),
    "kpi_today": lambda text: _asks(text) and bool(_TODAY.search(text) and _NUTRIENT.search(text)),
    "food_log": _logs,
    "food_question": lambda text: _asks(text) and _OF_FOOD.search(text) is not None,
    "food_mention": lambda text: _FOOD.search(text) is not None,
}


def register_intent(name: str, rule: Rule) -> None:
    """Add an intent of one's own, e.g. in an app's `ready`; it is looked at before those of Plumbline.

    Args:
        name: Lower-case letters, digits and ``_``, as swarms name it.
        rule: Says of a message's text whether it has this intent; quick, and without a model.

    Raises:
        ValueError: The name is in use, or is no name.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        raise ValueError(f"intent {name!r}; allowed: a letter a-z, then up to 63 letters, digits and _")
    if name in intents():
        raise ValueError(f"intent {name!r} is registered already; allowed: a name of its own")
    others = dict(INTENTS)
    INTENTS.clear()
    INTENTS.update({name: rule, **others})


def intents() -> list[str]:
    """All names that a swarm may answer to."""
    return [GENERAL, *INTENTS]


def intent_of(text: str) -> str:
    """The intent of a message, from its beginning."""
    beginning = text[:READ_CHARACTERS]
    return next((name for name, rule in INTENTS.items() if rule(beginning)), GENERAL)


def chosen(swarms: Iterable[Swarm], intent: str) -> tuple[Swarm | None, Swarm | None]:
    """Of an agent's swarms the one that has the voice (of the intent `general`), and the role swarm of this intent, each if there is one.

    A role swarm brings tools and its own main prompts. Calibration and polish are those of the voice, or of the role swarm where the agent
    has no other.
    """
    enabled = [swarm for swarm in swarms if swarm.enabled]
    voice = next((swarm for swarm in enabled if GENERAL in swarm.intents), None)
    role = next((swarm for swarm in enabled if intent in swarm.intents), None)
    return voice, role if role is not voice else None
