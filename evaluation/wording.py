"""How judges, dimensions and costs are written for people, and costs as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.kit.text.wording import counted, money
from evaluation.models import COUNTED, is_heuristic

if TYPE_CHECKING:
    from agents.kit.llm.ledger import Totals


def judge_label(judge: str) -> str:
    """The judge's name with its badge."""
    return f"{judge} (heuristic)" if is_heuristic(judge) else judge


def cost_line(spent: Totals, *, exact: bool = False) -> str:
    """Calls, tokens and cost; what is not priced is said to be so."""
    if exact or not spent.calls:
        return "no call was made, it cost nothing"
    cost = money(None if spent.unpriced == spent.calls else spent.cost_usd, spent.unpriced)
    return f"{counted(spent.calls, 'call')}, {spent.input_tokens:,} tokens in, {spent.output_tokens:,} out, cost {cost}"


def spent_json(spent: Totals) -> dict[str, Any]:
    """Calls, tokens and cost as data; a cost that is not wholly known is None."""
    return {
        "calls": spent.calls,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": None if spent.unpriced else float(spent.cost_usd),
        "unpriced_calls": spent.unpriced,
    }


def heading_of(name: str, *, narrow: bool) -> str:
    """A dimension's name as a heading; one that is counted says so."""
    if name in COUNTED:
        return "Ideas (n)"
    return short(name) if narrow else name.capitalize()


def short(name: str) -> str:
    """A dimension's name as a narrow heading."""
    return name.capitalize() if len(name) < 9 else f"{name[:5].capitalize()}."
