"""A judged trait before and after a change as a JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.llm.ledger import Totals
from evaluation.before_after import BeforeAfter, Judged, Plan
from evaluation.propositions.traits import presence
from evaluation.statistics.estimates import Interval


def before_after_json(found: BeforeAfter) -> dict[str, Any]:
    """The object a command or the API shows: means, difference, interval, counts by status, and each message's score."""
    return {
        **plan_json(found.plan),
        "verdict": found.verdict,
        "reason": found.reason or found.difference.reason,
        "mean_before": _mean(found.before),
        "mean_after": _mean(found.after),
        "difference": None if found.difference.value is None else round(found.difference.value, 2),
        "interval": _interval(found.difference.interval),
        **{f"{side}_{status}": _count(rows, status) for side, rows in (("before", found.before), ("after", found.after))
           for status in ("scored", "trivial", "unscored")},
        "messages": [
            {
                "message": row.message.pk,
                "side": side,
                "status": row.verdict.status,
                "score": row.verdict.value if row.verdict.status == "scored" else None,
                "reason": row.verdict.reason,
                "justification": row.verdict.justification,
            }
            for side, rows in (("before", found.before), ("after", found.after))
            for row in rows
        ],
        "actual_calls": found.spent.calls,
        "actual_unpriced_calls": found.spent.unpriced,
        "actual_cost_usd": _cost(found.spent),
    }  # fmt: skip


def plan_json(plan: Plan) -> dict[str, Any]:
    """The same of a plan: what there is, what is missing, and what it would cost."""
    return {
        "agent": plan.agent.slug,
        "trait": plan.trait.name,
        "claim": presence(plan.trait).claim,
        "judge": plan.judge,
        "wanted": plan.wanted,
        "before": len(plan.before),
        "after": len(plan.after),
        "waits": plan.waits,
        "estimate": {
            "calls": plan.calls,
            "input_tokens": plan.input_tokens,
            "output_tokens": plan.output_tokens,
            "cost_usd": None if plan.cost_usd is None else str(plan.cost_usd),
        },
    }


def _cost(spent: Totals) -> str | None:
    """Of the priced calls; None when none has a price, for nobody knows what they cost."""
    return None if spent.unpriced and spent.unpriced == spent.calls else str(spent.cost_usd)


def _mean(rows: Sequence[Judged]) -> float | None:
    values = [row.verdict.value for row in rows if row.verdict.status == "scored" and row.verdict.value is not None]
    return round(sum(values) / len(values), 2) if values else None


def _count(rows: Sequence[Judged], status: str) -> int:
    return sum(row.verdict.status == status for row in rows)


def _interval(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [round(interval.low, 2), round(interval.high, 2)]
