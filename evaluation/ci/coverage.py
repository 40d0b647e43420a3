"""How much of what was to be judged was judged, and why the rest was not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count

from agents.llm import Status
from evaluation.models import EvaluationRun, EvaluationScore, is_heuristic

_FAILED = tuple(status.value for status in Status if status != Status.OK)  # what a judgement's reason begins with
_NEEDS_LLM = "needs an LLM judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The judgements of one dimension.

    Attributes:
        scored, trivial: Judged.
        failed: Could have been judged and was not: timeout, rate limit, refusal, malformed reply, never asked. `example` says why.
        beyond_judge: What a heuristic judge cannot see, and leaves to an LLM.
        not_evaluable: Nothing there to judge: one message, no history, an empty text.
    """

    scored: int = 0
    trivial: int = 0
    failed: int = 0
    beyond_judge: int = 0
    not_evaluable: int = 0
    example: str = ""

    @property
    def failed_share(self) -> float:
        """Of what this judge could have judged the share it did not, 0 to 1; 0 when there was nothing."""
        could = self.scored + self.trivial + self.failed
        return self.failed / could if could else 0.0

    @property
    def unscored(self) -> int:
        return self.failed + self.beyond_judge + self.not_evaluable

    def __add__(self, other: Coverage) -> Coverage:
        numbers = ("scored", "trivial", "failed", "beyond_judge", "not_evaluable")
        summed = {name: getattr(self, name) + getattr(other, name) for name in numbers}
        return Coverage(**summed, example=self.example or other.example)


def coverage_of(run: EvaluationRun) -> dict[str, Coverage]:
    """The coverage of every dimension of a run; an agent's channel dimensions are those of its channels' runs."""
    found = {dimension: Coverage() for dimension in run.dimensions}
    runs = [run.pk, *run.channel_runs.values_list("pk", flat=True)]
    rows = EvaluationScore.objects.filter(evaluation_run__in=runs, dimension__in=run.dimensions).order_by()
    for row in rows.values("dimension", "status", "judge", "reason").annotate(n=Count("pk")):
        kind = _kind(row["status"], row["judge"], row["reason"])
        example = (row["reason"] or "not asked") if kind == "failed" else ""
        found[row["dimension"]] += Coverage(**{kind: row["n"]}, example=example)
    return found


def _kind(status: str, judge: str, reason: str) -> str:
    if status in ("scored", "trivial"):
        return status
    if status == "pending" or reason.startswith(_FAILED):
        return "failed"
    if reason.startswith(_NEEDS_LLM) or is_heuristic(judge):
        return "beyond_judge"
    return "failed" if judge else "not_evaluable"


def total(parts: Iterable[Coverage]) -> Coverage:
    return sum(parts, Coverage())
