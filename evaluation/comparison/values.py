"""What a comparison takes and gives: two sides of scores, and the change between them. No database here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluation.statistics.clusters import Observation
from evaluation.statistics.comparison import Outcome
from evaluation.statistics.estimates import Interval


class NotComparable(ValueError):
    """The two sides cannot be compared: another judge, another procedure, other things measured. Says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One measurement of one agent (or channel), made from an evaluation run or read from a file.

    Attributes:
        name: How it is called for people: ``baseline of 2026-11-20``, ``build=41``, ``FILE``.
        target: Slug of the agent or channel.
        judge: Model that judged.
        procedure: As `EvaluationRun.procedure`.
        persona_digest: Of the persona it was measured under; empty when not known.
        scores: Mean per dimension, 0 to 9, None when nothing was scored; counts for counted dimensions.
        proposition_scores: The same per dimension and proposition.
        observations: Scored judgements per dimension and proposition: mean of the repeats, weight of the proposition, clustered by the
            message judged (by situation where speech was played, so that the same situations pair). Missing for a file that holds none.
        counted: Dimensions that are counts (ideas): in no 0–9 comparison.
        unscored: Judgements that could not be made, per dimension; `judged` those that were settled at all.
        evaluation_run: Its row; None for a file.
    """

    name: str
    target: str
    judge: str
    procedure: str
    persona_digest: str = ""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    proposition_scores: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    observations: Mapping[str, Mapping[str, tuple[Observation, ...]]] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    unscored: Mapping[str, int] = field(default_factory=dict)
    judged: Mapping[str, int] = field(default_factory=dict)
    played: bool = False
    evaluation_run: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one number: of a dimension, or of one proposition in it.

    Attributes:
        proposition: Empty for the dimension as a whole.
        baseline, current: Scores, 0 to 9, or counts; None when nothing was scored there.
        delta: Current minus baseline; None when one is missing.
        interval: 95 %, of the delta; None with `interval_note` saying why.
        verdict: ``drifted``, ``steady``, ``cannot tell yet``. ``drifted`` with delta > 0 is an improvement.
        n_more: Messages that would decide, where that can be said.
        n, baseline_n: Messages (pairs, situations) each side rests on.
        smallest_detectable: Change this comparison would find with power 0.8, in points; None when it cannot be said.
        paired: Whether the same situations stand on both sides.
    """

    dimension: str
    proposition: str = ""
    baseline: float | None
    current: float | None
    delta: float | None
    interval: Interval | None
    interval_note: str = ""
    verdict: Outcome
    reason: str
    n_more: int | None = None
    n: int = 0
    baseline_n: int = 0
    smallest_detectable: float | None = None
    paired: bool = False
    counted: bool = False

    @property
    def worse(self) -> bool:
        """Whether it surely got worse."""
        return self.verdict == "drifted" and self.delta is not None and self.delta < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides of one target, compared.

    Attributes:
        dimensions: The change per dimension measured on both sides, in the order of the scorers.
        propositions: Per dimension, the change of each proposition asked on both sides, worst first.
        only_baseline, only_current: Dimensions (or ``dimension/proposition``) that stand on one side only.
        stale: Whether the persona changed between the two: the difference is then no drift alone.
        margin: Half-width of "no change", in points.
        notes: What a reader must know, in sentences.
    """

    baseline: Side
    current: Side
    dimensions: tuple[Change, ...]
    propositions: Mapping[str, tuple[Change, ...]]
    only_baseline: tuple[str, ...] = ()
    only_current: tuple[str, ...] = ()
    stale: bool = False
    margin: float = 0.5
    notes: tuple[str, ...] = ()
