"""A run by turn, as values."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.runs.coverage import NOTHING, Share
from evaluation.statistics.difference import Decision
from evaluation.statistics.estimates import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBin:
    """One stretch of turns.

    Attributes:
        name: As it was asked for, e.g. ``6-15``.
        messages: Judged messages; `conversations` they come from.
        scored, trivial, unscored, pending: Judgements in that status.
        score: Mean with its interval over the scored judgements; no value when there are none.
        share: How much was scored of what the judge can score; repeats count once.
        same: The same over the conversations that have scores in the first and in the last stretch.
    """

    name: str
    first: int
    last: int | None
    messages: int
    conversations: int
    scored: int
    trivial: int
    unscored: int
    pending: int
    score: Estimate
    same: Estimate
    share: Share = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnChange:
    """The last stretch with scores against the first.

    Attributes:
        first, last: Names of the stretches; empty when fewer than two have scores.
        delta: Last minus first, in points; negative: it fades.
        decision: ``drifted``, ``steady`` or ``cannot tell yet``.
        conversations: How many the difference rests on.
        resampled: What the interval draws from: ``conversations`` (it speaks of others, too) or ``messages`` (of these ones).
    """

    first: str
    last: str
    delta: Estimate
    decision: Decision
    conversations: int
    resampled: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDimension:
    """One dimension by turn.

    Attributes:
        bins: One per stretch asked for, empty ones, too.
        within: The change inside the conversations that reach both ends, each counting once: what fading means.
        overall: The change over all judged messages: also differs when long conversations are others than short ones.
        trend: Spearman's correlation of turn and message score in the conversations of `within`, −1 to 1.
    """

    dimension: str
    bins: tuple[TurnBin, ...]
    within: TurnChange
    overall: TurnChange
    trend: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnProfile:
    """A run by turn.

    Attributes:
        dimensions: Those that are judged message by message.
        not_by_turn: The run's other dimensions, which have no turn.
        left_out: Judged messages that lie in no stretch, or were deleted since.
    """

    agent: str
    evaluation_run: int
    judge: str
    procedure: str
    dimensions: tuple[TurnDimension, ...]
    not_by_turn: tuple[str, ...]
    left_out: int
