"""The numbers of the gate as values: what `correction.statistics` computes, and the rates that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.models import Agent
from evaluation.models import is_heuristic
from evaluation.windows import MessageWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMeans:
    """Mean scores (0 to 9) by one judge; None where nothing was scored. Scores of different judges never share a mean."""

    judge: str
    scored: int
    mean: float | None
    mean_first: float | None
    mean_committed: float | None

    @property
    def heuristic(self) -> bool:
        return is_heuristic(self.judge)


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionStatistics:
    """One dimension over all checks of one kind.

    Attributes:
        checks: Attempts in which it was checked. `scored` of them have a score of their own, `failures` failed.
        first_failures: First drafts that failed it.
        unjudged: How many could not be judged, by status (``timeout``, ``overload``, ``error``, ``unscored``, ``budget``).
        by_judge: Mean scores, per judge that was asked.
    """

    dimension: str
    checks: int = 0
    scored: int = 0
    failures: int = 0
    first_failures: int = 0
    unjudged: Mapping[str, int] = field(default_factory=dict)
    by_judge: tuple[JudgeMeans, ...] = ()

    @property
    def mean_first(self) -> float | None:
        """Mean score of first drafts; None also where several judges scored."""
        return self.by_judge[0].mean_first if len(self.by_judge) == 1 else None

    @property
    def mean_committed(self) -> float | None:
        """Mean score of what was said; None also where several judges scored."""
        return self.by_judge[0].mean_committed if len(self.by_judge) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """Checks that held nothing back: of messages said already, or of drafts of other programs, each attempt one check."""

    total: int = 0
    passed: int = 0
    dimensions: Mapping[str, DimensionStatistics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStatistics:
    """What the gate did in a window.

    Attributes:
        total_actions: Messages that were attempted, each counted once however many drafts it took.
        original_pass_count: Messages whose first draft was judged and failed nothing.
        judged_count: Messages whose first draft was judged on at least one dimension.
        regeneration_count: Drafts after the first ones.
        passed_after_retry_count: Messages of which a later draft passed.
        forced_through_count: Messages sent with their best attempt because none passed.
        abandoned: Messages the agent gave up after a draft was sent back.
        timeouts, overloads, errors, unscored, over_budget: Drafts that passed because not everything could be judged.
        dimensions: By dimension id.
        observed, external: Checks in observe mode, and of drafts of other programs; in none of the numbers above.
    """

    agent: Agent | None
    window: MessageWindow
    total_actions: int = 0
    original_pass_count: int = 0
    judged_count: int = 0
    regeneration_count: int = 0
    passed_after_retry_count: int = 0
    forced_through_count: int = 0
    abandoned: int = 0
    timeouts: int = 0
    overloads: int = 0
    errors: int = 0
    unscored: int = 0
    over_budget: int = 0
    dimensions: Mapping[str, DimensionStatistics] = field(default_factory=dict)
    observed: Checks = Checks()
    external: Checks = Checks()

    @property
    def original_success_rate(self) -> float | None:
        """First drafts that passed ÷ messages whose first draft was judged, 0 to 1; None where none was.

        A retry is no message of its own: five messages of which one took three drafts have a rate of 4/5, not 4/7. What could not be
        judged is in neither number, but in `total_actions`.
        """
        return self.original_pass_count / self.judged_count if self.judged_count else None

    @property
    def regeneration_failure_rate(self) -> float | None:
        """Messages forced through ÷ those forced through or passed after a retry, 0 to 1; None where there is none of either.

        Retried ones that passed because they could not be judged are in neither number.
        """
        ended = self.forced_through_count + self.passed_after_retry_count
        return self.forced_through_count / ended if ended else None
