"""What a comparison takes and gives: two sides of scores, and the change between them. No database here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluation.runs.coverage import Share, total
from evaluation.statistics.bootstrap import Observation
from evaluation.statistics.difference import Outcome
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
        observations: Scored judgements per dimension and proposition: mean of the repeats, weight of the proposition. The cluster is
            a text: ``message:KEY`` the message judged, ``situation:ID`` where speech was simulated (so that the same situations pair),
            ``channel:SLUG`` for an agent's channel dimensions, ``repeat:N`` where a whole window is judged at once. Missing for a file that
            holds none.
        counted: Dimensions that are counts (ideas): in no 0–9 comparison.
        unscored: Judgements that could not be made, per dimension; `judged` those that were settled at all.
        evaluation_run: Its row; None for a file.
        scope: Which messages, as people say it, e.g. ``7d, build=41``; empty: all; None where that is not known.
        shares: Per dimension and proposition how much was scored of what the judge can score; missing where that is not known.
        by_message: The same of what is judged message by message.
        reasons: Why dimensions have no score although there was something to score.
        where: The tags its messages have; None where that is not known.
        digests: Per dimension and proposition, of everything in it that can change a score; missing where that is not known.
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
    simulated: bool = False
    evaluation_run: int | None = None
    scope: str | None = None
    where: Mapping[str, str] | None = None
    digests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shares: Mapping[str, Mapping[str, Share]] = field(default_factory=dict)
    by_message: Mapping[str, Mapping[str, Share]] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def share(self, dimension: str, proposition: str = "") -> Share | None:
        """How much was scored, of a dimension or one proposition in it; None where that is not known."""
        found = self.shares.get(dimension, {})
        return found.get(proposition) if proposition else total(found.values()) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one number: of a dimension, or of one proposition in it.

    Attributes:
        proposition: Empty for the dimension as a whole.
        baseline, current: Scores, 0 to 9, or counts; None when nothing was scored there.
        delta: Current minus baseline; None when one is missing.
        interval: 95 %, of the delta; None with `interval_note` saying why.
        verdict: ``drifted``, ``steady``, ``cannot tell yet``, ``not enough data`` (too little is scored now to say anything).
            ``drifted`` with delta > 0 is an improvement.
        share, baseline_share: How much was scored on each side, of what the judge can score; None where that is not known.
        n_more: Messages that would decide, where that can be said.
        n, baseline_n: Messages (pairs, situations) each side rests on.
        smallest_detectable: Change this comparison would find with power 0.8, in points; None when it cannot be said.
        paired: Whether the same situations (channels, messages) stand on both sides and were compared one by one.
        p_value: Chance of a difference this large where there is none, looked at alone; None without an interval.
        p_adjusted: The same among all that were compared at once (Holm); the verdict goes by it.
        sd: Standard deviation between messages, pooled over both sides (paired: of the differences), in points.
        unit: What `n` counts: ``messages``, ``situations``, ``channels`` or ``repeats``.
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
    p_value: float | None = None
    p_adjusted: float | None = None
    sd: float | None = None
    unit: str = "messages"
    share: Share | None = None
    baseline_share: Share | None = None

    @property
    def worse(self) -> bool:
        """Whether it surely got worse. Fewer ideas are not worse: a count goes with how much was said."""
        return self.verdict == "drifted" and self.delta is not None and self.delta < 0 and not self.counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A proposition of which surely much less is scored than before: its mean says little now.

    Attributes:
        before, now: Judgements scored, of those the judge could have scored.
        p: Chance of such a fall where there is none, adjusted for all propositions of the agent (Holm).
    """

    dimension: str
    proposition: str
    before: Share
    now: Share
    p: float

    def __str__(self) -> str:
        return f"{self.proposition}: {self.before} judgements scored before, {self.now} now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides of one target, compared.

    Attributes:
        dimensions: The change per dimension measured on both sides, in the order of the scorers.
        propositions: Per dimension, the change of each proposition asked on both sides, worst first.
        only_baseline, only_current: Dimensions (or ``dimension/proposition``) that stand on one side only.
        changed: ``dimension/proposition`` asked on both sides, but not the same: its claim, weight or rule changed. Not compared.
        one_sided: ``dimension/proposition`` asked on both sides but scored on one only; left out of the dimension's change.
        stale: Whether the persona changed between the two: the difference is then no drift alone.
        persona_changes: The versions of the persona that came between, as far as they were kept: what made them, what they changed.
        over_window: ``dimension/proposition`` judged once over the window: compared on its own, not in its dimension's change.
        lost: Propositions of which surely less than half as much is scored as before.
        margin: Half-width of "no change", in points.
        notes: What a reader must know, in sentences.
    """

    baseline: Side
    current: Side
    dimensions: tuple[Change, ...]
    propositions: Mapping[str, tuple[Change, ...]]
    only_baseline: tuple[str, ...] = ()
    only_current: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    one_sided: tuple[str, ...] = ()
    stale: bool = False
    persona_changes: tuple[str, ...] = ()
    over_window: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()
    margin: float = 0.5
    notes: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[Change, ...]:
        """What surely got worse: dimensions, then propositions."""
        rows = (*self.dimensions, *(change for changes in self.propositions.values() for change in changes))
        return tuple(change for change in rows if change.worse)
