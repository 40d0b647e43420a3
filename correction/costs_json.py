"""Costs as the terminal's ``--json`` prints them and the API answers with them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from agents.llm.ledger import Totals
from correction.costs import TOLD_APART_BY_PURPOSE, CostRow, CostSummary, Grouping


def costs_as_json(summary: CostSummary) -> dict[str, Any]:
    """A summary as one object. Dollars leave out the `unpriced` calls."""
    start, end = summary.window.start, summary.window.end
    return {
        "agent": summary.agent.slug if summary.agent else None,
        "since": start.isoformat() if start else None,
        "until": end.isoformat() if end else None,
        "total": _sums_as_json(summary.total),
        "correction": _sums_as_json(summary.correction),
        "by": {grouping: [_row_as_json(grouping, row) for row in rows] for grouping, rows in summary.by.items()},
    }


def _row_as_json(grouping: Grouping, row: CostRow) -> dict[str, Any]:
    purpose = {"purpose": row.purpose} if grouping in TOLD_APART_BY_PURPOSE else {}
    return {**purpose, grouping: row.key or None, **_sums_as_json(row.totals)}


def _sums_as_json(totals: Totals) -> dict[str, Any]:
    return {**asdict(totals), "cost_usd": float(totals.cost_usd)}
