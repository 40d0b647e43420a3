"""Two measurements of one target, compared (AC-6.5.4): per dimension and proposition the change, how sure it is, and a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, computed_field, field_serializer

from agents.personas.persona import changes_between
from evaluation.change.change import (
    WHERE,
    ChangeResult,
    Lost,
    Sample,
    ScoredShare,
    change_of,
    change_of_hits,
    corrected,
    detectable,
    goes_by_hits,
    lost_dimensions,
    lost_propositions,
    mean_of,
    to,
)
from evaluation.change.measurements import (
    Measured,
    MeasuredDimension,
    Measurement,
    NotComparable,
    is_message,
)
from evaluation.dimensions import BY_ONE_MESSAGE, Dimension
from evaluation.models import COUNTED, is_heuristic
from evaluation.runs.summary import NOTHING, TOO_LITTLE, Share, total, with_share
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation
from evaluation.statistics.difference import ALPHA, MARGIN, n_to_detect

NONE_IN_COMMON = "no proposition was scored in both"
ONLY_NOW = "scored only now"
ONLY_BEFORE = "scored only in the baseline"
MORE_HITS = "more hits, not surely"
NO_MORE_HITS = "no more hits"
HITS_ALONE = "only hits are scored, and their score does not say how many there are: see the propositions"


class DimensionChange(ChangeResult):
    """A score now and in the baseline, of a dimension and of each proposition of it that is in both."""

    propositions: dict[str, ChangeResult]


class Shown(BaseModel):
    """What a comparison shows although there is no difference of scores: hits, or a score on one side only.

    Attributes:
        verdict: ``worse`` or ``better`` where hits surely are; `MORE_HITS`, `NO_MORE_HITS`; `ONLY_NOW` or `ONLY_BEFORE`.
        figures: E.g. ``hits in 7 of 24 messages now, 0 of 28 in the baseline (p 0.003)``.
    """

    model_config = ConfigDict(frozen=True)

    dimension: str
    proposition: str
    verdict: str
    figures: str

    @property
    def name(self) -> str:
        return self.proposition or self.dimension

    @property
    def is_sure(self) -> bool:
        """Whether it is no mere suspicion; that there is a score on one side only is sure."""
        return self.verdict not in (MORE_HITS, NO_MORE_HITS)

    @property
    def only_before(self) -> bool:
        """Whether its messages are those of the baseline."""
        return self.verdict == ONLY_BEFORE

    def __str__(self) -> str:
        return f"{self.verdict}: {self.name}: {self.figures}"


class Comparison(BaseModel):
    """Two measurements of one target, compared. Dumped it is what commands and the API show.

    Attributes:
        dimensions: The change per dimension that both measured, in the order of the scorers.
        propositions: Per dimension, the change of each proposition asked in both, worst first.
        only_baseline, only_candidate: Dimensions (or ``dimension/proposition``) that are in one of the two only.
        changed: ``dimension/proposition`` asked in both, but it (claim, weight, rule) or the judge's prompt changed. Not compared.
        scored_in_one: ``dimension/proposition`` asked in both but scored in one only; left out of the dimension's change.
        stale: Whether the persona changed between the two: the difference is then no drift alone.
        persona_changes: The versions of the persona that came between, as far as they were stored: what made them, what they changed.
        over_window: ``dimension/proposition`` judged once over the window: compared on its own, not in its dimension's change.
        unjudged: ``dimension/proposition`` asked in both, of which the judge could score nothing in either.
        lost: Dimensions, then propositions, of which surely less than half as much is scored as in the baseline.
        missing: By dimension that has no difference of scores what is missing for one, and the next step.
        margin: Half-width of "no change", in points.
        notes: What a reader must know, in sentences.
    """

    model_config = ConfigDict(frozen=True, serialize_by_alias=True, json_schema_serialization_defaults_required=True)

    baseline: Measurement
    candidate: Measurement
    dimensions: tuple[ChangeResult, ...]
    propositions: dict[str, tuple[ChangeResult, ...]] = Field({}, exclude=True)
    only_baseline: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    scored_in_one: tuple[str, ...] = ()
    stale: bool = False
    persona_changes: tuple[str, ...] = ()
    over_window: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = Field((), serialization_alias="not_enough_data")
    missing: dict[str, str] = {}
    margin: float = MARGIN
    notes: tuple[str, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def target(self) -> str:
        return self.candidate.target

    @computed_field  # type: ignore[prop-decorator]
    @property
    def judge(self) -> str:
        return self.candidate.judge

    @computed_field  # type: ignore[prop-decorator]
    @property
    def procedure(self) -> str:
        return self.candidate.procedure

    @computed_field(alias="worse")  # type: ignore[prop-decorator]
    @property
    def worse_names(self) -> list[str]:
        return [change.name for change in self.worse]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shown(self) -> list[Shown]:
        """What can be said although there is no difference of scores, what is sure first. Every report begins with it."""
        rows = [change for change in self.dimensions if change.dimension not in self.lost_dimensions]
        shown = [one for change in (*rows, *self.proposition_changes) if (one := shown_by(change)) is not None]
        return sorted(shown, key=lambda one: (one.verdict != "worse", one.verdict != "better"))

    @property
    def lost_dimensions(self) -> set[str]:
        """Those that have no score because surely less than half as much is scored as in the baseline."""
        return {one.dimension for one in self.lost if not one.proposition}

    @field_serializer("dimensions")
    def _with_propositions(self, dimensions: tuple[ChangeResult, ...]) -> dict[str, DimensionChange]:
        """By dimension; within it by proposition."""
        return {
            c.dimension: DimensionChange.model_construct(
                **dict(c), propositions={p.proposition: p for p in self.of(c.dimension)}
            )
            for c in dimensions
        }

    def of(self, dimension: str) -> tuple[ChangeResult, ...]:
        """The changes of a dimension's propositions, worst first."""
        return self.propositions.get(dimension, ())

    @property
    def proposition_changes(self) -> list[ChangeResult]:
        """The changes of all propositions, by dimension, in each the worst first."""
        return [change for changes in self.propositions.values() for change in changes]

    @property
    def worse(self) -> tuple[ChangeResult, ...]:
        """What surely got worse: dimensions, then propositions."""
        return tuple(change for change in (*self.dimensions, *self.proposition_changes) if change.worse)


def shown_by(change: ChangeResult) -> Shown | None:
    """Return what a change says by hits or by a score on one side only; None where scores are compared, or there is nothing."""
    about = {"dimension": change.dimension, "proposition": change.proposition}
    if change.hits is not None:
        p = f" (p {change.p_adjusted:.2g})" if change.p_adjusted is not None else ""
        unsure = MORE_HITS if (change.points or 0.0) < 0 else NO_MORE_HITS
        return Shown(
            verdict={"drifted": "worse", "improved": "better"}.get(change.verdict, unsure),
            figures=f"hits in {change.hits} messages now, {change.baseline_hits} in the baseline{p}",
            **about,
        )
    if change.proposition or change.counted or (change.baseline is None) == (change.candidate is None):
        return None
    if change.candidate is not None:
        return Shown(verdict=ONLY_NOW, figures=with_share(f"{change.candidate:.1f}", change.share), **about)
    return Shown(verdict=ONLY_BEFORE, figures=with_share(f"{change.baseline:.1f}", change.baseline_share), **about)


# -- two measurements
def compare(
    baseline: Measurement, candidate: Measurement, *, margin: float = MARGIN, propositions: bool = True
) -> Comparison:
    """The change from one measurement to another, per dimension and per proposition.

    A dimension's change is that of the propositions that were asked in both and are still the same; where some are not, its scores
    here are not those of the runs, and a note says so. Several comparisons that are looked at together go through `adjusted` together.

    Args:
        baseline, candidate: What is compared with what.
        margin: Half-width of "no change", in points, more than 0.
        propositions: Whether to look at each proposition, too.

    Raises:
        NotComparable: Another target, judge or procedure; names both.
    """
    _check(baseline, candidate)
    digests = (baseline.persona_digest, candidate.persona_digest)
    stale = all(digests) and digests[0] != digests[1]
    persona_changes = tuple(map(str, changes_between(candidate.target, *digests))) if stale else ()
    common = [d for d in SCORERS if d in baseline.dimensions and d in candidate.dimensions]
    parts = [_Dimension(d, baseline.dimensions[d], candidate.dimensions[d], candidate.judge) for d in common]
    lost_parts = {one.dimension: one for one in lost_dimensions({part.name: part.scored_shares() for part in parts})}
    changed: list[str] = []
    scored_in_one: list[str] = []
    over_window: list[str] = []
    unjudged: list[str] = []
    shares_before: dict[tuple[str, str], Share] = {}
    shares_now: dict[tuple[str, str], Share] = {}
    for part in parts:
        changed += part.named(part.reworded)
        scored_in_one += part.named(part.scored_in_one)
        over_window += part.named(part.over_window)
        unjudged += part.named(part.unjudged)
        for proposition, (before, now) in part.scored_by_message.items():
            shares_before[part.name, proposition] = before.share or NOTHING
            shares_now[part.name, proposition] = now.share or NOTHING
        if part.by_hits and part.name in lost_parts:
            lost_parts[part.name] = lost_parts[part.name].model_copy(update={"without_hits": True})
    comparison = Comparison(
        baseline=baseline,
        candidate=candidate,
        dimensions=tuple(part.change(margin, lost_parts.get(part.name)) for part in parts),
        propositions={part.name: part.changes(margin) for part in parts} if propositions else {},
        only_baseline=_only(baseline, candidate),
        only_candidate=_only(candidate, baseline),
        changed=tuple(changed),
        scored_in_one=tuple(scored_in_one),
        stale=stale,
        persona_changes=persona_changes,
        over_window=tuple(over_window),
        unjudged=tuple(unjudged),
        lost=(*lost_parts.values(), *lost_propositions(shares_before, shares_now)),
        missing={part.name: line for part in parts if (line := part.missing(lost_parts.get(part.name)))},
        margin=margin,
        notes=tuple(_notes(baseline, candidate, changed, persona_changes, stale=stale)),
    )
    return adjusted([comparison])[0]


def _check(baseline: Measurement, candidate: Measurement) -> None:
    if baseline.target != candidate.target:
        raise NotComparable(
            f"{baseline.name} is of {baseline.target}, {candidate.name} of {candidate.target}: only measurements of the same one compare"
        )
    judges = [f"{m.judge} (heuristic)" if is_heuristic(m.judge) else m.judge for m in (baseline, candidate)]
    for how, there, here, what, advice in (
        ("by", *judges, "judges", "with one of them"),
        ("as", baseline.procedure, candidate.procedure, "procedures", "in the same way"),
    ):
        if there != here:
            raise NotComparable(
                f"{baseline.target}: {baseline.name} was judged {how} {there}, {candidate.name} {how} {here}; scores of different "
                f"{what} do not compare: measure both {advice}"
            )


class _Dimension:
    """One dimension of two measurements: which propositions of it can be compared.

    Attributes:
        reworded: Asked in both, but not the same any more.
        same: The others that were asked in both.
        over_window: Of these, where others are judged message by message, those judged once over the window: one judgement is no
            sample of messages.
        by_hits: Those compared by the share of messages with a hit, in the baseline and now: of the offline judge's cues and rules, where
            all scores of both are hits, or the baseline has fewer than two. What has no hit is unscored then, so scores say nothing of it.
        scored_in_one: Of the others those that are scored in one of the two only.
        unjudged: Those of which the judge could score nothing in either.
    """

    def __init__(self, name: str, before: MeasuredDimension, now: MeasuredDimension, judge: str) -> None:
        self.name, self.both, self.counted = name, (before, now), name in COUNTED
        self.heuristic = is_heuristic(judge)
        self.reworded: list[str] = []
        self.same: dict[str, tuple[Measured, Measured]] = {}
        for proposition, earlier in before.propositions.items():
            later = now.propositions.get(proposition)
            if later is None:
                continue
            if earlier.digest and later.digest and earlier.digest != later.digest:
                self.reworded.append(proposition)
            else:
                self.same[proposition] = (earlier, later)
        self.over_window = self._over_window()
        self.by_hits: dict[str, tuple[Share, Share]] = {}
        self.scored_in_one: list[str] = []
        self.unjudged: list[str] = []
        for proposition, (earlier, later) in self.same.items():
            scored = [one.score is not None for one in (earlier, later)]
            hits = self._hits(earlier, later)
            if hits is not None:
                self.by_hits[proposition] = hits
            elif any(scored) and not all(scored) and not self.counted:
                self.scored_in_one.append(proposition)
            if not any(scored) and (earlier.unjudged or later.unjudged):
                self.unjudged.append(proposition)

    def named(self, propositions: Iterable[str]) -> list[str]:
        return [f"{self.name}/{proposition}" for proposition in propositions]

    def _over_window(self) -> list[str]:
        windows = []
        others = False
        for proposition, (before, now) in self.same.items():
            observations = [*before.observations, *now.observations]
            if not observations:
                continue
            if all(str(o.cluster).startswith("repeat:") for o in observations):
                windows.append(proposition)
            else:
                others = True
        return windows if others else []

    def _hits(self, before: Measured, now: Measured) -> tuple[Share, Share] | None:
        """The hits of both, where they are compared; None where the scores are."""
        earlier, later = before.hits, now.hits
        if not self.heuristic or self.name not in BY_ONE_MESSAGE or earlier is None or later is None:
            return None
        return (earlier, later) if goes_by_hits((earlier, later), (before.share, now.share)) else None

    @property
    def of_hits_alone(self) -> bool:
        """Whether all that is scored in both is compared by hits: the mean of such scores is the same however many there are."""
        scored = {p for p, pair in self.same.items() if all(one.score is not None for one in pair)}
        return bool(scored) and scored <= self.by_hits.keys()

    @property
    def scored_by_message(self) -> dict[str, tuple[Measured, Measured]]:
        """The propositions that are judged message by message in both, without those compared by hits: fewer hits are no loss."""
        by_message = {p: pair for p, pair in self.same.items() if all(one.by_message for one in pair)}
        return {p: pair for p, pair in by_message.items() if p not in self.by_hits}

    def scored_shares(self) -> tuple[ScoredShare, ScoredShare]:
        """How much of these propositions was scored in both."""
        before, now = self.both
        pairs = self.scored_by_message.values()
        return _scored_share(before, [pair[0] for pair in pairs]), _scored_share(now, [pair[1] for pair in pairs])

    def missing(self, lost: Lost | None) -> str:
        """What is missing for a comparison of the dimension, and what to do about it; empty where it is compared."""
        before, now = self.both
        if lost is None and before.score is not None and now.score is not None:
            return ""
        unscored = before.unscored + now.unscored
        counts = f"{unscored} of {before.messages + now.messages} messages unscored"
        counts += f" ({before.unscored} in the baseline, {now.unscored} now)"
        if not unscored:
            if lost is None:
                return ""
            counts = f"{lost.of - lost.scored} of {lost.of} judgements unscored now"
        if Dimension(self.name).kind.judged_by == "pair":  # no rules or cues score it
            reasons = dict.fromkeys(filter(None, (before.unscored_because, now.unscored_because)))
            return f"{counts}: {'; '.join(reasons)}" if reasons else counts
        if not self.heuristic:
            return f"{counts}: evaluate again, the judge gave no score"
        step = "write rules or cues that fit them"
        if self.unjudged:
            step = f"write rules or cues for {', '.join(self.unjudged)}"
        return f"{counts}: {step}, or set a key (ANTHROPIC_API_KEY) so that a model judges them"

    def change(self, margin: float, lost: Lost | None) -> ChangeResult:
        """Of the dimension as a whole; where too little was scored for a score, or surely less than half as before, it says so."""
        before, now = self.both
        change = self._change_of(self._samples(), (before.share, now.share), margin)
        reasons = [f"{of.reason} {where}" for of, where in zip(self.both, WHERE, strict=True) if of.reason]
        if lost is not None:
            reasons = [f"{TOO_LITTLE}: {lost}"]
        why = "; ".join(reasons)
        if why:
            about = {name: getattr(change, name) for name in ("n", "baseline_n", "unit", "share", "baseline_share")}
            return ChangeResult(
                dimension=self.name,
                baseline=before.score,
                candidate=now.score if lost is None else None,
                interval_note=why,
                verdict="not enough data",
                reason=why,
                too_little_scored=True,
                **about,
            )
        if self.of_hits_alone and change.verdict == "steady":
            return change.model_copy(update={"verdict": "not enough data", "reason": HITS_ALONE})
        if change.delta is None and before.score is not None and now.score is not None:
            return change.model_copy(update={"reason": NONE_IN_COMMON, "interval_note": NONE_IN_COMMON})
        return change

    def changes(self, margin: float) -> tuple[ChangeResult, ...]:
        """Of each proposition, worst first."""
        rows = [self._change_of(pair, (pair[0].share, pair[1].share), margin, p) for p, pair in self.same.items()]
        return tuple(sorted(rows, key=lambda row: (row.points is None, row.points or 0.0, row.proposition)))

    def _change_of(
        self, samples: Sequence[Sample], shares: Sequence[Share | None], margin: float, proposition: str = ""
    ) -> ChangeResult:
        about: dict[str, Any] = {"dimension": self.name, "proposition": proposition, "margin": margin}
        change = change_of(*samples, **about, counted=self.counted, heuristic=self.heuristic)
        if proposition in self.by_hits:
            change = change_of_hits(change, *self.by_hits[proposition], margin)
        return change.model_copy(update={"baseline_share": shares[0], "share": shares[1]})

    def _samples(self) -> list[Sample]:
        """The dimension in both, by the propositions that are scored in both.

        A file may hold scores without judgements: then its propositions count as much as in the other.
        """
        if self.counted or not any(of.propositions for of in self.both):  # files may name no propositions
            return [of.sample for of in self.both]
        compared = {p: pair for p, pair in self.same.items() if p not in self.over_window}
        scored_before = [p for p, (measured, _) in compared.items() if measured.score is not None]
        scored_now = [p for p, (_, measured) in compared.items() if measured.score is not None]
        if scored_before and scored_now:  # else there is nothing to compare: what there is is shown
            scored_before = scored_now = [p for p in scored_before if p in scored_now]
        before, now = self.both
        return [_over(before, now, scored_before), _over(now, before, scored_now)]


def _scored_share(dimension: MeasuredDimension, propositions: Sequence[Measured]) -> ScoredShare:
    """How much of these propositions was scored. What belongs to no single message is left out."""
    share = total(one.share or NOTHING for one in propositions)
    scored = Counter(o.cluster for one in propositions for o in one.observations if is_message(o))
    return ScoredShare(share=share, messages=max(dimension.messages, len(scored)), scored=scored)


def _over(dimension: MeasuredDimension, other: MeasuredDimension, names: Collection[str]) -> Sample:
    """The dimension by these propositions."""
    of = dimension.propositions
    if set(names) == {p for p, one in of.items() if one.score is not None}:
        return dimension.sample
    observations = [o for p in names for o in of[p].observations]
    if not observations:
        weights = {p: sum(o.weight for o in other.propositions[p].observations) or 1.0 for p in names}
        return Sample(score=mean_of(Observation(of[p].score or 0.0, weights[p]) for p in names))
    return Sample(score=mean_of(observations), observations=observations)


def _only(measurement: Measurement, other: Measurement) -> tuple[str, ...]:
    names = [d for d in SCORERS if d in measurement.dimensions]
    rows = [
        f"{d}/{p}"
        for d in names
        if d in other.dimensions
        for p in measurement.dimensions[d].propositions
        if p not in other.dimensions[d].propositions
    ]
    return (*(d for d in names if d not in other.dimensions), *rows)


def _notes(
    baseline: Measurement,
    candidate: Measurement,
    changed: Collection[str],
    persona_changes: Collection[str],
    *,
    stale: bool,
) -> list[str]:
    notes = []
    if stale:
        what = f" ({'; '.join(persona_changes)})" if persona_changes else ""
        notes.append(f"the persona was edited between the two{what}: a difference is not drift alone")
    known = None not in (baseline.scope, candidate.scope) and baseline.scope != candidate.scope
    if known and not all(m.scope in m.name for m in (baseline, candidate) if m.scope):
        notes.append(
            f"different messages were compared: baseline {baseline.scope or 'all'}, candidate {candidate.scope or 'all'}"
        )
    if changed:
        why = "its words, weight or rule, the trait it speaks of, or the judge's prompt changed"
        notes.append(f"not the same proposition any more, so not compared: {', '.join(changed)} ({why})")
    for measurement in (baseline, candidate):
        asked = [one for of in measurement.dimensions.values() for one in of.propositions.values()]
        if asked and not any(one.digest for one in asked):
            notes.append(
                f"{measurement.name} does not say how its propositions were worded; they are taken to be the same"
            )
    return notes


# -- many at once
def adjusted(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Comparisons looked at together, see `corrected`, in two families: the dimensions of all, and the propositions of all.

    In each the chance of any false ``drifted`` is at most 5 %. It may be applied again to more comparisons at once. Where a proposition
    was lost and nothing surely got worse the verdict is ``not enough data``.
    """
    together = list(comparisons)
    margin = together[0].margin if together else MARGIN
    dimensions = iter(corrected([change for c in together for change in c.dimensions], margin, "dimensions"))
    rows = [change for c in together for change in c.proposition_changes]
    propositions = iter(corrected(rows, margin, "propositions"))
    results = []
    for comparison in together:
        lost = comparison.lost
        by_dimension = {}
        for name, changes in comparison.propositions.items():
            by_dimension[name] = tuple(_with_lost(next(propositions), lost) for _ in changes)
        own = tuple(_with_lost(next(dimensions), lost) for _ in comparison.dimensions)
        results.append(comparison.model_copy(update={"dimensions": own, "propositions": by_dimension}))
    return results


def _with_lost(change: ChangeResult, lost: Sequence[Lost]) -> ChangeResult:
    of_it = [one for one in lost if one.dimension == change.dimension and change.proposition in ("", one.proposition)]
    lost_itself = not change.proposition and any(not one.proposition for one in of_it)  # and says so
    if not of_it or lost_itself or change.worse:
        return change
    reasons = [change.reason] if change.too_little_scored else []  # of a dimension without a score, or marked before
    reasons += [str(one) for one in of_it if str(one) not in change.reason]
    update = {"verdict": "not enough data", "n_more": None, "reason": "; ".join(reasons), "too_little_scored": True}
    return change.model_copy(update=update)


# -- what comparisons can detect
class Detection(BaseModel):
    """What one dimension of one comparison can detect, with power 0.8, beside the others it is looked at with.

    Attributes:
        smallest: The smallest change in points that these messages would show.
        needed: Messages of each of the two (pairs, where paired) for a change of `change` points; None: more than ten million.
        needed_now: The same with the baseline as it is; None: no number suffices, the baseline is too small.
    """

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    target: str
    dimension: str
    change: float
    sd: Annotated[float, to(2)]
    n: int
    baseline_n: int
    unit: str
    smallest: Annotated[float | None, to(2)] = Field(serialization_alias="smallest_detectable")
    needed: int | None
    needed_now: int | None = Field(serialization_alias="needed_with_this_baseline")


def detections(comparisons: Sequence[Comparison], change: float) -> list[Detection]:
    """What these comparisons can detect, for each dimension whose spread is known.

    Verdicts allow for all dimensions looked at together; so does this, by Bonferroni's share of the 5 % for each (Holm gives no less).

    Args:
        comparisons: Those looked at together.
        change: In points, more than 0.
    """
    rows = [(c.target, row) for c in comparisons for row in c.dimensions]
    tested = sum(row.p_value is not None for _, row in rows)
    return [_detection(target, row, row.sd, change, ALPHA / tested) for target, row in rows if row.sd is not None]


def _detection(target: str, row: ChangeResult, sd: float, change: float, alpha: float) -> Detection:
    fixed = not row.n or not row.baseline_n
    needed = n_to_detect(change, sd, alpha=alpha, paired=row.paired or fixed)
    alone = row.paired or fixed or row.baseline_n < 2
    return Detection(
        target=target,
        change=change,
        sd=sd,
        **{name: getattr(row, name) for name in ("dimension", "n", "baseline_n", "unit")},
        smallest=detectable(sd, n=row.n, baseline_n=row.baseline_n, paired=row.paired, alpha=alpha),
        needed=needed,
        needed_now=needed if alone else n_to_detect(change, sd, alpha=alpha, baseline_n=row.baseline_n),
    )
