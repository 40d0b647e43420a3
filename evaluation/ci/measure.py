"""Measure the agents of a build, and compare each with its baseline: the current one, that of a file, or none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from django.db.models import Count

from evaluation.change.choosing import compare_to_baseline
from evaluation.change.comparison import Comparison, adjusted, compare
from evaluation.change.measurement_files import measurements_of_file
from evaluation.change.measurements import Measurement, NotComparable, measurement_of
from evaluation.change.models import Baseline
from evaluation.ci.results import AgentResult, Coverage
from evaluation.models import OUT_OF_REACH, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.runs.execute import capture
from evaluation.runs.planning import RunSpec

SITUATION = "situation:"  # how the cluster of an observation begins that is of a simulated situation
MOST_NAMED = 20  # agents, in an error


# -- what agents are compared with
class Baselines(Protocol):
    """What the agents of a build are compared with."""

    def compare(self, run: EvaluationRun, *, margin: float) -> Comparison:
        """Return the comparison of a completed run (AC-6.5.4).

        Raises:
            NotComparable: There is nothing to compare it with, or nothing that compares; says why.
        """

    def had_score(self, run: EvaluationRun) -> bool:
        """Return whether the agent of a run had a score before, and so must have one now."""


@dataclass(frozen=True, slots=True)
class NoBaselines:
    """Nothing to compare with; `why` is for people."""

    why: str

    def compare(self, run: EvaluationRun, *, margin: float) -> Comparison:
        """Refuse to compare."""
        raise NotComparable(self.why)

    def had_score(self, run: EvaluationRun) -> bool:
        """Return False: of an agent without a baseline nothing is known, so it need not have a score."""
        return False


class CurrentBaselines:
    """The baselines that are stored, by the same judge and procedure."""

    def compare(self, run: EvaluationRun, *, margin: float) -> Comparison:
        """Return the comparison with the stored baseline of the same judge and procedure.

        Raises:
            NotComparable: There is none; names the judges of those there are.
        """
        comparison = compare_to_baseline(run, margin=margin)
        if comparison is not None:
            return comparison
        why = f"no baseline by {run.judge} ({run.procedure})"
        stored = Baseline.objects.filter(agent=run.agent).order_by("judge", "procedure")
        others = [f"{judge} ({how})" for judge, how in stored.values_list("judge", "procedure").distinct()]
        if others:
            why += f"; there is one by {', '.join(others)}"
        raise NotComparable(why)

    def had_score(self, run: EvaluationRun) -> bool:
        """Return whether there is a stored baseline of the same judge and procedure."""
        of_agent = Baseline.objects.filter(agent=run.agent, dimension__in=run.dimensions)
        return of_agent.filter(judge=run.judge, procedure=run.procedure).exists()


class BaselinesOfFile:
    """The measurements in a file that `capture_baseline --json` or `evaluate --json` printed."""

    def __init__(self, path: Path, specs: Sequence[RunSpec]) -> None:
        """Read the file and check, before any call, that those of these agents that it holds can be compared with it.

        Raises:
            NotComparable: It holds none of the agents, or another judge or procedure.
            UnreadableFile: It is not such a file.
        """
        self.path = path
        self._by_agent = measurements_of_file(path)
        held = [spec for spec in specs if spec.target.slug in self._by_agent]
        if not held:
            wanted = ", ".join([spec.target.slug for spec in specs][:MOST_NAMED])
            names = ", ".join(list(self._by_agent)[:MOST_NAMED]) or "nothing"
            raise NotComparable(f"--baseline {path}: holds none of {wanted}; it holds {names}")
        for spec in held:
            self._check(self._by_agent[spec.target.slug], spec)

    def _check(self, baseline: Measurement, spec: RunSpec) -> None:
        """Refuse a baseline by another judge, or judged in another way, than the evaluation that is asked for.

        Raises:
            NotComparable: Names both.
        """
        if baseline.judge != spec.judge_model:
            before, now = f"by {baseline.judge}", f"by {spec.judge_model}"
        elif baseline.procedure != spec.procedure:
            before, now = f"as {baseline.procedure}", f"as {spec.procedure}"
        else:
            return
        raise NotComparable(
            f"--baseline {self.path}: {baseline.target} was judged {before}, this evaluation would be judged {now}; "
            "scores compare only with scores of the same judge and procedure"
        )

    def compare(self, run: EvaluationRun, *, margin: float) -> Comparison:
        """Return the comparison with the agent's measurement in the file.

        Raises:
            NotComparable: The file does not hold the agent.
        """
        baseline = self._baseline_of(run)
        if baseline is None:
            raise NotComparable(f"{self.path} does not hold it")
        return compare(baseline, measurement_of(run), margin=margin)

    def had_score(self, run: EvaluationRun) -> bool:
        """Return whether the file has a score of the agent in one of these dimensions."""
        baseline = self._baseline_of(run)
        if baseline is None:
            return False
        measured = [baseline.dimensions[name] for name in run.dimensions if name in baseline.dimensions]
        return any(dimension.score is not None for dimension in measured)

    def _baseline_of(self, run: EvaluationRun) -> Measurement | None:
        return self._by_agent.get(run.agent.slug) if run.agent else None


# -- measuring
def measure(
    specs: Sequence[RunSpec],
    *,
    baselines: Baselines,
    margin: float,
    named: Collection[str] = (),
    prepared: Callable[[Sequence[EvaluationRun]], None] = lambda runs: None,
    progress: Callable[[EvaluationRun, int], None] = lambda run, done: None,
) -> list[AgentResult]:
    """Measure, resuming what an earlier attempt left, and compare; verdicts allow for all comparisons of the build together.

    Where a comparison is refused the result has none, and says why in `no_baseline`.

    Args:
        margin: Half-width of "no change", in points.
        named: Slugs of agents that were named, and so must have a score, as those that had one before.
        prepared: Called with evaluations as they are made, before anything is asked; progress: as judgements are made.
    """
    results = []
    for captured in capture(specs, prepared=prepared, progress=progress):
        run = captured.summary.run
        is_named = run.agent is not None and run.agent.slug in named
        result = AgentResult(
            captured=captured, coverage=coverage_of(run), expected=is_named or baselines.had_score(run)
        )
        try:
            result = replace(result, comparison=_compare(run, baselines, margin=margin))
        except NotComparable as error:
            result = replace(result, no_baseline=str(error))
        results.append(result)
    return _adjusted_together(results)


def _compare(run: EvaluationRun, baselines: Baselines, *, margin: float) -> Comparison:
    """Return the comparison of a run with its baseline.

    Raises:
        NotComparable: It did not complete, has no baseline, or was simulated in other situations.
    """
    if run.status != EvaluationRun.Status.COMPLETED:
        raise NotComparable(run.error or str(run.status))
    comparison = baselines.compare(run, margin=margin)
    if run.simulated:
        _check_situations(comparison)
    return comparison


def _adjusted_together(results: Sequence[AgentResult]) -> list[AgentResult]:
    """Return the results with verdicts that allow for all comparisons of the build."""
    comparisons = [result.comparison for result in results if result.comparison is not None]
    adjusted_comparisons = iter(adjusted(comparisons))
    together = []
    for result in results:
        if result.comparison is not None:
            result = replace(result, comparison=next(adjusted_comparisons))
        together.append(result)
    return together


def _check_situations(comparison: Comparison) -> None:
    """Refuse two simulations that share no situation; where the situations are not known they compare.

    Raises:
        NotComparable: Names some situations of the baseline.
    """
    before = _situations(comparison.baseline)
    now = _situations(comparison.candidate)
    if before and now and not before & now:
        some = ", ".join(sorted(before)[:5])
        raise NotComparable(f"{comparison.baseline.name} was simulated in other situations ({some} …)")


def _situations(measurement: Measurement) -> set[str]:
    """Return the ids of the situations that a measurement was simulated in; empty for real speech."""
    situations = set()
    for dimension in measurement.dimensions.values():
        for observation in dimension.sample.observations:
            cluster = str(observation.cluster)
            if cluster.startswith(SITUATION):
                # With one situation alone each of its repeats has a number: `situation:greeting/2`.
                situations.add(cluster.removeprefix(SITUATION).partition("/")[0])
    return situations


# -- what became of the judgements
def coverage_of(run: EvaluationRun) -> dict[str, Coverage]:
    """Return the coverage of every dimension of a run; an agent's channel dimensions are those of its channels' runs."""
    coverage = {dimension: Coverage() for dimension in run.dimensions}
    runs = [run.pk, *run.channel_runs.values_list("pk", flat=True)]
    scores = EvaluationScore.objects.filter(evaluation_run__in=runs, dimension__in=run.dimensions).order_by()
    for row in scores.values("dimension", "status", "judge", "reason", "cause").annotate(count=Count("pk")):
        coverage[row["dimension"]] += _coverage_of_row(row)
    return coverage


def _coverage_of_row(row: Mapping[str, Any]) -> Coverage:
    """Return the coverage of `count` judgements that ended alike.

    `cause` says why a judgement is unscored: `OUT_OF_REACH` for what an offline judge has no means for, else how the call or its reply
    failed; empty: nothing failed. `judge` is who judged; empty where there was nothing to judge.
    """
    count = row["count"]
    if row["status"] == "scored":
        return Coverage(scored=count)
    if row["status"] == "trivial":
        return Coverage(trivial=count)
    call_failed = row["cause"] not in ("", OUT_OF_REACH)
    if row["status"] == "pending" or call_failed:
        return Coverage(failed=count, example=row["reason"] or "not asked")
    if row["cause"] == OUT_OF_REACH or is_heuristic(row["judge"]):
        return Coverage(needs_llm_judge=count)
    if row["judge"]:
        return Coverage(failed=count, example=row["reason"] or "not asked")
    return Coverage(not_evaluable=count)
