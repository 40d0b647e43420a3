"""A run by turn, for people and as JSON."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from agents.commands import console_on
from evaluation.runs.coverage import with_share
from evaluation.runs.terminal import judge_label, number
from evaluation.statistics.estimates import Estimate
from evaluation.turn_values import TurnBin, TurnChange, TurnDimension, TurnProfile
from evaluation.wording import counted, decimal, signed


def turn_table(profile: TurnProfile, out: Any) -> None:
    """One table per dimension that is judged message by message, with what its ends say; at most 80 columns wide."""
    console = console_on(out)
    for found in profile.dimensions:
        if not any(row.messages for row in found.bins):
            console.print(
                escape(f"{found.dimension.capitalize()} of {profile.agent} by turn: no message was judged.\n")
            )
            continue
        console.print(_table(profile, found))
        console.print(_sentence("In the same conversations", found.within))
        console.print(_sentence("Over all messages", found.overall))
        if found.trend.value is not None:
            console.print(f"Correlation of turn and score (Spearman): {_value(found.trend, digits=2)}")
        console.print()
    if profile.not_by_turn:
        console.print(f"Not by turn, because judged as a whole: {', '.join(profile.not_by_turn)}.")
    if profile.left_out:
        lie = counted(profile.left_out, "judged message lies", "judged messages lie")
        console.print(f"{lie} in no stretch of these, or deleted since.")


def _table(profile: TurnProfile, found: TurnDimension) -> Table:
    title = f"{found.dimension.capitalize()} of {profile.agent} by turn, by {judge_label(profile.judge)}"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1))
    table.add_column("Turns", no_wrap=True)
    for heading in ("Score", "95 %", "Same c.", "Mess.", "Conv.", "Scored", "Unsc."):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found.bins:
        table.add_row(*_cells(row))
    return table


def _cells(row: TurnBin) -> list[str]:
    interval = row.score.interval
    return [
        row.name,
        with_share(number(row.score.value), row.share),
        f"{interval.low:.1f} to {interval.high:.1f}" if interval else "–",
        number(row.same.value),
        *(str(count) for count in (row.messages, row.conversations, row.scored, row.unscored)),
    ]


def _sentence(where: str, change: TurnChange) -> str:
    if change.delta.value is None:
        return f"{where}: {change.delta.reason}."
    conversations = counted(change.conversations, "conversation")
    basis = f"{conversations}; interval over {change.resampled}"
    return (
        f"{where}: turns {change.last} against {change.first}: {_value(change.delta, sign=True)} "
        f"({basis}): {change.decision.verdict}, {change.decision.reason}."
    )


def _value(found: Estimate, *, sign: bool = False, digits: int = 1) -> str:
    write = signed if sign else decimal
    text = write(found.value or 0.0, digits)
    if found.interval is None:
        return f"{text} (no interval: {found.reason})"
    return f"{text} (95 %: {write(found.interval.low, digits)} to {write(found.interval.high, digits)})"


def turn_json(profile: TurnProfile) -> dict[str, Any]:
    """The profile as the object ``--json`` prints: per dimension the stretches, and the change `within` conversations and `overall`."""
    return {
        "agent": profile.agent,
        "evaluation_run": profile.evaluation_run,
        "judge": profile.judge,
        "procedure": profile.procedure,
        "dimensions": {d.dimension: _dimension_json(d) for d in profile.dimensions},
        "not_by_turn": list(profile.not_by_turn),
        "left_out": profile.left_out,
    }


def _dimension_json(found: TurnDimension) -> dict[str, Any]:
    return {
        "bins": [
            {
                "turns": row.name,
                "first": row.first,
                "last": row.last,
                **_estimate_json(row.score, "score"),
                "coverage": row.share.rounded,
                "same_conversations": _estimate_json(row.same, "score"),
                **{name: getattr(row, name) for name in _COUNTS},
            }
            for row in found.bins
        ],
        "within": _change_json(found.within),
        "overall": _change_json(found.overall),
        "trend": _estimate_json(found.trend, "spearman"),
    }


_COUNTS = ("messages", "conversations", "scored", "trivial", "unscored", "pending")


def _change_json(change: TurnChange) -> dict[str, Any]:
    return {
        "first": change.first,
        "last": change.last,
        **_estimate_json(change.delta, "delta"),
        "verdict": change.decision.verdict,
        "reason": change.decision.reason,
        "n_more": change.decision.n_more,
        "conversations": change.conversations,
        "resampled": change.resampled,
    }


def _estimate_json(found: Estimate, name: str) -> dict[str, Any]:
    interval = found.interval
    return {
        name: None if found.value is None else round(found.value, 4),
        "interval": [round(interval.low, 4), round(interval.high, 4)] if interval else None,
        **({"note": found.reason} if found.reason else {}),
    }
