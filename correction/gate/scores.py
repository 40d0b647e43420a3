"""From verdicts to one check per dimension: what counts, what passes, and why something was not judged. Values without ORM objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from agents.llm import Reply, Status
from agents.text.patterns import TIMED_OUT
from correction.models import Outcome
from evaluation.judge.questions import Question, read_reply
from evaluation.judge.verdicts import MALFORMED, MAX_SCORE, Verdict
from evaluation.models import is_heuristic
from evaluation.propositions.schema import Proposition

DimensionStatus = Literal["scored", "trivial", "unscored", "timeout", "overload", "error", "budget"]
# Where nothing failed and not everything could be judged, the first of these that occurs names the outcome.
UNJUDGED: dict[DimensionStatus, Outcome] = {
    "timeout": Outcome.TIMEOUT_PASSED,
    "overload": Outcome.OVERLOAD_PASSED,
    "error": Outcome.ERROR_PASSED,
    "budget": Outcome.BUDGET_PASSED,
    "unscored": Outcome.UNSCORED_PASSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One rule, cue or proposition that was checked for a dimension. `about` says in words what a rule or cue stands for."""

    id: str
    judge: str
    status: DimensionStatus
    score: float | None = None
    weight: float = 1.0
    about: str = ""
    reasoning: str = ""
    recommendations: str = ""
    reason: str = ""
    call: int | None = None
    duration_ms: int = 0

    @property
    def scored(self) -> bool:
        return self.status == "scored" and self.score is not None

    def as_json(self) -> dict[str, Any]:
        """As the log stores it."""
        shown = {name: getattr(self, name) for name in ("id", "judge", "status", "score")}
        return {**shown, "reasoning": self.reasoning or self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionCheck:
    """One dimension of one draft.

    Attributes:
        score: 0 to 9, the worst of judge, rules and cues; 9 where trivial; None where not judged.
        threshold: Lowest score that passes.
        passed: Also true where it could not be judged (fail-open).
        reasoning, recommendations: Of what decided the score.
        reason: Why it was not judged.
        judge: ``rule``, or the model that decided the score.
        parts: Everything that was checked.
    """

    dimension: str
    status: DimensionStatus
    score: float | None
    threshold: Decimal
    passed: bool
    reasoning: str = ""
    recommendations: str = ""
    reason: str = ""
    judge: str = ""
    proposition_id: str = ""
    parts: tuple[Part, ...] = ()
    call: int | None = None
    duration_ms: int = 0

    def as_json(self) -> dict[str, Any]:
        """As callers above and the command line show it."""
        return {
            "score": self.score,
            "threshold": float(self.threshold),
            "passed": self.passed,
            "status": self.status,
            "reasoning": self.reasoning or self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """A draft on all dimensions that were asked for.

    `duration_ms` is the time of rules and of the slowest call, without what a process does once (importing the SDK, making its client).
    """

    dimensions: tuple[DimensionCheck, ...]
    judge: str = ""
    duration_ms: int = 0

    @property
    def failures(self) -> tuple[DimensionCheck, ...]:
        return tuple(check for check in self.dimensions if not check.passed)

    @property
    def passed(self) -> bool:
        """Whether no dimension failed."""
        return not self.failures

    @property
    def scores(self) -> dict[str, float]:
        """Scores by dimension, of those really scored."""
        return {c.dimension: c.score for c in self.dimensions if c.status == "scored" and c.score is not None}

    @property
    def score_sum(self) -> float | None:
        """Sum of the scores (AC-7.0.9); None when nothing was scored."""
        return sum(self.scores.values()) if self.scores else None

    @property
    def unjudged_outcome(self) -> Outcome | None:
        """The outcome of a draft that passes although not everything could be judged; None when everything was."""
        statuses = {check.status for check in self.dimensions}
        return next((outcome for status, outcome in UNJUDGED.items() if status in statuses), None)

    def outcome(self, attempt: int) -> Outcome:
        """How this attempt ends, from 1; one that failed is sent back."""
        if not self.passed:
            return Outcome.CORRECTED
        return self.unjudged_outcome or (Outcome.PASSED if attempt == 1 else Outcome.PASSED_AFTER_RETRY)


def judge_parts(question: Question, reply: Reply) -> list[Part]:
    """What a judge's reply says of each proposition of its question. Cues that were matched mean nothing without their claim."""
    claims, parts = question.claims(), []
    for (key, proposition), verdict in zip(question.keyed().items(), read_reply(question, reply), strict=True):
        failed: DimensionStatus | None = None  # the call brought an answer, even if only that this cannot be judged
        if reply.ok:
            failed = "error" if verdict.cause == MALFORMED else None
        elif reply.status is Status.TIMEOUT:
            failed = "timeout" if reply.attempts else "overload"  # without an attempt: no free slot, or it hangs
        else:
            failed = "error"
        about = claims[key] if proposition.cues and is_heuristic(verdict.judge) else ""
        took = reply.latency_ms + reply.waited_ms
        parts.append(part_of(proposition, verdict, call_failed=failed, duration_ms=took, about=about))
    return parts


def part_of(
    proposition: Proposition,
    verdict: Verdict,
    *,
    call_failed: DimensionStatus | None = None,
    duration_ms: int = 0,
    about: str = "",
) -> Part:
    """A verdict as a part of its dimension."""
    return Part(
        id=proposition.id,
        judge=verdict.judge,
        status=call_failed or verdict.status,
        score=None if verdict.value is None else float(verdict.value),
        weight=proposition.weight,
        about=about,
        reasoning=verdict.reasoning,
        recommendations=proposition.recommendations,
        reason=verdict.reason,
        call=verdict.call,
        duration_ms=duration_ms,
    )


def combine(*, dimension: str, threshold: Decimal, judged: Sequence[Part], own: Sequence[Part] = ()) -> DimensionCheck:
    """One dimension's check: the worst of the judge's number and of each of the agent's own rules and cues.

    Where there are several propositions the judge's number is their weighted mean. A call that failed leaves the dimension unjudged and
    passed, however well the rules held: they are a part of it. A broken rule fails it all the same.

    Args:
        dimension: Its id.
        threshold: Lowest score that passes.
        judged: What the judge was asked.
        own: The agent's own rules and cues.
    """
    parts = (*own, *judged)
    candidates = [(p.score or 0.0, p) for p in own if p.scored]
    if scored := [p for p in judged if p.scored]:
        mean = round(sum((p.score or 0.0) * p.weight for p in scored) / sum(p.weight for p in scored), 2)
        candidates.insert(0, (mean, min(scored, key=lambda p: p.score or 0.0)))
    score, decisive = min(candidates, key=lambda pair: pair[0]) if candidates else (None, None)
    broken = score is not None and score < threshold
    # The calls that brought no verdict, the one that says most first.
    failed = next((p for s in ("timeout", "overload", "error", "budget") for p in parts if p.status == s), None)
    status: DimensionStatus = "scored"
    if failed is not None and not broken:
        status, score, decisive = failed.status, None, failed
    elif decisive is None:
        slow_first = sorted(parts, key=lambda p: not p.reason.startswith(TIMED_OUT))
        decisive = next((p for s in ("trivial", "unscored") for p in slow_first if p.status == s), None)
        status = "unscored" if decisive is None else decisive.status
        score = float(MAX_SCORE) if status == "trivial" else None
    reasoning, recommendations = decisive.reasoning if decisive else "", ""
    if broken:  # everything that speaks against the draft, what decided first
        below = sorted((p for p in parts if p.scored and (p.score or 0.0) < threshold), key=lambda p: p.score or 0.0)
        against = [*([decisive] if decisive else []), *(p for p in below if p is not decisive)]
        said = (f"{p.about.rstrip('. ')}: {p.reasoning}" if p.about else p.reasoning for p in against if p.reasoning)
        reasoning = "\n".join(dict.fromkeys(said))
        recommendations = "\n".join(dict.fromkeys(p.recommendations for p in below if p.recommendations))
    return DimensionCheck(
        dimension=dimension,
        status=status,
        score=score,
        threshold=threshold,
        passed=not broken,
        reasoning=reasoning,
        recommendations=recommendations,
        reason="" if status == "scored" else decisive.reason if decisive else "nothing to check it by",
        judge=decisive.judge if decisive else "",
        proposition_id=decisive.id if decisive else "",
        parts=parts,
        call=next((p.call for p in judged if p.call is not None), None),
        duration_ms=max((p.duration_ms for p in judged), default=0),
    )
