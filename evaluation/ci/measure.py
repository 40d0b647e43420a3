"""Measure the agents of a build: simulate conversations first where that is asked for, judge, and compare each agent with its baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from django.db.models import Count

from evaluation.change.choosing import compare_to_baseline
from evaluation.change.comparison import Comparison, adjusted, compare
from evaluation.change.measurement_files import measurements_of_file
from evaluation.change.measurements import NotComparable, measurement_of
from evaluation.change.models import Baseline
from evaluation.ci.verdict import AgentResult, Coverage
from evaluation.models import OUT_OF_REACH, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.runs.execute import capture
from evaluation.runs.planning import RunSpec


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
        """Return the comparison (AC-6.5.4), or why there is none."""
        if run.status != EvaluationRun.Status.COMPLETED:
            return None, run.error or str(run.status)
        if self.nothing is not None:
            return None, self.nothing
        try:
            if self.path is not None:
                before = self._measured.get(run.agent.slug if run.agent else "")
                if before is None:
                    return None, f"{self.path} does not hold it"
                comparison: Comparison | None = compare(before, measurement_of(run), margin=margin)
            else:
                comparison = compare_to_baseline(run, margin=margin)
        except NotComparable as error:
            return None, str(error)
        if comparison is None:
            known = Baseline.objects.filter(agent=run.agent).order_by("judge", "procedure")
            names = [f"{judge} ({how})" for judge, how in known.values_list("judge", "procedure").distinct()]
            others = f"; there is one by {', '.join(names)}" if names else ""
            return None, f"no baseline by {run.judge} ({run.procedure}){others}"
        why = other_situations(comparison) if run.simulated else ""
        return (None, why) if why else (comparison, "")

    def was_measured(self, run: EvaluationRun) -> bool:
        """Return whether the agent of a run once had a score."""
        if self.nothing is not None:
            return False
        if self.path is not None:
            before = self._measured.get(run.agent.slug if run.agent else "")
            return before is not None and any(
                d in run.dimensions and of.score is not None for d, of in before.dimensions.items()
            )
        of_agent = Baseline.objects.filter(agent=run.agent, dimension__in=run.dimensions)
        return of_agent.filter(judge=run.judge, procedure=run.procedure).exists()


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
        comparison, why = baseline.compare(run, margin=margin)
        results.append(
            AgentResult(
                captured=captured,
                coverage=coverage_of(run),
                comparison=comparison,
                no_baseline=why,
                expected=(run.agent.slug if run.agent else "") in named or baseline.was_measured(run),
            )
        )
    together = iter(adjusted([result.comparison for result in results if result.comparison is not None]))
    return tuple(replace(r, comparison=next(together)) if r.comparison is not None else r for r in results)


def other_situations(comparison: Comparison) -> str:
    """Return why two simulations do not compare: they share no situation; empty when they do, or when that is not known."""
    prefix = "situation:"  # with one situation alone, each of its repeats has a number
    both = [
        {
            str(row.cluster).removeprefix(prefix).partition("/")[0]
            for dimension in measurement.dimensions.values()
            for row in dimension.sample.observations
            if str(row.cluster).startswith(prefix)
        }
        for measurement in (comparison.baseline, comparison.candidate)
    ]
    if not all(both) or both[0] & both[1]:
        return ""
    return f"{comparison.baseline.name} was simulated in other situations ({', '.join(sorted(both[0])[:5])} …)"
