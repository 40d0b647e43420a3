"""Two measurements of one target, compared (AC-6.5.4): per dimension and proposition the change, how sure it is, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict, Field, computed_field, field_serializer

from agents.personas.persona import changes_between
from evaluation.change.change import ChangeResult, corrected
from evaluation.change.dimension_pair import DimensionPair
from evaluation.change.lost import Lost, lost_dimensions, lost_propositions
from evaluation.change.measured import MeasuredProposition
from evaluation.change.measurements import Measurement, NotComparable
from evaluation.judge.identity import judge_changed
from evaluation.models import is_heuristic
from evaluation.runs.shares import NOTHING, Share, with_share
from evaluation.scorers import SCORERS
from evaluation.statistics.difference import MARGIN
from evaluation.wording import p_text

ONLY_NOW = "scored only now"
ONLY_BEFORE = "scored only in the baseline"
MORE_HITS = "more hits, not significant"
NO_MORE_HITS = "no more hits"


class DimensionChange(ChangeResult):
    """A score now and in the baseline, of a dimension and of each proposition of it that is in both."""

    propositions: dict[str, ChangeResult]


class Shown(BaseModel):
    """What a comparison shows although there is no difference of scores: hits, or a score on one side only.

    Attributes:
        verdict: ``worse`` or ``better`` where hits significantly are; `MORE_HITS`, `NO_MORE_HITS`; `ONLY_NOW` or `ONLY_BEFORE`.
        figures: E.g. ``hits against it in 7 of 24 messages now, 0 of 28 in the baseline (p 0.003)``.
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
        """Return whether it is no mere suspicion; that there is a score on one side only is sure."""
        return self.verdict not in (MORE_HITS, NO_MORE_HITS)

    @property
    def only_before(self) -> bool:
        """Return whether its messages are those of the baseline."""
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
        lost: Dimensions, then propositions, of which significantly less than half as much is scored as in the baseline.
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
        """Findings by hits, or of one side alone, where scores do not compare; what is sure first. Every report begins with it."""
        changes = [change for change in self.dimensions if change.dimension not in self.lost_dimensions]
        changes += self.proposition_changes
        findings = []
        for change in changes:
            finding = shown_by(change)
            if finding is not None:
                findings.append(finding)
        return sorted(findings, key=lambda finding: (finding.verdict != "worse", finding.verdict != "better"))

    @property
    def lost_dimensions(self) -> set[str]:
        """Return the dimensions that have no score because significantly less than half as much is scored as in the baseline."""
        return {lost.dimension for lost in self.lost if not lost.proposition}

    @field_serializer("dimensions")
    def _with_propositions(self, dimensions: tuple[ChangeResult, ...]) -> dict[str, DimensionChange]:
        """Return the changes by dimension, and within it by proposition."""
        by_dimension = {}
        for change in dimensions:
            propositions = {row.proposition: row for row in self.changes_of(change.dimension)}
            by_dimension[change.dimension] = DimensionChange.model_construct(**dict(change), propositions=propositions)
        return by_dimension

    def changes_of(self, dimension: str) -> tuple[ChangeResult, ...]:
        """Return the changes of a dimension's propositions, worst first."""
        return self.propositions.get(dimension, ())

    @property
    def proposition_changes(self) -> list[ChangeResult]:
        """Return the changes of all propositions, by dimension, in each the worst first."""
        return [change for changes in self.propositions.values() for change in changes]

    @property
    def worse(self) -> tuple[ChangeResult, ...]:
        """Return what is significantly worse: dimensions, then propositions."""
        return tuple(change for change in (*self.dimensions, *self.proposition_changes) if change.worse)


def shown_by(change: ChangeResult) -> Shown | None:
    """Return what a change says by hits, or of a dimension by a score on one side only; None for any other, and for counts."""
    if change.hits is not None:
        return _shown_by_hits(change)
    if change.proposition:
        return None
    return one_sided(change)


def one_sided(change: ChangeResult) -> Shown | None:
    """Return that something is scored on one side only; None where it is not, and for counts."""
    if change.counted:
        return None
    if change.baseline is None and change.candidate is not None:
        figures = with_share(f"{change.candidate:.1f}", change.share)
        return Shown(dimension=change.dimension, proposition=change.proposition, verdict=ONLY_NOW, figures=figures)
    if change.baseline is not None and change.candidate is None:
        figures = with_share(f"{change.baseline:.1f}", change.baseline_share)
        return Shown(dimension=change.dimension, proposition=change.proposition, verdict=ONLY_BEFORE, figures=figures)
    return None


def _shown_by_hits(change: ChangeResult) -> Shown:
    """Return in how many messages the hits of a proposition are, and whether that is worse: significantly, or just more than before."""
    if change.verdict == "drifted":
        verdict = "worse"
    elif change.verdict == "improved":
        verdict = "better"
    elif (change.points or 0.0) < 0:
        verdict = MORE_HITS
    else:
        verdict = NO_MORE_HITS
    p = f" (p {p_text(change.p_adjusted)})" if change.p_adjusted is not None else ""
    return Shown(
        dimension=change.dimension,
        proposition=change.proposition,
        verdict=verdict,
        figures=f"hits against it in {change.hits} messages now, {change.baseline_hits} in the baseline{p}",
    )


# -- two measurements
def compare(baseline: Measurement, candidate: Measurement, *, margin: float = MARGIN) -> Comparison:
    """Return the change from one measurement to another, per dimension and per proposition.

    A dimension's change is that of the propositions that were asked in both and are still the same; where some are not, its scores
    here are not those of the runs, and a note says so. Several comparisons that are shown at once go through `adjusted` together.

    Args:
        baseline, candidate: What is compared with what.
        margin: Half-width of "no change", in points, more than 0.

    Raises:
        NotComparable: Another target, judge or procedure; names both.
    """
    _check_comparable(baseline, candidate)
    pairs = [
        DimensionPair(name, baseline.dimensions[name], candidate.dimensions[name], judge=candidate.judge)
        for name in SCORERS
        if name in baseline.dimensions and name in candidate.dimensions
    ]
    lost_by_dimension = _lost_dimensions(pairs)
    dimensions = []
    by_dimension: dict[str, tuple[ChangeResult, ...]] = {}
    changed: list[str] = []
    scored_in_one: list[str] = []
    over_window: list[str] = []
    unjudged: list[str] = []
    missing: dict[str, str] = {}
    for pair in pairs:
        lost = lost_by_dimension.get(pair.name)
        dimensions.append(pair.change(margin, lost))
        by_dimension[pair.name] = pair.proposition_changes(margin)
        changed += pair.names_of(pair.reworded)
        scored_in_one += pair.names_of(pair.scored_in_one)
        over_window += pair.names_of(pair.over_window)
        unjudged += pair.names_of(pair.unjudged)
        what_is_missing = pair.missing(lost)
        if what_is_missing:
            missing[pair.name] = what_is_missing
    stale = _persona_changed(baseline, candidate)  # the baseline describes another persona
    persona_changes = _persona_versions(baseline, candidate) if stale else ()
    comparison = Comparison(
        baseline=baseline,
        candidate=candidate,
        dimensions=tuple(dimensions),
        propositions=by_dimension,
        only_baseline=_only_in(baseline, candidate),
        only_candidate=_only_in(candidate, baseline),
        changed=tuple(changed),
        scored_in_one=tuple(scored_in_one),
        stale=stale,
        persona_changes=persona_changes,
        over_window=tuple(over_window),
        unjudged=tuple(unjudged),
        lost=(*lost_by_dimension.values(), *_lost_propositions(pairs)),
        missing=missing,
        margin=margin,
    )
    comparison = comparison.model_copy(update={"notes": tuple(_notes_on(comparison))})
    return adjusted([comparison])[0]


def _check_comparable(baseline: Measurement, candidate: Measurement) -> None:
    """Refuse measurements of different targets, judges or procedures.

    Raises:
        NotComparable: Names both.
    """
    if baseline.target != candidate.target:
        raise NotComparable(
            f"{baseline.name} is of {baseline.target}, {candidate.name} of {candidate.target}: only measurements of the same one compare"
        )
    names = f"{baseline.target}: {baseline.name} was judged"
    if baseline.judge != candidate.judge:
        raise NotComparable(
            f"{names} by {_judge_name(baseline)}, {candidate.name} by {_judge_name(candidate)}; scores of different judges do not "
            "compare: measure both with one of them"
        )
    if baseline.procedure != candidate.procedure:
        raise NotComparable(
            f"{names} as {baseline.procedure}, {candidate.name} as {candidate.procedure}; scores of different procedures do not "
            "compare: measure both in the same way"
        )


def _judge_name(measurement: Measurement) -> str:
    return f"{measurement.judge} (heuristic)" if is_heuristic(measurement.judge) else measurement.judge


def _persona_changed(baseline: Measurement, candidate: Measurement) -> bool:
    """Return whether the two were measured under different personas; what is not known is taken to be the same."""
    if not baseline.persona_digest or not candidate.persona_digest:
        return False
    return baseline.persona_digest != candidate.persona_digest


def _persona_versions(baseline: Measurement, candidate: Measurement) -> tuple[str, ...]:
    """Return the versions of the persona that came between, for people."""
    versions = changes_between(candidate.target, baseline.persona_digest, candidate.persona_digest)
    return tuple(str(version) for version in versions)


def _lost_dimensions(pairs: Iterable[DimensionPair]) -> dict[str, Lost]:
    """Return the dimensions of which significantly less than half as much is scored as in the baseline, by name.

    `without_hits` of each: whether some of its propositions are compared by hits, and so are in none of these shares.
    """
    by_name = {pair.name: pair for pair in pairs}
    shares = {name: pair.scored_shares() for name, pair in by_name.items()}
    lost_by_dimension = {}
    for lost in lost_dimensions(shares):
        without_hits = bool(by_name[lost.dimension].by_hits)
        lost_by_dimension[lost.dimension] = lost.model_copy(update={"without_hits": without_hits})
    return lost_by_dimension


def _lost_propositions(pairs: Iterable[DimensionPair]) -> tuple[Lost, ...]:
    """Return the propositions of which significantly less than half as much is scored as in the baseline."""
    shares_before: dict[tuple[str, str], Share] = {}
    shares_now: dict[tuple[str, str], Share] = {}
    for pair in pairs:
        for proposition, (before, now) in pair.judged_by_message.items():
            shares_before[pair.name, proposition] = before.share or NOTHING
            shares_now[pair.name, proposition] = now.share or NOTHING
    return lost_propositions(shares_before, shares_now)


def _only_in(measurement: Measurement, other: Measurement) -> tuple[str, ...]:
    """Return the dimensions, then the propositions as ``dimension/proposition``, that another measurement does not have."""
    dimensions = []
    propositions = []
    for name in SCORERS:
        if name not in measurement.dimensions:
            continue
        if name not in other.dimensions:
            dimensions.append(name)
            continue
        for proposition in measurement.dimensions[name].propositions:
            if proposition not in other.dimensions[name].propositions:
                propositions.append(f"{name}/{proposition}")
    return (*dimensions, *propositions)


def _notes_on(comparison: Comparison) -> list[str]:
    """Return what a reader must know of a comparison, in sentences."""
    baseline = comparison.baseline
    candidate = comparison.candidate
    notes = []
    if comparison.stale:
        versions = f" ({'; '.join(comparison.persona_changes)})" if comparison.persona_changes else ""
        notes.append(f"the persona was edited between the two{versions}: a difference is not drift alone")
    other_judge = judge_changed(baseline.judged_by, candidate.judged_by)
    if other_judge:
        notes.append(other_judge)
    if _are_of_different_messages(baseline, candidate):
        notes.append(
            f"different messages were compared: baseline {baseline.scope or 'all'}, candidate {candidate.scope or 'all'}"
        )
    if None not in (baseline.background, candidate.background) and baseline.background != candidate.background:
        notes.append("the judge was given another background in each: a difference may come from it")
    if comparison.changed:
        why = "its words, weight or rule, the trait it speaks of, or the judge's prompt changed"
        notes.append(f"not the same proposition any more, so not compared: {', '.join(comparison.changed)} ({why})")
    for measurement in (baseline, candidate):
        if _has_no_digests(measurement):
            notes.append(
                f"{measurement.name} does not say how its propositions were worded; they are taken to be the same"
            )
    return notes


def _are_of_different_messages(baseline: Measurement, candidate: Measurement) -> bool:
    """Return whether the scopes differ, are known, and the names of the measurements do not say so already."""
    if baseline.scope is None or candidate.scope is None or baseline.scope == candidate.scope:
        return False
    named_before = baseline.scope in baseline.name
    named_now = candidate.scope in candidate.name
    return not (named_before and named_now)


def _has_no_digests(measurement: Measurement) -> bool:
    """Return whether propositions were asked, and it is not known how any of them was worded."""
    propositions: list[MeasuredProposition] = []
    for dimension in measurement.dimensions.values():
        propositions += dimension.propositions.values()
    return bool(propositions) and not any(measured.digest for measured in propositions)


# -- many at once
def adjusted(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Return comparisons with verdicts that allow for all compared at once (Holm): the dimensions of all, and the propositions of all.

    In each of the two families the chance of any false ``drifted`` is at most 5 %. It only takes verdicts back, so it may be applied
    again to more comparisons at once; all have one margin.
    Where a proposition was lost and nothing is significantly worse the verdict is ``not enough data``.
    """
    together = list(comparisons)
    if not together:
        return []
    margin = together[0].margin
    all_dimensions = [change for comparison in together for change in comparison.dimensions]
    all_propositions = [change for comparison in together for change in comparison.proposition_changes]
    # They come back in the order in which they were given.
    corrected_dimensions = iter(corrected(all_dimensions, margin, "dimensions"))
    corrected_propositions = iter(corrected(all_propositions, margin, "propositions"))
    results = []
    for comparison in together:
        dimensions = [_with_losses(next(corrected_dimensions), comparison.lost) for _ in comparison.dimensions]
        propositions = {}
        for name, changes in comparison.propositions.items():
            propositions[name] = tuple(_with_losses(next(corrected_propositions), comparison.lost) for _ in changes)
        update = {"dimensions": tuple(dimensions), "propositions": propositions}
        results.append(comparison.model_copy(update=update))
    return results


def _with_losses(change: ChangeResult, losses: Sequence[Lost]) -> ChangeResult:
    """Return a change as ``not enough data`` where its proposition, or one of its dimension, was lost; what is worse stays so."""
    own = []  # of a dimension as a whole also those of its propositions
    for lost in losses:
        if lost.dimension == change.dimension and change.proposition in ("", lost.proposition):
            own.append(lost)
    # A dimension that was lost as a whole has no score, and its reason says so already (`DimensionPair.change`).
    is_lost_dimension = not change.proposition and any(not lost.proposition for lost in own)
    if not own or is_lost_dimension or change.worse:
        return change
    reasons = [change.reason] if change.too_little_scored else []  # of a dimension without a score, or marked before
    for lost in own:
        if str(lost) not in change.reason:
            reasons.append(str(lost))
    update = {"verdict": "not enough data", "n_more": None, "reason": "; ".join(reasons), "too_little_scored": True}
    return change.model_copy(update=update)
