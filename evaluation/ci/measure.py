"""Measure the agents of a build: simulate conversations first where that is asked for, judge, and compare each agent with its baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from django.db.models import Count
from pydantic import BaseModel, ConfigDict, Field

from evaluation.change.change import Change
from evaluation.change.comparison import Comparison, adjusted, compare, compare_to_baseline
from evaluation.change.measurement_files import measurements_of_file
from evaluation.change.measurements import NotComparable, measurement_of
from evaluation.models import OUT_OF_REACH, Baseline, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.runs.execute import Captured, capture
from evaluation.runs.planning import RunSpec
from evaluation.runs.summary import RunSummary, Share


# -- how much was judged
class Coverage(BaseModel):
    """The judgements of one dimension.

    Attributes:
        failed: Could have been judged and was not: timeout, rate limit, refusal, malformed reply, never asked. `example` says why.
        not_evaluable: Nothing to judge: one message, no history, an empty text.
    """

    model_config = ConfigDict(frozen=True)

    scored: int = 0
    trivial: int = 0
    failed: int = 0
    needs_llm_judge: int = 0
    not_evaluable: int = 0
    example: str = Field("", exclude=True)

    @property
    def could(self) -> int:
        """What this judge could have judged."""
        return self.scored + self.trivial + self.failed

    @property
    def failed_share(self) -> float:
        """Of what this judge could have judged the share it did not, 0 to 1; 0 when there was nothing."""
        return self.failed / self.could if self.could else 0.0

    @property
    def unscored(self) -> int:
        return self.failed + self.needs_llm_judge + self.not_evaluable

    def __add__(self, other: Coverage) -> Coverage:
        summed = {name: n + getattr(other, name) for name, n in self.model_dump().items()}
        return Coverage(**summed, example=self.example or other.example)


def coverage_of(run: EvaluationRun) -> dict[str, Coverage]:
    """The coverage of every dimension of a run; an agent's channel dimensions are those of its channels' runs."""
    coverage = {dimension: Coverage() for dimension in run.dimensions}
    runs = [run.pk, *run.channel_runs.values_list("pk", flat=True)]
    rows = EvaluationScore.objects.filter(evaluation_run__in=runs, dimension__in=run.dimensions).order_by()
    for row in rows.values("dimension", "status", "judge", "reason", "cause").annotate(n=Count("pk")):
        status, judge, reason = row["status"], row["judge"], row["reason"]
        if status in ("scored", "trivial"):
            kind = status
        elif status == "pending" or row["cause"] not in ("", OUT_OF_REACH):
            kind = "failed"
        elif row["cause"] or is_heuristic(judge):
            kind = "needs_llm_judge"
        else:
            kind = "failed" if judge else "not_evaluable"
        example = (reason or "not asked") if kind == "failed" else ""
        coverage[row["dimension"]] += Coverage(**{kind: row["n"]}, example=example)
    return coverage


# -- what it is compared with
class BaselineSource:
    """What agents are compared with: measurements of a file, their current baselines, or nothing.

    Attributes:
        path: What `capture_baseline --json` or `evaluate --json` printed; None for the current baselines.
        nothing: Why nothing is compared; None where something is.
    """

    def __init__(self, path: Path | None = None, *, specs: Sequence[RunSpec] = (), nothing: str | None = None) -> None:
        """Read the file and check, before any call, that it can be compared with.

        Raises:
            NotComparable: It holds none of the agents, or another judge or procedure.
            UnreadableFile: It is not such a file.
        """
        self.path, self.nothing = path, nothing
        self._measured = measurements_of_file(path) if path else {}
        if path is None:
            return
        pairs = [(self._measured[spec.target.slug], spec) for spec in specs if spec.target.slug in self._measured]
        if not pairs:
            wanted = ", ".join([spec.target.slug for spec in specs][:20])
            names = ", ".join(list(self._measured)[:20]) or "nothing"
            raise NotComparable(f"--baseline {path}: holds none of {wanted}; it holds {names}")
        for before, spec in pairs:
            judges, procedures = (before.judge, spec.judge_model), (before.procedure, spec.procedure)
            for how, (there, here) in (("by", judges), ("as", procedures)):
                if there != here:
                    raise NotComparable(
                        f"--baseline {path}: {before.target} was judged {how} {there}, this evaluation would be judged {how} {here}; "
                        "scores compare only with scores of the same judge and procedure"
                    )

    def compare(self, run: EvaluationRun, *, margin: float) -> tuple[Comparison | None, str]:
        """Return the comparison (AC-6.5.4), or why there is none.

        Raises:
            NotComparable: Another judge or procedure, or the run is not completed.
        """
        if self.nothing is not None:
            return None, self.nothing
        if self.path is not None:
            before = self._measured.get(run.agent.slug if run.agent else "")
            if before is None:
                return None, f"{self.path} does not hold it"
            return compare(before, measurement_of(run), margin=margin), ""
        comparison = compare_to_baseline(run, margin=margin)
        if comparison is not None:
            return comparison, ""
        known = Baseline.objects.filter(agent=run.agent).order_by("judge", "procedure")
        names = [f"{judge} ({how})" for judge, how in known.values_list("judge", "procedure").distinct()]
        others = f"; there is one by {', '.join(names)}" if names else ""
        return None, f"no baseline by {run.judge} ({run.procedure}){others}"

    def was_measured(self, run: EvaluationRun) -> bool:
        """Return whether the agent of a run once had a score."""
        if self.nothing is not None:
            return False
        if self.path is not None:
            before = self._measured.get(run.agent.slug if run.agent else "")
            return before is not None and any(before.scores.get(d) is not None for d in run.dimensions)
        of_agent = Baseline.objects.filter(agent=run.agent, dimension__in=run.dimensions)
        return of_agent.filter(judge=run.judge, procedure=run.procedure).exists()


# -- measuring
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """One agent of the build.

    Attributes:
        comparison: With its baseline; None, and then `no_baseline` says why.
        expected: Whether it must have a score: it was named, or it has a baseline.
    """

    captured: Captured
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    comparison: Comparison | None = None
    no_baseline: str = ""
    expected: bool = False

    @property
    def summary(self) -> RunSummary:
        return self.captured.summary

    @property
    def run(self) -> EvaluationRun:
        return self.captured.summary.run

    @property
    def agent(self) -> str:
        return self.run.agent.slug if self.run.agent else str(self.run.channel)

    def score(self, dimension: str) -> float | None:
        """The score of a dimension, its count where it is counted; None when there is none."""
        summary = self.summary.dimensions.get(dimension)
        if summary is None:
            return None
        return summary.score if summary.count is None else float(summary.count)

    def share(self, dimension: str) -> Share | None:
        """How much of a dimension was scored."""
        summary = self.summary.dimensions.get(dimension)
        return None if summary is None else summary.share

    def change(self, dimension: str) -> Change | None:
        """How the dimension changed since the baseline; None without one."""
        changes = self.comparison.dimensions if self.comparison else ()
        return next((change for change in changes if change.dimension == dimension), None)


def measure(
    specs: Sequence[RunSpec],
    *,
    baseline: BaselineSource,
    margin: float,
    named: Collection[str] = (),
    prepared: Callable[[Sequence[EvaluationRun]], None] = lambda runs: None,
    progress: Callable[[EvaluationRun, int], None] = lambda run, done: None,
) -> tuple[AgentResult, ...]:
    """Measure, resuming what an earlier attempt left, and compare; all comparisons count as looked at together.

    Args:
        margin: Half-width of "no change", in points.
        prepared, progress: As for `capture`.
    """
    results = []
    for captured in capture(specs, prepared=prepared, progress=progress):
        run = captured.summary.run
        comparison, why = None, run.error or str(run.status)
        if run.status == EvaluationRun.Status.COMPLETED:
            try:
                comparison, why = baseline.compare(run, margin=margin)
                if comparison is not None and run.simulated and (why := other_situations(comparison)):
                    comparison = None
            except NotComparable as error:
                why = str(error)
        expected = (run.agent.slug if run.agent else "") in named or baseline.was_measured(run)
        results.append(
            AgentResult(
                captured=captured,
                coverage=coverage_of(run),
                comparison=comparison,
                no_baseline=why,
                expected=expected,
            )
        )
    corrected = iter(adjusted([result.comparison for result in results if result.comparison is not None]))
    return tuple(replace(r, comparison=next(corrected)) if r.comparison is not None else r for r in results)


def other_situations(comparison: Comparison) -> str:
    """Return why two simulations do not compare: they share no situation; empty when they do, or when that is not known."""
    prefix = "situation:"  # with one situation alone, each of its repeats has a number
    both = [
        {
            str(row.cluster).removeprefix(prefix).partition("/")[0]
            for of_dimension in measurement.observations.values()
            for rows in of_dimension.values()
            for row in rows
            if str(row.cluster).startswith(prefix)
        }
        for measurement in (comparison.baseline, comparison.candidate)
    ]
    if not all(both) or both[0] & both[1]:
        return ""
    return f"{comparison.baseline.name} was simulated in other situations ({', '.join(sorted(both[0])[:5])} …)"
