"""Write judges, dimensions and costs for people, and costs as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.kit.text.wording import counted, money
from evaluation.models import COUNTED, is_heuristic
from evaluation.statistics.difference import LEAST_P

if TYPE_CHECKING:
    from agents.kit.llm.ledger import Totals


def judge_label(judge: str) -> str:
    """Write the judge's name with its mark."""
    if is_heuristic(judge):
        return f"{judge} (heuristic)"
    return judge


def cost_line(spent: Totals, *, exact: bool = False) -> str:
    """Write calls, tokens and cost; what has no price is *unpriced*."""
    if exact or not spent.calls:
        return "no call was made, it cost nothing"
    has_price = spent.unpriced < spent.calls
    cost = money(spent.cost_usd if has_price else None, spent.unpriced)
    return f"{counted(spent.calls, 'call')}, {spent.input_tokens:,} tokens in, {spent.output_tokens:,} out, cost {cost}"


def spent_json(spent: Totals) -> dict[str, Any]:
    """Dump calls, tokens and cost; a cost that is not wholly known is None."""
    return {
        "calls": spent.calls,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": None if spent.unpriced else float(spent.cost_usd),
        "unpriced_calls": spent.unpriced,
    }


def p_text(p: float) -> str:
    """Write a p with two digits that count, e.g. ``0.012``, or ``< 1e-300``."""
    return f"< {LEAST_P}" if p <= LEAST_P else f"{p:.2g}"


def heading_of(name: str, *, narrow: bool) -> str:
    """Return a dimension's name as a heading; one that is counted says so."""
    if name in COUNTED:
        return "Ideas (n)"
    if narrow:
        return short(name)
    return name.capitalize()


def short(name: str) -> str:
    """Return a dimension's name as a narrow heading."""
    if len(name) < 9:
        return name.capitalize()
    return f"{name[:5].capitalize()}."


def rate(score: float, of_ten: int) -> str:
    """Return in how many of ten messages a rule holds, by its mean score of 9 and 0, and in how many it should."""
    return f"in {10 * score / 9:.1f} of 10 messages; at least {of_ten} are asked for"
