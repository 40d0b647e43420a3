"""What goes into a check of a draft and what comes out. Frozen, without ORM objects: the API gives the same values as a turn does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from agents.llm import Reply, Status
from agents.text.patterns import TIMED_OUT
from correction.models import Outcome
from evaluation.judge import Question, read_reply
from evaluation.models import is_heuristic
from evaluation.propositions.schema import Proposition
from evaluation.trajectory import Event
from evaluation.verdicts import MAX_SCORE, Verdict

DimensionStatus = Literal["scored", "trivial", "unscored", "timeout", "overload", "error", "budget"]
# Where nothing failed and not everything could be judged, the first of these that occurs names the outcome.
UNJUDGED: tuple[tuple[DimensionStatus, Outcome], ...] = (
    ("timeout", Outcome.TIMEOUT_PASSED),
    ("overload", Outcome.OVERLOAD_PASSED),
    ("error", Outcome.ERROR_PASSED),
    ("budget", Outcome.BUDGET_PASSED),
    ("unscored", Outcome.UNSCORED_PASSED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A draft with everything it is judged by.

    Attributes:
        text: The draft.
        agent_name: Who is about to say it, as the judge reads it.
        agent_slug: Whose propositions hold for it; those of every agent always do.
        seeded: Whether the agent is one of the examples, so that their propositions hold.
        persona: The rendered persona; None when there is none to show.
        events: What happened before, oldest first, without the draft: the first `head` of them stand at the start of the
            conversation, `omitted` are left out after those, the rest are the last ones.
        channel_name, channel_kind: Where it is about to be said.
        is_reply: Whether it answers a message in a thread.
    """

    text: str
    agent_name: str
    agent_slug: str = ""
    seeded: bool = False
    persona: str | None = None
    events: tuple[Event, ...] = ()
    head: int = 0
    omitted: int = 0
    channel_name: str = ""
    channel_kind: str = ""
    is_reply: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One rule, cue or claim that was looked at for a dimension. `about` says in words what a rule or cue stands for."""

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

    def as_json(self) -> dict[str, Any]:
        """As the log keeps it."""
        return {
            "id": self.id,
            "judge": self.judge,
            "status": self.status,
            "score": self.score,
            "reasoning": self.reasoning or self.reason,
        }


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
        parts: Everything that was looked at.
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

    `duration_ms` is the time of rules and of the slowest call. What a process does once (importing the SDK, making its client) is no
    judging and is in no deadline, so a session's time must not be used up by it.
    """

    dimensions: tuple[DimensionCheck, ...]
    judge: str = ""
    duration_ms: int = 0

    @property
    def passed(self) -> bool:
        """Whether no dimension failed."""
        return all(check.passed for check in self.dimensions)

    @property
    def failures(self) -> tuple[DimensionCheck, ...]:
        return tuple(check for check in self.dimensions if not check.passed)

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
        return next((outcome for status, outcome in UNJUDGED if status in statuses), None)

    def as_json(self) -> dict[str, Any]:
        return {check.dimension: check.as_json() for check in self.dimensions}


# The calls that brought no verdict, the one that says most first.
_FAILED: tuple[DimensionStatus, ...] = ("timeout", "overload", "error", "budget")


def judge_parts(question: Question, reply: Reply) -> list[Part]:
    """What a judge's reply says of each claim of its question. Found cues mean nothing without the claim they speak of."""
    claims = question.claims()
    return [
        part_of(
            proposition,
            verdict,
            call_failed=_failure(reply, verdict),
            duration_ms=reply.latency_ms + reply.waited_ms,
            about=claims[key] if proposition.cues and is_heuristic(verdict.judge) else "",
        )
        for (key, proposition), verdict in zip(question.keyed().items(), read_reply(question, reply), strict=True)
    ]


def _failure(reply: Reply, verdict: Verdict) -> DimensionStatus | None:
    """How the call failed; None when it brought an answer, be it that the claim cannot be judged."""
    if reply.ok:
        return "error" if verdict.reason.startswith("malformed") else None
    if reply.status is Status.TIMEOUT:
        return "timeout" if reply.attempts else "overload"  # without an attempt: no free slot, or it hangs
    return "error"


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


def combine(*, dimension: str, threshold: Decimal, claims: Sequence[Part], own: Sequence[Part] = ()) -> DimensionCheck:
    """One dimension's check: the worst of the judge's number and of each of the agent's own rules and cues.

    Where there are several claims the judge's number is their weighted mean. A call that failed leaves the dimension unjudged and
    passed, however well the rules held: they are a part of it. A broken rule fails it all the same.

    Args:
        dimension: Its id.
        threshold: Lowest score that passes.
        claims: What the judge was asked.
        own: The agent's own rules and cues.
    """
    scored = [part for part in claims if part.status == "scored" and part.score is not None]
    candidates: list[tuple[float, Part]] = [(p.score, p) for p in own if p.status == "scored" and p.score is not None]
    if scored:
        mean = round(sum((p.score or 0.0) * p.weight for p in scored) / sum(p.weight for p in scored), 2)
        candidates.insert(0, (mean, min(scored, key=lambda p: p.score or 0.0)))
    parts = (*own, *claims)
    failed = next((p for status in _FAILED for p in parts if p.status == status), None)
    score, decisive = min(candidates, key=lambda pair: pair[0]) if candidates else (None, None)
    broken = score is not None and score < threshold
    status: DimensionStatus = "scored"
    if failed is not None and not broken:
        status, score, decisive = failed.status, None, failed
    elif decisive is None:
        slow_first = sorted(parts, key=lambda p: not p.reason.startswith(TIMED_OUT))
        decisive = next((p for status in ("trivial", "unscored") for p in slow_first if p.status == status), None)
        status = "unscored" if decisive is None else decisive.status
        score = float(MAX_SCORE) if status == "trivial" else None
    return DimensionCheck(
        dimension=dimension,
        status=status,
        score=score,
        threshold=threshold,
        passed=not broken,
        reasoning=_reasoning(decisive, threshold, parts) if broken else decisive.reasoning if decisive else "",
        recommendations=_recommendations(threshold, parts) if broken else "",
        reason="" if status == "scored" else decisive.reason if decisive else "nothing to check it by",
        judge=decisive.judge if decisive else "",
        proposition_id=decisive.id if decisive else "",
        parts=parts,
        call=next((p.call for p in claims if p.call is not None), None),
        duration_ms=max((p.duration_ms for p in claims), default=0),
    )


def _below(threshold: Decimal, parts: Sequence[Part]) -> list[Part]:
    """The parts that speak against the draft, worst first."""
    return sorted(
        (p for p in parts if p.status == "scored" and (p.score or 0.0) < threshold), key=lambda p: p.score or 0.0
    )


def _reasoning(decisive: Part | None, threshold: Decimal, parts: Sequence[Part]) -> str:
    """The reasons of everything that speaks against the draft, what decided first."""
    against = [*([decisive] if decisive else []), *(p for p in _below(threshold, parts) if p is not decisive)]
    return "\n".join(dict.fromkeys(_said(part) for part in against if part.reasoning))


def _said(part: Part) -> str:
    return f"{part.about.rstrip('. ')}: {part.reasoning}" if part.about else part.reasoning


def _recommendations(threshold: Decimal, parts: Sequence[Part]) -> str:
    return "\n".join(dict.fromkeys(p.recommendations for p in _below(threshold, parts) if p.recommendations))
