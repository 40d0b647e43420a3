"""How numbers are written for people: one minus sign, whatever prints it. JSON and CSV hold plain numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from evaluation.models import COUNTED, is_heuristic

if TYPE_CHECKING:
    from agents.kit.llm.ledger import Totals
    from evaluation.statistics.bootstrap import Interval

MINUS = "−"


def decimal(value: float, digits: int = 1) -> str:
    """A number with so many decimals; one that rounds to nothing has no sign."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", MINUS)


def signed(value: float | None, digits: int = 1) -> str:
    """A difference with its sign; one that rounds to nothing has none."""
    if value is None:
        return "–"
    return f"{'+' if round(value, digits) > 0 else ''}{decimal(value, digits)}"


def interval_text(interval: Interval | None, *, sign: bool = True) -> str:
    """E.g. ``−2.1 to +0.4``."""
    write = signed if sign else decimal
    return "–" if interval is None else f"{write(interval.low)} to {write(interval.high)}"


def counted(n: int, one: str, many: str = "") -> str:
    """A number with its noun: ``1 judgement``, ``2 judgements``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def judge_label(judge: str) -> str:
    """The judge's name with its badge."""
    return f"{judge} (heuristic)" if is_heuristic(judge) else judge


def money(value: Decimal | float | None, unpriced: int = 0) -> str:
    """US dollars; ``unpriced`` when any call has no price, never 0."""
    if value is None or unpriced:
        return "unpriced" if not value else f"${value:.4f} + unpriced"
    return f"${value:.4f}"


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


def number(score: float | None) -> str:
    return "–" if score is None else f"{score:.1f}"


def heading_of(name: str, *, narrow: bool) -> str:
    """A dimension's name as a heading; one that is counted says so."""
    if name in COUNTED:
        return "Ideas (n)"
    return short(name) if narrow else name.capitalize()


def short(name: str) -> str:
    """A dimension's name as a narrow heading."""
    return name.capitalize() if len(name) < 9 else f"{name[:5].capitalize()}."
