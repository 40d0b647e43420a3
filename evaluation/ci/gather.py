"""Measuring the agents of a build and holding each against its baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evaluation.capture import Captured, capture
from evaluation.change.comparison import Change, Comparison, adjusted
from evaluation.change.measurements import NotComparable
from evaluation.ci.baseline import BaselineSource
from evaluation.ci.coverage import Coverage, coverage_of
from evaluation.ci.simulating import other_situations
from evaluation.coverage import Share
from evaluation.models import EvaluationRun
from evaluation.run_spec import RunSpec
from evaluation.summary import RunSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """One agent of the build.

    Attributes:
        captured: Its run, with its numbers.
        coverage: Per dimension how much was judged.
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
        found = self.summary.dimensions.get(dimension)
        if found is None:
            return None
        return found.score if found.count is None else float(found.count)

    def share(self, dimension: str) -> Share | None:
        """How much of a dimension was scored."""
        found = self.summary.dimensions.get(dimension)
        return None if found is None else found.share

    def change(self, dimension: str) -> Change | None:
        """How the dimension changed since the baseline; None without one."""
        changes = self.comparison.dimensions if self.comparison else ()
        return next((change for change in changes if change.dimension == dimension), None)


def gather(
    specs: Sequence[RunSpec],
    *,
    baseline: BaselineSource,
    margin: float,
    named: Collection[str] = (),
    prepared: Callable[[Sequence[EvaluationRun]], None] = lambda runs: None,
    progress: Callable[[EvaluationRun, int], None] = lambda run, done: None,
) -> tuple[AgentResult, ...]:
    """Measure, taking up what an earlier attempt left, and compare; all comparisons count as looked at together.

    Args:
        specs: One per agent.
        baseline: What to compare with.
        margin: Half-width of "no change", in points.
        named: Slugs of agents that were asked for by name.
        prepared: Called with runs as they are made, each once, before anything of them is asked.
        progress: Called as judgements are made.
    """
    found = [
        _result(captured, baseline, margin, named) for captured in capture(specs, prepared=prepared, progress=progress)
    ]
    corrected = iter(adjusted([result.comparison for result in found if result.comparison is not None]))
    return tuple(replace(r, comparison=next(corrected)) if r.comparison is not None else r for r in found)


def _result(captured: Captured, baseline: BaselineSource, margin: float, named: Collection[str]) -> AgentResult:
    run = captured.summary.run
    slug = run.agent.slug if run.agent else ""
    comparison, why = None, run.error or str(run.status)
    if run.status == EvaluationRun.Status.COMPLETED:
        try:
            comparison, why = baseline.compare(run, margin=margin)
            if comparison is not None and run.simulated and (why := other_situations(comparison)):
                comparison = None
        except NotComparable as error:
            why = str(error)
    return AgentResult(
        captured=captured,
        coverage=coverage_of(run),
        comparison=comparison,
        no_baseline=why,
        expected=slug in named or baseline.was_measured(run),
    )
