"""The verdict as data: the shape of `capture_baseline --json`, with what was compared beside every dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from evaluation.change.comparison import Change, change_json
from evaluation.change.position import position_json
from evaluation.ci.coverage import Coverage, total
from evaluation.ci.findings import BelowThreshold, Findings, Lack, Open, Regression
from evaluation.ci.gather import AgentResult
from evaluation.ci.limits import Limits
from evaluation.ci.report import Report
from evaluation.models import is_heuristic
from evaluation.result_json import as_json
from evaluation.simulation import simulations_json
from evaluation.spending import spending_json


def report_json(report: Report) -> dict[str, Any]:
    """The object ``evaluate --json`` prints; a later build can read it as its `--baseline`."""
    judge, results, findings, limits = report.judge, report.results, report.findings, report.limits
    document = as_json(judge, [result.captured for result in results])
    for entry, result in zip(document["runs"], results, strict=True):
        for name, dimension in entry["dimensions"].items():
            dimension |= _compared(result, name)
        entry |= _of_run(result)
        if result.agent in report.by_position:
            entry["by_position"] = position_json(report.by_position[result.agent])
    return {
        **document,
        **simulations_json(report.simulations),
        "spending": spending_json(report.estimate, report.actual),
        "regressions": [_regression(found) for found in findings.regressions],
        "fading": [asdict(found) for found in findings.fading],
        "below_threshold": [_below(found) for found in findings.below],
        "could_not_judge": [asdict(found) for found in findings.unjudged],
        "not_enough_data": [_lack(found) for found in findings.lacking],
        "cannot_tell_yet": [_open(found) for found in findings.undecided],
        "summary": summary_json(judge, results, findings, limits, document),
    }


def _of_run(result: AgentResult) -> dict[str, Any]:
    """How the run was judged, and what it was compared with."""
    run, comparison = result.run, result.comparison
    return {
        "procedure": run.procedure,
        "repeats": run.repeats,
        "baseline": comparison.baseline.name if comparison else None,
        "baseline_notes": list(comparison.notes) if comparison else list(filter(None, [result.no_baseline])),
        "persona_changed": bool(comparison and comparison.stale),
        "persona_changes": list(comparison.persona_changes) if comparison else [],
    }


def _compared(result: AgentResult, dimension: str) -> dict[str, Any]:
    """What the harness knows of one dimension beyond its score."""
    change = result.change(dimension)
    coverage = result.coverage.get(dimension, Coverage())
    propositions = result.comparison.propositions.get(dimension, ()) if result.comparison else ()
    return {
        **(_without_candidate(change) if change else dict.fromkeys(("baseline", "delta", "interval", "verdict"))),
        "unscored_because": {
            "failed": coverage.failed,
            "needs_llm_judge": coverage.beyond_judge,
            "not_evaluable": coverage.not_evaluable,
        },
        **({"changes": {c.proposition: change_json(c) for c in propositions}} if propositions else {}),
    }


def _without_candidate(change: Change) -> dict[str, Any]:
    """The change; `candidate` only where it is not the score: a claim is in one of the two only, or was reworded."""
    found = change_json(change)
    del found["coverage"]  # the dimension has it
    return {"comparable_score" if name == "candidate" else name: value for name, value in found.items()}


def _regression(found: Regression) -> dict[str, Any]:
    change, whole = found.change, found.whole
    return {
        "agent": found.agent,
        "dimension": whole.dimension,
        "proposition": change.proposition or None,
        "scope": found.scope,
        "baseline": change.baseline,
        "candidate": change.candidate,
        "delta": change.delta,
        "interval": change_json(change)["interval"],
        **({"fell_most": [change_json(c) for c in found.fell_most]} if found.fell_most else {}),
        "dimension_change": change_json(whole),
        "worst_message": asdict(found.worst) if found.worst else None,
    }


def _below(found: BelowThreshold) -> dict[str, Any]:
    row = asdict(found)
    coverage = found.share.rounded if found.share else None
    kept = {name: value for name, value in row.items() if name not in ("worst", "share")}
    return {**kept, "coverage": coverage, "worst_message": row["worst"]}


def _lack(found: Lack) -> dict[str, Any]:
    """`coverage` is the share scored now, `baseline_coverage` then, of what the judge can score; null where that is not known."""
    return {
        "agent": found.agent,
        "dimension": found.dimension,
        "proposition": found.proposition or None,
        "why": found.why,
        "coverage": found.now.rounded,
        "baseline_coverage": found.before.rounded if found.before else None,
    }


def _open(found: Open) -> dict[str, Any]:
    change = found.change
    return {
        "agent": found.agent,
        "dimension": change.dimension,
        "suspected_regression": found.suspected,
        **change_json(change),
        **({"hint": found.hint} if found.hint else {}),
    }


def summary_json(
    judge: str,
    results: Sequence[AgentResult],
    findings: Findings,
    limits: Limits,
    document: Mapping[str, Any],
) -> dict[str, Any]:
    """Counts, shares, what was held to, and the verdict."""
    all_of = coverage(results)
    changes = [c for result in results if result.comparison for c in result.comparison.dimensions if not c.counted]
    parts = [*document["runs"], *document.get("channels", [])]
    costs = [Decimal(str(part["cost_usd"])) for part in parts if part["cost_usd"] is not None]
    procedures = sorted({result.run.procedure for result in results})
    return {
        "verdict": findings.verdict,
        "exit_code": findings.exit_code,
        "judge": judge,
        "heuristic": is_heuristic(judge),
        "procedure": procedures[0] if len(procedures) == 1 else procedures,
        "agents": len(results),
        "judgements": {
            "scored": all_of.scored,
            "trivial": all_of.trivial,
            "unscored": all_of.unscored,
            "failed": all_of.failed,
            "needs_llm_judge": all_of.beyond_judge,
            "not_evaluable": all_of.not_evaluable,
        },
        "failed_share": round(all_of.failed_share, 4),
        "compared": {
            "dimensions": len(changes),
            "steady": sum(c.verdict == "steady" for c in changes),
            "improved": sum(c.verdict == "improved" for c in changes),
            "drifted": sum(c.worse for c in changes),
            "not_enough_data": sum(c.verdict == "not enough data" for c in changes),
            "possibly_drifted": sum(c.verdict == "possibly drifted" for c in changes),
        },
        "without_baseline": [agent for agent, _ in findings.without_baseline],
        "limits": {
            "thresholds": {name or "all": value for name, value in limits.thresholds.items()},
            "regression_delta": limits.regression_delta,
            "margin": limits.margin,
            "max_unscored": limits.max_unscored,
            "strict": limits.strict,
        },
        "calls": sum(part["calls"] for part in parts),
        "tokens": sum(part["tokens"] for part in parts),
        "cost_usd": float(sum(costs)) if costs or not parts else None,
        "unpriced_calls": sum(part["unpriced_calls"] for part in parts),
    }


def coverage(results: Sequence[AgentResult]) -> Coverage:
    """Of all agents; a channel that several of them spoke in counts for each."""
    return total(found for result in results for found in result.coverage.values())
