"""How the effect of a request looks in a terminal and as data; the words for verdicts that the console has, too."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

from agents.commands import console_on, printable, snippet
from correction.behavior.before_after import RequestedChange
from correction.models import BehaviorEffect
from evaluation.runs.terminal import judge_label, money
from evaluation.wording import counted

_ASKED = {"more": "more of it was asked for", "less": "less of it was asked for", "otherwise": "it was reworded"}
_FOUND = {
    "more": "the agent does more of it since",
    "less": "the agent does less of it since",
    "no change shown": "no change shows: the interval of the difference holds zero",
    "cannot tell": "it cannot be told whether anything changed",
}


def verdict_words(result: dict[str, Any]) -> str:
    """What came out in a sentence, e.g. ``As requested: more of it was asked for, the agent does more of it since.``"""
    as_requested = result["as_requested"]
    start = "" if as_requested is None else "As requested: " if as_requested else "Not as requested: "
    text = f"{start}{_ASKED[result['expected']]}, {_FOUND[result['verdict']]}"
    return f"{text[0].upper()}{text[1:]}."


def estimate_words(estimate: dict[str, Any]) -> str:
    """``20 calls, about $0.0123``; that nothing is paid for a judge on this machine; that there is no price."""
    if not estimate["calls"]:
        return "no paid call"
    cost = "unpriced" if estimate["cost_usd"] is None else f"about ${float(estimate['cost_usd']):.4f}"
    return f"{counted(estimate['calls'], 'call')}, {cost}"


def cost_words(result: dict[str, Any]) -> str:
    """What it took: ``20 calls, $0.0123``."""
    if not result["actual_calls"]:
        return "no paid call"
    cost = None if result["actual_cost_usd"] is None else float(result["actual_cost_usd"])
    return f"{counted(result['actual_calls'], 'call')}, {money(cost, result['actual_unpriced_calls'])}"


def show_plan(change: RequestedChange, out: Any) -> None:
    """Say before anything is asked what there is to judge, and what it will take."""
    plan = change.plan
    out.write(f"{plan.agent.slug}: {snippet(plan.trait.name)} ({_ASKED[change.expected]})")
    messages = f"{counted(len(plan.before), 'message')} before, {len(plan.after)} after"
    out.write(f"{messages}{f' ({change.waits})' if change.waits else ''}; judge: {judge_label(plan.judge)}")
    cost = None if plan.cost_usd is None else str(plan.cost_usd)
    out.write(f"Estimate: {estimate_words({'calls': plan.calls, 'cost_usd': cost})}")


def show_effect(effect: BehaviorEffect, out: Any) -> None:
    """What came out, for people; nothing where it was not judged."""
    result = effect.result
    if not isinstance(result, dict):
        return
    table = Table("", "Mean (0 to 9)", "Scored", "Unscored", box=box.SIMPLE)
    for side in ("before", "after"):
        mean, without = result[f"mean_{side}"], result[f"{side}_unscored"] + result[f"{side}_trivial"]
        table.add_row(side, _number(mean), str(result[f"{side}_scored"]), str(without))
    console_on(out).print(table)
    out.write(f"Difference: {printable(difference_words(result))}")
    if (unscored := result["before_unscored"] + result["after_unscored"]) and (why := first_reason(result)):
        out.write(f"{counted(unscored, 'message')} could not be scored; the first: {snippet(why)}")
    out.write(verdict_words(result))
    out.write(f"Cost: {cost_words(result)}")


def difference_words(result: dict[str, Any]) -> str:
    """``+4.20 (95 % interval +3.10 to +5.30 if messages are independent)``, or why there is none."""
    if result["difference"] is None:
        return f"none: {result['reason']}" if result["reason"] else "none"
    if result["interval"] is None:
        return f"{result['difference']:+.2f}, without an interval: {result['reason']}"
    low, high = result["interval"]
    return f"{result['difference']:+.2f} (95 % interval {low:+.2f} to {high:+.2f} if messages are independent)"


def first_reason(result: dict[str, Any]) -> str:
    """Why the first message that was not scored was not."""
    return next((str(row["reason"]) for row in result["messages"] if row["status"] == "unscored"), "")


def effect_json(effect: BehaviorEffect) -> dict[str, Any]:
    """The effect as the command prints it: how it ended, and the result's fields."""
    result = effect.result if isinstance(effect.result, dict) else {}
    return {"effect": effect.pk, "status": effect.status, "error": effect.error, **result}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
