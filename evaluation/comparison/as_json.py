"""A comparison as the JSON object that commands print."""

from __future__ import annotations

from typing import Any

from evaluation.comparison.values import Change, Comparison, Lost, Side


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Per dimension (and in it per proposition, worst first) both scores, delta, 95 % interval and verdict.

    Points of 0 to 9; `null` where there is none. `worse` lists what surely got worse, as ``dimension`` or ``dimension/proposition``.
    """
    return {
        "target": comparison.current.target,
        "judge": comparison.current.judge,
        "procedure": comparison.current.procedure,
        "baseline": _side(comparison.baseline),
        "current": _side(comparison.current),
        "stale": comparison.stale,
        "persona_changes": list(comparison.persona_changes),
        "margin": comparison.margin,
        "dimensions": {
            change.dimension: {
                **change_json(change),
                "propositions": {
                    row.proposition: change_json(row) for row in comparison.propositions.get(change.dimension, ())
                },
            }
            for change in comparison.dimensions
        },
        "worse": [name_of(change) for change in comparison.worse],
        "only_baseline": list(comparison.only_baseline),
        "only_current": list(comparison.only_current),
        "changed": list(comparison.changed),
        "scored_on_one_side": list(comparison.one_sided),
        "over_window": list(comparison.over_window),
        "not_enough_data": [lost_json(lost) for lost in comparison.lost],
        "notes": list(comparison.notes),
    }


def change_json(change: Change) -> dict[str, Any]:
    """One change. `n` and `baseline_n` count what `unit` says; `p` is adjusted for all that was compared at once."""
    interval = change.interval
    return {
        "baseline": change.baseline,
        "current": change.current,
        "delta": change.delta,
        "interval": None if interval is None else [round(interval.low, 4), round(interval.high, 4)],
        "interval_note": change.interval_note,
        "verdict": change.verdict,
        "worse": change.worse,
        "reason": change.reason,
        "p": None if change.p_adjusted is None else round(change.p_adjusted, 6),
        "n": change.n,
        "baseline_n": change.baseline_n,
        "unit": change.unit,
        "n_more": change.n_more,
        "coverage": change.share.rounded if change.share else None,
        "baseline_coverage": change.baseline_share.rounded if change.baseline_share else None,
        "sd": None if change.sd is None else round(change.sd, 2),
        "smallest_detectable": None if change.smallest_detectable is None else round(change.smallest_detectable, 2),
        "paired": change.paired,
        **({"counted": True} if change.counted else {}),
    }


def lost_json(lost: Lost) -> dict[str, Any]:
    """A proposition of which surely much less is scored than before; judgements scored, of those the judge could have scored."""
    return {
        "dimension": lost.dimension,
        "proposition": lost.proposition,
        "baseline_scored": lost.before.scored,
        "baseline_of": lost.before.asked,
        "scored": lost.now.scored,
        "of": lost.now.asked,
        "p": round(lost.p, 6),
    }


def name_of(change: Change) -> str:
    return f"{change.dimension}/{change.proposition}" if change.proposition else change.dimension


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "evaluation_run": side.evaluation_run,
        "where": None if side.where is None else dict(side.where),
        "persona_digest": side.persona_digest,
    }
