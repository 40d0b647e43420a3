"""One evaluation with its verdict: what every renderer draws from, and the object that ``evaluate --json`` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from agents.llm.endpoints import provider_of
from evaluation.change.comparison import Comparison, change_json
from evaluation.change.position import PositionProfile, position_json, position_profile
from evaluation.ci.measure import AgentResult, Coverage
from evaluation.ci.options import Limits
from evaluation.ci.verdict import Findings, decide, why_no_score
from evaluation.models import Dimension, EvaluationRun, is_heuristic
from evaluation.runs.as_json import as_json
from evaluation.runs.capture import Spending, spending_json, spent_on
from evaluation.scorers.positions import Bin
from evaluation.simulation.conversations import Simulation, simulations_json
from evaluation.simulation.estimate import SimulationEstimate
from evaluation.wording import counted, money

MOST_NAMED = 5  # propositions in one note
VISIBLE = 0.05  # points: less does not show in a score with one decimal
SCRIPTED_FLUENCY = (
    "fluency: the offline actor says the persona's few sample lines again and again; "
    "the score shows that, and not how a model would speak"
)
Grouped = dict[str, list[str]]  # by sentence the agents it holds for


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was measured, what it was held to, and the verdict.

    Attributes:
        profiles: Per agent its scores by position; empty unless asked for.
        simulations: What was simulated to be measured; empty for real speech.
        estimate: What judging was estimated to need; None where the judge costs nothing.
    """

    judge: str
    results: tuple[AgentResult, ...]
    findings: Findings
    limits: Limits
    profiles: Mapping[str, PositionProfile]
    simulations: tuple[Simulation, ...] = ()
    estimate: Spending | None = None

    @cached_property
    def coverage(self) -> Coverage:
        """Of all agents; a channel that several of them spoke in counts for each."""
        return sum((part for result in self.results for part in result.coverage.values()), Coverage())

    @cached_property
    def actual(self) -> Spending:
        """What judging really used, over all agents and channels, each once."""
        return spent_on([result.captured for result in self.results])

    @property
    def counts_line(self) -> str:
        judged = self.coverage
        return (
            f"{counted(judged.scored, 'judgement')} scored, {judged.trivial:,} trivial, {judged.failed:,} failed "
            f"({judged.failed_share:.0%} of what this judge could judge), {counted(judged.beyond_judge, 'needs', 'need')} an LLM judge, "
            f"{judged.not_evaluable:,} not evaluable."
        )

    @property
    def spent_line(self) -> str:
        """What judging used, beside the estimate where there was one; empty when nothing was asked over a network."""
        if self.estimate is None and not self.actual.input_tokens:
            return ""
        share = self.actual.cache_read_share
        cached = f", {share:.0%} of the tokens in from the prompt cache" if share else ""
        before = f"estimated {_amounts(self.estimate)}; " if self.estimate else ""
        return f"Judging: {before}used {_amounts(self.actual)}{cached}."

    @property
    def json(self) -> str:
        """The object as text, ending with a line break."""
        return json.dumps(_document(self), ensure_ascii=False, indent=2) + "\n"

    def notes(self) -> Grouped:
        """What a reader of the comparisons must know beside the numbers."""
        notes: Grouped = {}
        for result in self.results:
            run = result.run
            if run.simulated and is_heuristic(run.actor_model) and result.score(Dimension.FLUENCY) is not None:
                notes.setdefault(SCRIPTED_FLUENCY, []).append(result.agent)
            if result.comparison is not None:
                for note in (*result.comparison.notes, *_left_out(result, result.comparison)):
                    notes.setdefault(note, []).append(result.agent)
        return notes

    def without_baseline(self) -> Grouped:
        """By reason the agents that were not compared."""
        grouped: Grouped = {}
        for agent, why in self.findings.without_baseline:
            grouped.setdefault(why, []).append(agent)
        return grouped

    def without_score(self) -> Grouped:
        """By reason the agents, or agents' dimensions, that have no score and are in no finding."""
        named = {(u.agent, u.dimension) for u in self.findings.could_not_judge}
        named |= {(lack.agent, lack.dimension) for lack in self.findings.not_enough_data if not lack.proposition}
        grouped: Grouped = {}
        for result in self.results:
            agent, dimensions = result.agent, result.run.dimensions
            if (agent, "") in named:
                continue
            if not result.summary.measured:
                why = result.run.error or "; ".join(dict.fromkeys(why_no_score(result, d) for d in dimensions))
                grouped.setdefault(why or "nothing to judge", []).append(agent)
                continue
            for dimension in dimensions:
                if result.score(dimension) is None and (agent, dimension) not in named:
                    grouped.setdefault(f"{dimension}: {why_no_score(result, dimension)}", []).append(agent)
        return grouped


def make_report(
    judge: str,
    results: Sequence[AgentResult],
    limits: Limits,
    *,
    bins: Sequence[Bin] = (),
    simulations: Sequence[Simulation] = (),
    estimate: Spending | None = None,
) -> Report:
    """Decide, and put everything together; with `bins` also by turn, for agents whose run is complete."""
    profiles = {
        result.agent: position_profile(result.run, bins, margin=limits.margin)
        for result in results
        if bins and result.run.status == EvaluationRun.Status.COMPLETED
    }
    return Report(
        judge=judge,
        results=tuple(results),
        findings=decide(results, limits, profiles=list(profiles.values()), simulations=simulations),
        limits=limits,
        profiles=profiles,
        simulations=tuple(simulations),
        estimate=estimate,
    )


def estimate_line(estimate: Spending) -> str:
    """Before any call, e.g. ``Estimate: 524 calls, 2,032,851 tokens in, 606,160 out, $0.5064``."""
    return f"Estimate: {_amounts(estimate)} (if nothing was judged before)"


def simulations_line(simulations: Sequence[SimulationEstimate]) -> str:
    """Before a simulation begins; empty where no actor is paid."""
    paid = [one for one in simulations if provider_of(one.actor_model) == "anthropic"]
    if not paid:
        return ""
    costs = [one.cost_usd for one in paid]
    cost = money(None if None in costs else sum((c for c in costs if c is not None), Decimal(0)))
    lines, calls = sum(one.lines for one in paid), sum(one.calls for one in paid)
    return f"Estimate of the simulation: {counted(lines, 'line')} said to agents, {counted(calls, 'call')}, {cost}"


def _amounts(spending: Spending) -> str:
    cost = money(spending.cost_usd, spending.unpriced_calls or 0)
    return f"{counted(spending.calls, 'call')}, {spending.input_tokens:,} tokens in, {spending.output_tokens:,} out, {cost}"


def _left_out(result: AgentResult, comparison: Comparison) -> Iterator[str]:
    """Where a score and its change are not over the same propositions: the comparable scores, and what is in one only."""
    for change in comparison.dimensions:
        name = change.dimension
        pairs = (change.candidate, result.score(name)), (change.baseline, comparison.baseline.scores.get(name))
        if change.counted or change.delta is None or change.baseline is None or change.candidate is None:
            continue
        if all(here is None or there is None or abs(here - there) < VISIBLE for here, there in pairs):
            continue
        asked = comparison.candidate.proposition_scores.get(name, {})
        scored = [proposition for proposition, score in asked.items() if score is not None]
        common = [c for c in comparison.propositions.get(name, ()) if c.delta is not None]
        scores = f"{change.baseline:.1f} → {change.candidate:.1f}"
        parts = [f"{name}: the change is over {len(common)} of {len(scored)} propositions, {scores}"]
        for what, names in (
            ("only now", comparison.only_candidate),
            ("only before", comparison.only_baseline),
            ("scored in one only", comparison.scored_in_one),
            ("reworded", comparison.changed),
        ):
            of = [one.partition("/")[2] for one in names if one.startswith(f"{name}/")]
            if of:
                more = f" and {len(of) - MOST_NAMED} more" if len(of) > MOST_NAMED else ""
                parts.append(f"{what}: {', '.join(of[:MOST_NAMED])}{more}")
        yield "; ".join(parts)


# -- as JSON
def _document(report: Report) -> dict[str, Any]:
    """The shape of `capture_baseline --json` with what was compared beside every dimension; a later `--baseline` reads it."""
    document = as_json(report.judge, [result.captured for result in report.results])
    for entry, result in zip(document["runs"], report.results, strict=True):
        for name, dimension in entry["dimensions"].items():
            dimension |= _compared(result, name)
        comparison = result.comparison
        entry |= {
            "procedure": result.run.procedure,
            "repeats": result.run.repeats,
            "baseline": comparison.baseline.name if comparison else None,
            "baseline_notes": list(comparison.notes) if comparison else list(filter(None, [result.no_baseline])),
            "persona_changed": bool(comparison and comparison.stale),
            "persona_changes": list(comparison.persona_changes) if comparison else [],
        }
        if result.agent in report.profiles:
            entry["by_position"] = position_json(report.profiles[result.agent])
    return {
        **document,
        **simulations_json(report.simulations),
        "spending": spending_json(report.estimate, report.actual),
        **report.findings.model_dump(mode="json"),
        "summary": _summary(report, [*document["runs"], *document.get("channels", [])]),
    }


def _compared(result: AgentResult, dimension: str) -> dict[str, Any]:
    """What is known of one dimension beyond its score."""
    change = result.change(dimension)
    coverage = result.coverage.get(dimension, Coverage())
    propositions = result.comparison.propositions.get(dimension, ()) if result.comparison else ()
    compared: dict[str, Any] = dict.fromkeys(("baseline", "delta", "interval", "verdict"))
    if change is not None:
        compared = change_json(change)
        del compared["coverage"]  # the dimension has it
        compared["comparable_score"] = compared.pop("candidate")  # not the score where propositions differ
    return {
        **compared,
        "unscored_because": {
            "failed": coverage.failed,
            "needs_llm_judge": coverage.beyond_judge,
            "not_evaluable": coverage.not_evaluable,
        },
        **({"changes": {c.proposition: change_json(c) for c in propositions}} if propositions else {}),
    }


def _summary(report: Report, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts, shares, what was held to, and the verdict."""
    results, findings, limits, judged = report.results, report.findings, report.limits, report.coverage
    changes = [c for result in results if result.comparison for c in result.comparison.dimensions if not c.counted]
    costs = [Decimal(str(part["cost_usd"])) for part in parts if part["cost_usd"] is not None]
    procedures = sorted({result.run.procedure for result in results})
    return {
        "verdict": findings.verdict,
        "exit_code": findings.exit_code,
        "judge": report.judge,
        "heuristic": is_heuristic(report.judge),
        "procedure": procedures[0] if len(procedures) == 1 else procedures,
        "agents": len(results),
        "judgements": {
            "scored": judged.scored,
            "trivial": judged.trivial,
            "unscored": judged.unscored,
            "failed": judged.failed,
            "needs_llm_judge": judged.beyond_judge,
            "not_evaluable": judged.not_evaluable,
        },
        "failed_share": round(judged.failed_share, 4),
        "compared": {
            "dimensions": len(changes),
            "steady": sum(c.verdict == "steady" for c in changes),
            "improved": sum(c.verdict == "improved" for c in changes),
            "drifted": sum(c.worse for c in changes),
            "possibly_drifted": sum(c.verdict == "possibly drifted" for c in changes),
            "not_enough_data": sum(c.verdict == "not enough data" for c in changes),
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
