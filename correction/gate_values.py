"""What goes into a check of a draft and what comes out. Frozen, without ORM objects: the API gives the same values as a turn does."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from correction.models import Outcome
from evaluation.trajectory import Event

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
