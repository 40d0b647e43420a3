"""One evaluation with its verdict: the value that is drawn for a terminal, a pull request and a build server, and that JSON holds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from agents.kit.commands import REGRESSION, UNUSABLE
from agents.kit.text.wording import counted, percentage
from evaluation.calibration.passport import counted_line, not_usable_line, passport_lines, passports_of
from evaluation.change.comparison import Comparison
from evaluation.change.measurement_files import as_json
from evaluation.change.position import PositionProfile, position_profile
from evaluation.ci.limits import Limits
from evaluation.ci.results import AgentResult, Coverage
from evaluation.ci.verdict import TICK, WARNING, Findings, decide
from evaluation.commands import spent_line
from evaluation.judge.passport import Passport
from evaluation.models import EvaluationRun, is_heuristic
from evaluation.runs.numbers import Spending, Used
from evaluation.runs.summary import spending_json, spent_on
from evaluation.scorers.selection import Bin
from evaluation.simulation.conversations import Simulation, simulations_json

VISIBLE_DIFFERENCE = 0.05  # points: less does not show in a score with one decimal
MOST_NAMED = 3  # agents whose propositions are named in a note
COMPARED_VERDICTS = ("steady", "improved", "drifted", "possibly drifted", "not enough data")

AgentsBySentence = dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was measured, what it is held to, and the verdict.

    Attributes:
        bins: Stretches to tell apart by position; empty unless asked for.
        simulations: What was simulated to be measured; empty for real speech.
        estimate: What judging was estimated to need; None where the judge costs nothing.
        unusable: Whose proposition files cannot be used, with file, line and field: these agents are not in the results.
    """

    judge: str
    results: Sequence[AgentResult]
    limits: Limits
    bins: Sequence[Bin] = ()
    simulations: Sequence[Simulation] = ()
    estimate: Spending | None = None
    unusable: str = ""

    @cached_property
    def profiles(self) -> dict[str, PositionProfile]:
        """Return the scores by position of each agent whose run is complete, where that was asked for."""
        profiles: dict[str, PositionProfile] = {}
        if not self.bins:
            return profiles
        for result in self.results:
            if result.run.status == EvaluationRun.Status.COMPLETED:
                profiles[result.agent] = position_profile(result.run, self.bins, margin=self.limits.margin)
        return profiles

    @cached_property
    def findings(self) -> Findings:
        profiles = list(self.profiles.values())
        return decide(
            self.results, self.limits, profiles=profiles, simulations=self.simulations, passports=self.passports
        )

    @cached_property
    def passports(self) -> list[Passport]:
        """Return the judge's passports in what was measured."""
        return passports_of([result.run for result in self.results])

    @property
    def not_usable(self) -> str:
        """Return which judge is not usable, and why; empty where none is."""
        return not_usable_line(self.passports)

    @property
    def passport_notes(self) -> list[str]:
        """Return the passports in sentences, and where they are required what has none."""
        notes = passport_lines(self.passports)
        uncovered = counted_line(self.dimensions)
        if self.limits.require_passport and uncovered:
            notes.append(uncovered)
        return notes

    @property
    def exit_code(self) -> int:
        """Return the code of the verdict; 3 where files of some agents cannot be used, unless something is worse among the others."""
        if self.unusable and self.findings.exit_code != REGRESSION:
            return UNUSABLE
        return self.findings.exit_code

    @property
    def sign(self) -> str:
        """Return what is seen first: no tick where agents are left out, or the judge is not usable."""
        if self.findings.sign == TICK and (self.unusable or self.not_usable):
            return WARNING
        return self.findings.sign

    @property
    def outcome(self) -> str:
        """Return what was found, whether agents are left out, and whether the judge is not usable."""
        outcome = self.findings.outcome
        if self.unusable:
            outcome += ", but not of all agents"
        if self.not_usable:
            outcome += ", by a judge that is not usable"
        return outcome

    @property
    def dimensions(self) -> list[str]:
        """Return the dimensions that were measured of any agent, in the order of the evaluations."""
        dimensions: list[str] = []
        for result in self.results:
            dimensions += [name for name in result.run.dimensions if name not in dimensions]
        return dimensions

    @cached_property
    def coverage(self) -> Coverage:
        """Return the judgements of all agents; a channel that several of them spoke in counts for each."""
        total = Coverage()
        for result in self.results:
            for coverage in result.coverage.values():
                total += coverage
        return total

    @cached_property
    def actual(self) -> Used:
        """Return what judging really used, over all agents and channels, each once."""
        return spent_on(result.captured.summary for result in self.results)

    @property
    def counts_line(self) -> str:
        """Return in a sentence what became of the judgements of all agents."""
        coverage = self.coverage
        return (
            f"{counted(coverage.scored, 'judgement')} scored, {coverage.trivial:,} trivial, {coverage.failed:,} failed "
            f"({percentage(coverage.failed_share)} of what this judge could judge), "
            f"{counted(coverage.needs_llm_judge, 'needs', 'need')} an LLM judge, {coverage.not_evaluable:,} not evaluable."
        )

    @property
    def spent_line(self) -> str:
        """Return what judging used, beside the estimate where there was one; empty when nothing was asked over a network."""
        return spent_line(self.estimate, self.actual)

    @property
    def json(self) -> str:
        """Return the JSON object as text, ending with a line break."""
        return json.dumps(_document(self), ensure_ascii=False, indent=2) + "\n"

    def notes(self) -> AgentsBySentence:
        """Return what a reader of the comparisons must know beside the numbers: by note the agents it is about."""
        notes: AgentsBySentence = {}
        for result in self.results:
            comparison = result.comparison
            if comparison is None:
                continue
            for note in (*comparison.notes, *_notes_on_propositions(result, comparison)):
                notes.setdefault(note, []).append(result.agent)
            if comparison.unjudged:
                names = "some propositions (--json names them)"
                if len(self.results) <= MOST_NAMED:
                    names = ", ".join(comparison.unjudged)
                notes.setdefault(f"nothing could be judged by: {names}", []).append(result.agent)
        return notes

    def without_baseline(self) -> AgentsBySentence:
        """Return by reason the agents that were not compared."""
        agents: AgentsBySentence = {}
        for agent, why in self.findings.without_baseline:
            agents.setdefault(why, []).append(agent)
        return agents

    def without_score(self) -> AgentsBySentence:
        """Return by reason the agents that have no score and are in no finding.

        Of an agent of which anything was scored each dimension has a reason of its own, e.g. ``fluency: 3 judgements need an LLM judge``.
        """
        with_finding = set()  # agent and dimension; the dimension is empty for the agent itself
        for finding in self.findings.of_kind("could_not_judge", "not_enough_data", "one_sided"):
            if not finding.proposition:
                with_finding.add((finding.agent, finding.dimension))
        agents: AgentsBySentence = {}
        for result in self.results:
            if (result.agent, "") in with_finding:
                continue
            reasons = {name: result.why_no_score(name) for name in result.run.dimensions if result.score(name) is None}
            if result.summary.measured:
                sentences = [
                    f"{name}: {why}" for name, why in reasons.items() if (result.agent, name) not in with_finding
                ]
            else:
                every_reason = "; ".join(dict.fromkeys(reasons.values()))
                sentences = [result.run.error or every_reason or "nothing to judge"]
            for sentence in sentences:
                agents.setdefault(sentence, []).append(result.agent)
        return agents


def _notes_on_propositions(result: AgentResult, comparison: Comparison) -> Iterator[str]:
    """Yield a note for each dimension whose score and whose change are not over the same propositions."""
    for change in comparison.dimensions:
        name = change.dimension
        if change.counted or change.delta is None or change.baseline is None or change.candidate is None:
            continue
        candidate = comparison.candidate.dimensions[name]
        baseline = comparison.baseline.dimensions[name]
        # Where both scores are those of the dimension, the change is over all its propositions.
        if not _differ(change.candidate, result.score(name)) and not _differ(change.baseline, baseline.score):
            continue
        scored = [measured for measured in candidate.propositions.values() if measured.score is not None]
        compared = [proposition for proposition in comparison.changes_of(name) if proposition.delta is not None]
        scores = f"{change.baseline:.1f} → {change.candidate:.1f}"
        yield f"{name}: the change is over {len(compared)} of {len(scored)} propositions, {scores}"


def _differ(compared: float, score: float | None) -> bool:
    return score is not None and abs(compared - score) >= VISIBLE_DIFFERENCE


# -- as JSON
def _document(report: Report) -> dict[str, Any]:
    """Return the shape of `capture_baseline --json` with what was compared beside every dimension; a later `--baseline` reads it."""
    document = as_json(report.judge, [result.captured for result in report.results])
    for entry, result in zip(document["runs"], report.results, strict=True):
        for name, dimension in entry["dimensions"].items():
            dimension |= _compared_dimension(result, name)
        entry |= _compared_agent(result)
        if result.agent in report.profiles:
            entry["by_position"] = report.profiles[result.agent].model_dump()
    evaluations = [*document["runs"], *document.get("channels", [])]
    document |= simulations_json(report.simulations)
    document["spending"] = spending_json(report.estimate, report.actual)
    document |= report.findings.model_dump(mode="json")
    document["summary"] = _summary(report, evaluations)
    return document


def _compared_dimension(result: AgentResult, name: str) -> dict[str, Any]:
    """Return what is added to a dimension of an agent: its change since the baseline, and why judgements are unscored."""
    change = result.change(name)
    if change is None:
        added: dict[str, Any] = {"baseline": None, "delta": None, "interval": None, "verdict": None}
    else:
        added = change.model_dump(exclude={"share"})  # the dimension has it
        # Over the propositions that are compared: the dimension's own `score` may rest on others, too.
        added["comparable_score"] = added.pop("candidate")
    coverage = result.coverage.get(name, Coverage())
    added["unscored_because"] = coverage.model_dump(exclude={"scored", "trivial"})
    if name in result.lost_dimensions:
        added |= {"score": None, "reason": result.why_no_score(name)}
    propositions = result.proposition_changes(name)
    if propositions:
        added["changes"] = {proposition.proposition: proposition.model_dump() for proposition in propositions}
    return added


def _compared_agent(result: AgentResult) -> dict[str, Any]:
    """Return what is added to an agent's evaluation: its comparison with the baseline."""
    added: dict[str, Any] = {
        "overall_score": result.overall_score,
        "procedure": result.run.procedure,
        "repeats": result.run.repeats,
    }
    comparison = result.comparison
    if comparison is None:
        return added | {
            "baseline": None,
            "baseline_notes": [result.no_baseline] if result.no_baseline else [],
            "persona_changed": False,
            "persona_changes": [],
            "shown": [],
            "missing": {},
            "unjudged": [],
        }
    return added | {
        "baseline": comparison.baseline.name,
        "baseline_notes": list(comparison.notes),
        "persona_changed": comparison.stale,
        "persona_changes": list(comparison.persona_changes),
        "shown": [shown.model_dump() for shown in comparison.shown],
        "missing": comparison.missing,
        "unjudged": list(comparison.unjudged),
    }


def _summary(report: Report, evaluations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the verdict with the counts of the whole build.

    Args:
        evaluations: The entries of agents and channels, with their calls, tokens and cost.
    """
    findings, limits, coverage = report.findings, report.limits, report.coverage
    verdicts: Counter[str] = Counter()
    for result in report.results:
        verdicts.update(change.verdict for change in result.changes if not change.counted)
    procedures = sorted({result.run.procedure for result in report.results})  # a list in ``--json`` where they differ
    costs = [Decimal(str(entry["cost_usd"])) for entry in evaluations if entry["cost_usd"] is not None]
    return {
        "verdict": findings.verdict,
        "exit_code": report.exit_code,
        "unusable": report.unusable,
        "not_usable": [report.not_usable] if report.not_usable else None,
        "judge": report.judge,
        "heuristic": is_heuristic(report.judge),
        "procedure": procedures[0] if len(procedures) == 1 else procedures,
        "agents": len(report.results),
        "judgements": {**coverage.model_dump(), "unscored": coverage.unscored},
        "failed_share": round(coverage.failed_share, 4),
        "compared": {
            "dimensions": verdicts.total(),
            **{verdict.replace(" ", "_"): verdicts[verdict] for verdict in COMPARED_VERDICTS},
        },
        "without_baseline": [agent for agent, _ in findings.without_baseline],
        "limits": {
            "regression_delta": limits.regression_delta,
            "margin": limits.margin,
            "max_unscored": limits.max_unscored,
            "strict": limits.strict,
            "require_passport": limits.require_passport,
            "thresholds": {name or "all": least for name, least in limits.thresholds.items()},
        },
        "calls": sum(entry["calls"] for entry in evaluations),
        "tokens": sum(entry["tokens"] for entry in evaluations),
        "unpriced_calls": sum(entry["unpriced_calls"] for entry in evaluations),
        "cost_usd": float(sum(costs)) if costs or not evaluations else None,  # null: no price is known of any
    }
