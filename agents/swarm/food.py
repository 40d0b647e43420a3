"""An example of role swarms and their tools: look up what food holds, log a meal, take the last one back, and add up the day.

What is looked up is kept in the dialog state (`last_tool`), so that "log that" needs no second look-up. The log is the turns' own record:
the answers of `log` and `undo` in this conversation, read in their order; what a turn did before it failed is not done twice when its
message is tried again. Nothing of a simulation is counted elsewhere, for it has a channel of its own.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agents.kit import llm
from agents.kit.text.reading import CARDINALS
from agents.models import RunMessage
from agents.swarm.assign import ensure_swarm
from agents.swarm.intents import LEAD_IN, intent_of
from agents.swarm.models import DialogState, Swarm
from agents.swarm.state import updating
from agents.turn.pipeline import Turn
from agents.turn.tools import Performed, Tool, ToolFault, shown

MOST_FOODS = 20
LOG_THAT = re.compile(
    rf"\W*{LEAD_IN}(?:log|track|record) (?:that|this|it|them)(?: too)?(?: for me)?(?:,? please)?\W*", re.IGNORECASE
)


class Portion(BaseModel):
    """Some of one food."""

    model_config = ConfigDict(extra="forbid", strict=True)

    food: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=60)] = Field(
        description="what it is, e.g. egg"
    )
    amount: Annotated[float, Field(gt=0, le=1000, strict=False)] = Field(1, description="how many portions")


Foods = Annotated[list[Portion], Field(min_length=1, max_length=MOST_FOODS)]


class LookUp(Tool):
    """Look up the calories and the protein of food. It is not logged."""

    foods: Foods = Field(description="what to look up")

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        portions = _with_nutrients(self.foods)
        _keep_as_last_tool(turn, "look_up", portions)
        return Performed(f"{_portions_in_one_line(portions)}.", detail={"looked_up": portions})

    @classmethod
    def scripted(cls, message: str) -> dict[str, Any] | None:
        foods = _named_portions(message)
        return {"foods": foods} if foods and intent_of(message) == "food_question" else None


class Log(Tool):
    """Log what the person ate today, no other's meal. Without foods it logs what was looked up last. Confirm it in one short line."""

    foods: Annotated[list[Portion], Field(max_length=MOST_FOODS)] = Field(
        default_factory=list, description="what was eaten; leave it out to log what was looked up last"
    )

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        portions = _with_nutrients(self.foods) if self.foods else _looked_up_and_not_logged(turn)
        logged_before = _foods_of_earlier_tries(turn, "logged")
        new_portions = [food for food in portions if food not in logged_before]
        if not new_portions:
            return Performed(f"Logged already: {_portions_in_one_line(portions)}.")
        _keep_as_last_tool(turn, "log", new_portions)
        return Performed(f"Logged: {_portions_in_one_line(new_portions)}.", detail={"logged": new_portions})

    @classmethod
    def scripted(cls, message: str) -> dict[str, Any] | None:
        foods = _named_portions(message)
        if intent_of(message) != "food_log" or not (foods or LOG_THAT.fullmatch(message)):
            return None
        return {"foods": foods} if foods else {}


class Undo(Tool):
    """Take the meal that was logged last today out of the log again."""

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        removed_before = _foods_of_earlier_tries(turn, "removed")
        if removed_before:
            return Performed(f"Removed already: {_portions_in_one_line(removed_before)}.")
        meals = logged_today(turn)
        if not meals:
            raise ToolFault("Nothing is logged today in this conversation; allowed: to undo what was logged.")
        _keep_as_last_tool(turn, "undo", meals[-1])
        return Performed(f"Removed: {_portions_in_one_line(meals[-1])}.", detail={"removed": meals[-1]})

    @classmethod
    def scripted(cls, message: str) -> dict[str, Any] | None:
        return {} if intent_of(message) == "food_undo" else None


class Day(Tool):
    """Add up what the person logged today, and what is left of their goal."""

    goal: Annotated[float, Field(gt=0, le=20_000, strict=False)] | None = Field(
        None, description="calories a day that the person aims for, if they said so"
    )

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        # The answer is, e.g., "Logged today: 540 kcal, 21 g protein. Left of 2000 kcal: 1460 kcal." (below 0 where they ate more).
        foods: Portions = []
        for meal in logged_today(turn):
            foods += meal
        kcal = sum(food["kcal"] for food in foods)
        protein = sum(food["protein"] for food in foods)
        answer = f"Logged today: {kcal:.0f} kcal, {protein:.0f} g protein."
        if self.goal:
            answer += f" Left of {self.goal:g} kcal: {self.goal - kcal:.0f} kcal."
        return Performed(answer, detail={"kcal": kcal})

    @classmethod
    def scripted(cls, message: str) -> dict[str, Any] | None:
        return {} if intent_of(message) in ("kpi_today", "kpi_remaining") else None


Portions = list[dict[str, Any]]  # each food with its name, amount, portion, kcal and protein


def logged_today(turn: Turn) -> list[Portions]:
    """Return the meals of this conversation that were logged since midnight (TIME_ZONE) and not taken back, oldest first.

    Each removal takes back the meal that was logged last before it. Answers of refused calls neither log nor remove.
    """
    meals: list[Portions] = []
    for answer in _answers_of_log(turn):
        detail = answer.content["detail"]
        if "logged" in detail:
            meals.append(detail["logged"])
        elif "removed" in detail and meals:
            meals.pop()
    return meals


def _answers_of_log(turn: Turn) -> list[RunMessage]:
    """Return what `log` and `undo` answered in this conversation since midnight (TIME_ZONE), oldest first."""
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    answers = RunMessage.objects.filter(
        run__agent=turn.agent,
        run__channel=turn.channel,
        role=RunMessage.Role.TOOL,
        tool_name__in=("log", "undo"),
        created_at__gte=midnight,
    )
    return list(answers.select_related("run").order_by("pk"))


def _foods_of_earlier_tries(turn: Turn, done: str) -> Portions:
    """Return what earlier turns for the same message ``logged`` or ``removed``: they failed after that, and it is tried again."""
    foods: Portions = []
    if turn.trigger is None:
        return foods
    for answer in _answers_of_log(turn):
        if answer.run.trigger_id == turn.trigger.pk and answer.run != turn.run:
            foods += answer.content["detail"].get(done, [])
    return foods


def ensure_food_swarms() -> list[Swarm]:
    """Return the two swarms of the example, stored if they are not there; no agent is assigned."""
    return [ensure_swarm(values) for values in _data()["swarms"]]


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("food.yaml").read_text(encoding="utf-8"))
    return data


@cache
def _foods() -> dict[str, dict[str, Any]]:
    """Return the rows of the food table by each of their names."""
    foods: dict[str, dict[str, Any]] = {}
    for row in _data()["foods"]:
        for name in row["names"]:
            foods[name] = row
    return foods


def _with_nutrients(portions: list[Portion]) -> Portions:
    """Return portions with their calories (kcal) and protein (grams), each for the whole amount.

    Raises:
        ToolFault: A food is not in the table.
    """
    with_nutrients: Portions = []
    for portion in portions:
        name = portion.food.casefold()
        row = _foods().get(name)
        if row is None:
            allowed = ", ".join(sorted({row["names"][0] for row in _foods().values()}))
            raise ToolFault(f"The field foods names {shown(portion.food)}; allowed: {allowed}.")
        with_nutrients.append(
            {
                "name": name,
                "amount": portion.amount,
                "portion": row["portion"],
                "kcal": round(row["kcal"] * portion.amount),
                "protein": round(row["protein"] * portion.amount, 1),
            }
        )
    return with_nutrients


def _portions_in_one_line(portions: Portions) -> str:
    """Return portions in one line with their sums, e.g. ``2 eggs and toast (1 x slice), 236 kcal, 16 g protein``."""
    names: list[str] = []
    for food in portions:
        name = food["name"]
        amount = f"{food['amount']:g}"
        is_counted = food["portion"] in _foods()[name]["names"]  # an egg is its own portion; bread comes in slices
        names.append(f"{amount} {name}" if is_counted else f"{name} ({amount} x {food['portion']})")
    kcal = sum(food["kcal"] for food in portions)
    protein = sum(food["protein"] for food in portions)
    return f"{' and '.join(names)}, {kcal:.0f} kcal, {protein:.0f} g protein"


def _keep_as_last_tool(turn: Turn, tool: str, portions: Portions) -> None:
    """Keep in the dialog state what a tool looked up, logged or removed."""
    with updating(turn.agent, turn.channel) as state:
        state.last_tool = {"name": tool, "ok": True, "looked_up": portions}


def _looked_up_and_not_logged(turn: Turn) -> Portions:
    """Return what this conversation looked up last; or the meal that was taken back, where that was later.

    Raises:
        ToolFault: Nothing, or it is logged already.
    """
    state = DialogState.objects.filter(agent=turn.agent, channel=turn.channel).only("last_tool").first()
    last_tool = state.last_tool if state else {}
    portions: Portions = last_tool.get("looked_up", [])
    if not portions:
        raise ToolFault("Nothing was looked up in this conversation; allowed: the field foods with what was eaten.")
    if last_tool["name"] == "log":
        raise ToolFault(
            f"It is logged already ({_portions_in_one_line(portions)}); allowed: the field foods, to log it once more."
        )
    return portions


def _named_portions(message: str) -> list[dict[str, Any]]:
    """Return the foods of the table that a message names, with the number before each, or 1; at most `MOST_FOODS`.

    A food is left out where the word before it is an amount that cannot be read, as in "a dozen eggs".
    """
    names = "|".join(sorted(map(re.escape, _foods()), key=len, reverse=True))
    pattern = rf"(?<![\w-])(?:(?P<word_before>\S+)\s+)?(?<![\w-])(?P<food>{names})\b"
    portions: list[dict[str, Any]] = []
    for match in re.finditer(pattern, message.casefold()):
        amount = _amount(match["word_before"] or "")
        if amount is not None:
            portions.append({"food": match["food"], "amount": amount})
    return portions[:MOST_FOODS]


def _amount(word: str) -> float | None:
    """Return the number that a word before a food is, or 1 where it is none, such as "an"; None where it is one that cannot be read.

    That is "dozen" or "half", "2-3", "1/2", and "of", before which the amount stands ("a cup of rice").
    """
    if word in CARDINALS:
        return float(CARDINALS[word])
    if re.fullmatch(r"\d+(?:[.,]\d{1,2})?", word):
        return float(word.replace(",", "."))
    has_digit = any(char.isdigit() for char in word)
    if has_digit or "-" in word or word in ("of", "dozen", "half", "hundred", "thousand"):
        return None
    return 1.0
