"""An example of role swarms and their tools: look up what food holds, log a meal, take the last one back, and add up the day.

What is looked up is kept in the dialog state (`last_tool`), so that "log that" needs no second look-up. The log is the turns' own record:
the answers of `log` and `undo` in this conversation, read in their order. Nothing of a simulation is counted elsewhere, for it has a
channel of its own.
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
from agents.swarm.intents import intent_of
from agents.swarm.models import DialogState, Swarm
from agents.swarm.state import updating
from agents.turn.pipeline import Turn
from agents.turn.tools import Performed, Tool, ToolFault, shown

MOST_FOODS = 20
THAT = re.compile(
    r"\W*(?:please |ok(?:ay)?,? |yes,? )*(?:log|track|record) (?:that|this|it|them)(?: please)?\W*", re.IGNORECASE
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
        held = _held(self.foods)
        _remember(turn, "look_up", held)
        return Performed(f"{_line(held)}.", detail={"looked_up": held})

    @classmethod
    def scripted(cls, message: str) -> dict[str, Any] | None:
        foods = _portions(message)
        return {"foods": foods} if foods and intent_of(message) == "food_question" else None


class Log(Tool):
    """Log what the person ate today, no other's meal. Without foods it logs what was looked up last. Confirm it in one short line."""

    foods: Annotated[list[Portion], Field(max_length=MOST_FOODS)] = Field(
        default_factory=list, description="what was eaten; leave it out to log what was looked up last"
    )

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        held = _held(self.foods) if self.foods else _looked_up(turn)
        _remember(turn, "log", held)
        return Performed(f"Logged: {_line(held)}.", detail={"logged": held})

    @classmethod
    def scripted(cls, message: str) -> dict[str, Any] | None:
        foods = _portions(message)
        if intent_of(message) != "food_log" or not (foods or THAT.fullmatch(message)):
            return None
        return {"foods": foods} if foods else {}


class Undo(Tool):
    """Take the meal that was logged last today out of the log again."""

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        meals = logged_today(turn)
        if not meals:
            raise ToolFault("Nothing is logged today in this conversation; allowed: to undo what was logged.")
        _remember(turn, "undo", meals[-1])
        return Performed(f"Removed: {_line(meals[-1])}.", detail={"removed": meals[-1]})

    @classmethod
    def scripted(cls, message: str) -> dict[str, Any] | None:
        return {} if intent_of(message) == "food_undo" else None


class Day(Tool):
    """Add up what the person logged today, and what is left of their goal."""

    goal: Annotated[float, Field(gt=0, le=20_000, strict=False)] | None = Field(
        None, description="calories a day that the person aims for, if they said so"
    )

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        foods = [food for meal in logged_today(turn) for food in meal]
        kcal, protein = sum(food["kcal"] for food in foods), sum(food["protein"] for food in foods)
        left = f" Left of {self.goal:g} kcal: {self.goal - kcal:.0f} kcal." if self.goal else ""
        return Performed(f"Logged today: {kcal:.0f} kcal, {protein:.0f} g protein.{left}", detail={"kcal": kcal})

    @classmethod
    def scripted(cls, message: str) -> dict[str, Any] | None:
        return {} if intent_of(message) in ("kpi_today", "kpi_remaining") else None


Held = list[dict[str, Any]]  # each food with its name, amount, portion, kcal and protein


def logged_today(turn: Turn) -> list[Held]:
    """The meals of this conversation that were logged today and not taken back, oldest first."""
    today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    answers = RunMessage.objects.filter(run__agent=turn.agent, run__channel=turn.channel, created_at__gte=today)
    answers = answers.filter(role=RunMessage.Role.TOOL, tool_name__in=("log", "undo"))
    meals: list[Held] = []
    for content in answers.order_by("pk").values_list("content", flat=True):
        if "logged" in content["detail"]:
            meals.append(content["detail"]["logged"])
        elif "removed" in content["detail"] and meals:
            meals.pop()
    return meals


def ensure_food_swarms() -> list[Swarm]:
    """The two swarms of the example, stored if they are not there; no agent is assigned."""
    return [ensure_swarm(values) for values in _data()["swarms"]]


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("food.yaml").read_text(encoding="utf-8"))
    return data


@cache
def _foods() -> dict[str, dict[str, Any]]:
    return {name: row for row in _data()["foods"] for name in row["names"]}


def _held(portions: list[Portion]) -> Held:
    """What the portions hold.

    Raises:
        ToolFault: A food is not in the table.
    """
    held = []
    for portion in portions:
        row = _foods().get(portion.food.casefold())
        if row is None:
            allowed = ", ".join(sorted({row["names"][0] for row in _foods().values()}))
            raise ToolFault(f"The field foods names {shown(portion.food)}; allowed: {allowed}.")
        holds = {"kcal": round(row["kcal"] * portion.amount), "protein": round(row["protein"] * portion.amount, 1)}
        held.append({"name": portion.food.casefold(), "amount": portion.amount, "portion": row["portion"], **holds})
    return held


def _line(held: Held) -> str:
    """It in one line, e.g. ``2 eggs, 156 kcal, 13 g protein``."""
    names = []
    for food in held:
        counted = food["portion"] in _foods()[food["name"]]["names"]
        n, name = f"{food['amount']:g}", food["name"]
        names.append(f"{n} {name}" if counted else f"{name} ({n} x {food['portion']})")
    kcal, protein = sum(food["kcal"] for food in held), sum(food["protein"] for food in held)
    return f"{' and '.join(names)}, {kcal:.0f} kcal, {protein:.0f} g protein"


def _remember(turn: Turn, name: str, held: Held) -> None:
    with updating(turn.agent, turn.channel) as state:
        state.last_tool = {"name": name, "ok": True, "looked_up": held}


def _looked_up(turn: Turn) -> Held:
    """What this conversation looked up last.

    Raises:
        ToolFault: Nothing, or it is logged already.
    """
    state = DialogState.objects.filter(agent=turn.agent, channel=turn.channel).only("last_tool").first()
    held: Held = state.last_tool.get("looked_up", []) if state else []
    if not held:
        raise ToolFault("Nothing was looked up in this conversation; allowed: the field foods with what was eaten.")
    if state and state.last_tool["name"] == "log":
        raise ToolFault(f"It is logged already ({_line(held)}); allowed: the field foods, to log it once more.")
    return held


def _portions(message: str) -> list[dict[str, Any]]:
    """The foods of the table that a message names, with the number before each, or 1; without those whose number cannot be read."""
    names = "|".join(sorted(map(re.escape, _foods()), key=len, reverse=True))
    named = re.findall(rf"(?<![\w-])(?:(\S+)\s+)?(?<![\w-])({names})\b", message.casefold())
    amounts = ((food, _amount(word)) for word, food in named)
    return [{"food": food, "amount": amount} for food, amount in amounts if amount is not None][:MOST_FOODS]


def _amount(word: str) -> float | None:
    """The value of the word before a food; None where it cannot be read."""
    if word in CARDINALS:
        return float(CARDINALS[word])
    if re.fullmatch(r"\d+(?:[.,]\d{1,2})?", word):
        return float(word.replace(",", "."))
    unclear = word in ("of", "dozen", "half", "hundred", "thousand") or "-" in word or any(map(str.isdigit, word))
    return None if unclear else 1.0
