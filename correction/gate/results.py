"""The result of a check: what rules, cues and the judge said of each proposition, combined to one result per dimension."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from agents.kit.llm import Reply, Status
from agents.kit.text.patterns import TIMED_OUT
from agents.kit.text.storable import storable
from correction.models import CorrectionLog, GateDimensionResult, Outcome
from evaluation.judge.questions import Question, read_reply
from evaluation.judge.verdicts import MALFORMED, MAX_SCORE, PRECONDITION_FAILED, Verdict
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
class PropositionResult:
    """The result of one rule, cue or judged proposition of a dimension. `about` says in words what a rule or cue stands for."""

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
    def sentence(self) -> str:
        """Return the reasoning, with what the rule or cue stands for before it; empty without a reasoning."""
        if self.about and self.reasoning:
            return f"{self.about.rstrip('. ')}: {self.reasoning}"
        return self.reasoning

    def as_json(self) -> dict[str, Any]:
        """Return what the log stores of it."""
        return {
            "id": self.id,
            "judge": self.judge,
            "status": self.status,
            "score": self.score,
            "reasoning": self.reasoning or self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The result of a draft on all dimensions that were asked for.

    Attributes:
        dimensions: A row for each, not saved yet. An unjudgeable one has no score and passed (fail-open).
        judge: The model asked; ``rule`` where none was.
        duration_ms: The time of rules and of the slowest call, without what a process does once (importing the SDK, making its client).
        calls: Ledger rows of the calls.
    """

    dimensions: tuple[GateDimensionResult, ...]
    judge: str = ""
    duration_ms: int = 0
    calls: frozenset[int] = frozenset()

    @property
    def failures(self) -> tuple[GateDimensionResult, ...]:
        """Return the dimensions that failed."""
        return tuple(result for result in self.dimensions if not result.passed)

    @property
    def passed(self) -> bool:
        """Return whether no dimension failed."""
        return not self.failures

    @property
    def unjudged_outcome(self) -> Outcome | None:
        """Return the outcome of a draft that passes although not everything could be judged; None when everything was."""
        statuses = {result.status for result in self.dimensions}
        for status, outcome in UNJUDGED.items():
            if status in statuses:
                return outcome
        return None

    @property
    def score_sum(self) -> float | None:
        """Return the sum of the scores; None where nothing was scored."""
        scores = scores_of(self.dimensions)
        return sum(scores.values()) if scores else None

    def log(self, *, attempt: int, outcome: Outcome | None = None, **columns: Any) -> CorrectionLog:
        """Return the attempt (from 1) as a row that is not saved yet, with the dimensions as its `results`.

        Args:
            outcome: None: `CORRECTED`, which means sent back, where it failed; else passed (at once, after a retry, or unjudged and why).
            columns: Further columns of the row.
        """
        log = CorrectionLog(
            attempt=attempt,
            outcome=outcome or self._outcome(attempt),
            judge=self.judge[:200],
            duration_ms=self.duration_ms,
            score_sum=self.score_sum,
            **columns,
        )
        log.results = self.dimensions
        return log

    def _outcome(self, attempt: int) -> Outcome:
        """Return how the attempt ends."""
        if not self.passed:
            return Outcome.CORRECTED
        if self.unjudged_outcome is not None:
            return self.unjudged_outcome
        return Outcome.PASSED if attempt == 1 else Outcome.PASSED_AFTER_RETRY


def scores_of(results: Iterable[GateDimensionResult]) -> dict[str, float]:
    """Return the scores by dimension, of those that have one of their own."""
    return {r.dimension: r.score for r in results if r.status == "scored" and r.score is not None}


def read_judge_reply(question: Question, reply: Reply) -> list[PropositionResult]:
    """Return a result for each proposition that a judge was asked about, in their order.

    Its status is that of the call where the call failed; its duration the milliseconds of the whole call with its waiting.
    """
    claims = question.claims()
    results = []
    for (key, proposition), verdict in zip(question.keyed().items(), read_reply(question, reply), strict=True):
        about = ""
        if proposition.cues and is_heuristic(verdict.judge):
            # The offline judge names only the words it matched: they mean nothing without the claim.
            about = claims[key]
        result = result_of_verdict(proposition, verdict, about=about)
        status = _status_of_call(reply, verdict) or result.status
        results.append(replace(result, status=status, duration_ms=reply.latency_ms + reply.waited_ms))
    return results


def _status_of_call(reply: Reply, verdict: Verdict) -> DimensionStatus | None:
    """Return how the call failed; None where it brought an answer, even if only that this cannot be judged."""
    if reply.ok:
        return "error" if verdict.cause == MALFORMED else None
    if reply.status is not Status.TIMEOUT:
        return "error"
    if reply.attempts == 0:  # there was no free slot, or the endpoint hangs and was not asked
        return "overload"
    return "timeout"


def result_of_verdict(proposition: Proposition, verdict: Verdict, *, about: str = "") -> PropositionResult:
    """Return a verdict on a proposition as its result; without a score where the verdict has no value (not judged).

    A precondition that failed is an error, as a failed call is.

    Args:
        about: What the rule or cue stands for, in words; empty where the reasoning says enough.
    """
    return PropositionResult(
        id=proposition.id,
        judge=verdict.judge,
        status="error" if verdict.cause == PRECONDITION_FAILED else verdict.status,
        score=None if verdict.value is None else float(verdict.value),
        weight=proposition.weight,
        about=about,
        reasoning=verdict.reasoning,
        recommendations=proposition.recommendations,
        reason=verdict.reason,
        call=verdict.call,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """The outcome of a dimension. `decisive` is the proposition that decided it; None where there is none."""

    status: DimensionStatus
    score: float | None = None
    passed: bool = True
    decisive: PropositionResult | None = None
    reasoning: str = ""
    recommendations: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _LowestScore:
    """The lowest score of a dimension, and the proposition that stands for it."""

    score: float
    decisive: PropositionResult


def combine(
    *,
    dimension: str,
    threshold: Decimal,
    judged: Sequence[PropositionResult],
    own: Sequence[PropositionResult] = (),
) -> GateDimensionResult:
    """Return one dimension's result, not saved yet: its score is the worst of the judge's and of each of the agent's own rules and cues.

    The judge's score is the weighted mean of its propositions. Decided in this order: it fails where that score, or the one of a rule or
    cue, is below the threshold; it passes unjudged where a call failed or was not made for want of time or budget, however well the
    rules held, for they are only a part of it; it passes by its score; it passes where nothing has a score.

    Args:
        threshold: The lowest score (0 to 9) that passes.
        judged: Results of the propositions that a judge was asked about, also of those it could not be asked about.
        own: Results of the agent's rules and cues.
    """
    results = (*own, *judged)
    lowest = _lowest_score(judged, own)
    missing_verdict = _missing_verdict(results)
    if lowest is not None and lowest.score < threshold:
        finding = _failed_by_score(lowest, results, threshold)
    elif missing_verdict is not None:
        finding = _passed_without_verdict(missing_verdict)
    elif lowest is not None:
        finding = _passed_by_score(lowest)
    else:
        finding = _passed_without_score(results)
    decisive = finding.decisive  # the proposition that decided; None: none did
    row = GateDimensionResult(
        dimension=dimension,
        status=finding.status,
        score=finding.score,
        threshold=threshold,
        passed=finding.passed,
        reasoning=storable(finding.reasoning),
        recommendations=storable(finding.recommendations),
        reason=storable(finding.reason)[:300],
        parts=storable([result.as_json() for result in results]),
        call_id=next((result.call for result in judged if result.call is not None), None),
        duration_ms=max((result.duration_ms for result in judged), default=0),
    )
    if decisive is not None:
        row.judge = storable(decisive.judge)[:200]
        row.proposition_id = decisive.id
    return row


def _lowest_score(judged: Sequence[PropositionResult], own: Sequence[PropositionResult]) -> _LowestScore | None:
    """Return the lowest of the judge's mean score and of the score of each rule and cue; None where nothing is scored."""
    lowest = _mean_of_judge(judged)
    for result in own:
        if result.status == "scored" and result.score is not None and (lowest is None or result.score < lowest.score):
            lowest = _LowestScore(result.score, result)
    return lowest


def _mean_of_judge(judged: Sequence[PropositionResult]) -> _LowestScore | None:
    """Return the weighted mean of the judge's scores, with the proposition of the lowest one as decisive; None without any score."""
    total = 0.0
    weights = 0.0
    lowest: _LowestScore | None = None
    for result in judged:
        if result.status != "scored" or result.score is None:
            continue
        total += result.score * result.weight
        weights += result.weight
        if lowest is None or result.score < lowest.score:
            lowest = _LowestScore(result.score, result)
    if lowest is None:
        return None
    return _LowestScore(round(total / weights, 2), lowest.decisive)


def _missing_verdict(results: Iterable[PropositionResult]) -> PropositionResult | None:
    """Return a result whose call failed or was not made: a time-out before overload, error and budget; None where all were made."""
    failed: dict[str, PropositionResult] = {}
    for result in results:
        failed.setdefault(result.status, result)
    for status in ("timeout", "overload", "error", "budget"):
        if status in failed:
            return failed[status]
    return None


def _failed_by_score(lowest: _LowestScore, results: Sequence[PropositionResult], threshold: Decimal) -> _Finding:
    """Return a failed dimension with everything that speaks against the draft: what decided first, then by score, the lowest first."""
    below = [result for result in results if result.status == "scored" and (result.score or 0.0) < threshold]
    below.sort(key=lambda result: result.score or 0.0)
    against = [lowest.decisive, *(result for result in below if result is not lowest.decisive)]
    return _Finding(
        status="scored",
        score=lowest.score,
        passed=False,
        decisive=lowest.decisive,
        reasoning=_lines(result.sentence for result in against),
        recommendations=_lines(result.recommendations for result in below),
    )


def _lines(texts: Iterable[str]) -> str:
    """Return the texts as lines, each once, without empty ones."""
    return "\n".join(dict.fromkeys(text for text in texts if text))


def _passed_without_verdict(failed_call: PropositionResult) -> _Finding:
    """Return a dimension that passes because a call about it failed."""
    return _Finding(
        status=failed_call.status,
        decisive=failed_call,
        reasoning=failed_call.reasoning,
        reason=failed_call.reason,
    )


def _passed_by_score(lowest: _LowestScore) -> _Finding:
    """Return a dimension that passes by its score."""
    return _Finding(status="scored", score=lowest.score, decisive=lowest.decisive, reasoning=lowest.decisive.reasoning)


def _passed_without_score(results: Sequence[PropositionResult]) -> _Finding:
    """Return a dimension that passes because no proposition of it was scored.

    One that could not be false here (status `trivial`) gives it the best score, 9. Else it has none, and the reason of one that could
    not be scored; or the reason that there was nothing to check.
    """
    # False sorts before True: a pattern that took too long is named first, as its rule can be corrected.
    time_outs_first = sorted(results, key=lambda result: not result.reason.startswith(TIMED_OUT))
    for status in ("trivial", "unscored"):
        for result in time_outs_first:
            if result.status == status:
                score = float(MAX_SCORE) if status == "trivial" else None
                return _Finding(
                    status=result.status,
                    score=score,
                    decisive=result,
                    reasoning=result.reasoning,
                    reason=result.reason,
                )
    return _Finding(status="unscored", reason="nothing to check it by")
