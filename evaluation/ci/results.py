"""What was measured of each agent of a build, before anything is decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from agents.kit.text.wording import counted
from evaluation.change.change import ChangeResult
from evaluation.change.comparison import Comparison
from evaluation.models import EvaluationRun
from evaluation.runs.execute import Captured
from evaluation.runs.numbers import RunSummary
from evaluation.runs.shares import Share


class Coverage(BaseModel):
    """The judgements of one dimension, counted by what became of them.

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
    def judgeable(self) -> int:
        """Return how many judgements this judge could have made."""
        return self.scored + self.trivial + self.failed

    @property
    def failed_share(self) -> float:
        """Return the share of the judgeable that was not judged, 0 to 1; 0 when nothing was judgeable."""
        return self.failed / self.judgeable if self.judgeable else 0.0

    @property
    def unscored(self) -> int:
        return self.failed + self.needs_llm_judge + self.not_evaluable

    def __add__(self, other: Coverage) -> Coverage:
        summed = {name: count + getattr(other, name) for name, count in self.model_dump().items()}
        return Coverage(**summed, example=self.example or other.example)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """What was measured of one agent of the build.

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
        return self.summary.run

    @property
    def agent(self) -> str:
        """Return the slug of the agent, or the name of the channel that was measured."""
        return self.run.agent.slug if self.run.agent else str(self.run.channel)

    @property
    def changes(self) -> Sequence[ChangeResult]:
        """Return how its dimensions changed since the baseline; none without one."""
        return self.comparison.dimensions if self.comparison else ()

    @property
    def lost_dimensions(self) -> set[str]:
        """Return the dimensions of which so much less is scored than in the baseline that what is left is no score."""
        return self.comparison.lost_dimensions if self.comparison else set()

    @property
    def overall_score(self) -> float | None:
        """Return the mean of its dimensions; None where one of them has no score any more."""
        return None if self.lost_dimensions else self.summary.overall_score

    @property
    def has_result(self) -> bool:
        """Return whether anything can be said of it: a score; beside a baseline, something to compare with it, or hits."""
        if self.comparison is None:
            return self.summary.measured
        return self.summary.comparable or any(shown.proposition for shown in self.comparison.shown)

    def score(self, dimension: str) -> float | None:
        """Return the score of a dimension, its count where ideas are counted; None when there is none."""
        summary = self.summary.dimensions.get(dimension)
        if summary is None or dimension in self.lost_dimensions:
            return None
        if summary.count is not None:
            return float(summary.count)
        return summary.score

    def share(self, dimension: str) -> Share | None:
        """Return how much of a dimension was scored."""
        summary = self.summary.dimensions.get(dimension)
        return None if summary is None else summary.share

    def change(self, dimension: str) -> ChangeResult | None:
        """Return how the dimension changed since the baseline; None without one."""
        return next((change for change in self.changes if change.dimension == dimension), None)

    def proposition_changes(self, dimension: str) -> Sequence[ChangeResult]:
        """Return how the propositions of a dimension changed since the baseline, worst first; none without one."""
        return self.comparison.changes_of(dimension) if self.comparison else ()

    def missing(self, dimension: str) -> str:
        """Return what is missing to compare a dimension, and the next step; empty where it is compared."""
        return self.comparison.missing.get(dimension, "") if self.comparison else ""

    def why_no_score(self, dimension: str) -> str:
        """Return why a dimension has no score, for people."""
        summary = self.summary.dimensions.get(dimension)
        if summary is not None and summary.reason and (summary.scored or summary.fell_short):
            return summary.reason
        change = self.change(dimension)
        if dimension in self.lost_dimensions and change is not None:
            return change.reason
        coverage = self.coverage.get(dimension, Coverage())
        if coverage.needs_llm_judge:
            return counted(coverage.needs_llm_judge, "judgement needs an LLM judge", "judgements need an LLM judge")
        if coverage.not_evaluable:
            why = summary.not_evaluable if summary is not None else ""
            return why or f"{counted(coverage.not_evaluable, 'judgement')} not evaluable"
        return self.run.error or "nothing to judge"
