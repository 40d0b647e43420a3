"""Two measurements of one target, compared (AC-6.5.4): per dimension and proposition the change, how sure it is, and a verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    computed_field,
    field_serializer,
    model_serializer,
)

from agents.persona import changes_between
from evaluation.change.change import WHERE, Change, Sample, change_of, corrected, mean_of
from evaluation.change.evidence import get_baseline
from evaluation.change.measurements import Measurement, NotComparable, measurement_of_baselines, measurement_of_runs
from evaluation.models import EvaluationRun, is_heuristic
from evaluation.runs.summary import Share
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation
from evaluation.statistics.difference import ALPHA, MARGIN, holm

NONE_IN_COMMON = "no proposition was scored in both"
FELL_BELOW = 0.5  # of the share scored in the baseline

Shares = Mapping[tuple[str, str], Share]  # by dimension and proposition
MeasurementShown = Annotated[
    InstanceOf[Measurement],
    PlainSerializer(
        lambda one: {
            "name": one.name,
            "evaluation_run": one.evaluation_run,
            "where": None if one.where is None else dict(one.where),
            "persona_digest": one.persona_digest,
        }
    ),
]


class Lost(BaseModel):
    """A proposition of which surely much less is scored than in the baseline: its mean says little now.

    Attributes:
        before, now: Judgements scored, of those the judge could have scored.
        p: Chance of such a fall where there is none, adjusted for all propositions of the agent (Holm).
    """

    model_config = ConfigDict(frozen=True)

    dimension: str
    proposition: str
    before: Share
    now: Share
    p: float

    def __str__(self) -> str:
        return f"{self.proposition}: {self.before} judgements scored in the baseline, {self.now} now"

    @model_serializer
    def _dump(self) -> dict[str, Any]:
        before, now = self.before, self.now
        of = {"dimension": self.dimension, "proposition": self.proposition, "p": round(self.p, 6)}
        counts = {"baseline_scored": before.scored, "baseline_of": before.asked, "scored": now.scored, "of": now.asked}
        return {**of, **counts}


class Comparison(BaseModel):
    """Two measurements of one target, compared. Dumped it is what commands and the API show.

    Attributes:
        dimensions: The change per dimension that both measured, in the order of the scorers.
        propositions: Per dimension, the change of each proposition asked in both, worst first.
        only_baseline, only_candidate: Dimensions (or ``dimension/proposition``) that are in one of the two only.
        changed: ``dimension/proposition`` asked in both, but not the same: its claim, weight or rule changed. Not compared.
        scored_in_one: ``dimension/proposition`` asked in both but scored in one only; left out of the dimension's change.
        stale: Whether the persona changed between the two: the difference is then no drift alone.
        persona_changes: The versions of the persona that came between, as far as they were stored: what made them, what they changed.
        over_window: ``dimension/proposition`` judged once over the window: compared on its own, not in its dimension's change.
        lost: Propositions of which surely less than half as much is scored as in the baseline.
        margin: Half-width of "no change", in points.
        notes: What a reader must know, in sentences.
    """

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    baseline: MeasurementShown
    candidate: MeasurementShown
    dimensions: tuple[Change, ...]
    propositions: dict[str, tuple[Change, ...]] = Field({}, exclude=True)
    only_baseline: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    scored_in_one: tuple[str, ...] = ()
    stale: bool = False
    persona_changes: tuple[str, ...] = ()
    over_window: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = Field((), serialization_alias="not_enough_data")
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

    @field_serializer("dimensions")
    def _with_propositions(self, dimensions: tuple[Change, ...]) -> dict[str, Any]:
        """By dimension; within it by proposition."""
        rows = {c.dimension: {p.proposition: p.model_dump() for p in self.of(c.dimension)} for c in dimensions}
        return {c.dimension: {**c.model_dump(), "propositions": rows[c.dimension]} for c in dimensions}

    def of(self, dimension: str) -> tuple[Change, ...]:
        """The changes of a dimension's propositions, worst first."""
        return self.propositions.get(dimension, ())

    @property
    def worse(self) -> tuple[Change, ...]:
        """What surely got worse: dimensions, then propositions."""
        rows = (*self.dimensions, *(change for changes in self.propositions.values() for change in changes))
        return tuple(change for change in rows if change.worse)


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
    common = [d for d in SCORERS if d in baseline.scores and d in candidate.scores]
    digests = (baseline.persona_digest, candidate.persona_digest)
    stale = all(digests) and digests[0] != digests[1]
    persona_changes = tuple(map(str, changes_between(candidate.target, *digests))) if stale else ()
    parts = [_Dimension(baseline, candidate, dimension) for dimension in common]
    changed = tuple(name for part in parts for name in part.named(part.reworded))
    comparison = Comparison(
        baseline=baseline,
        candidate=candidate,
        dimensions=tuple(part.change(margin) for part in parts),
        propositions={part.name: part.changes(margin) for part in parts} if propositions else {},
        only_baseline=_only(baseline, candidate, common),
        only_candidate=_only(candidate, baseline, common),
        changed=changed,
        scored_in_one=tuple(name for part in parts for name in part.named(part.scored_in_one)),
        stale=stale,
        persona_changes=persona_changes,
        over_window=tuple(name for part in parts for name in part.named(part.over_window)),
        lost=lost_propositions(*(_by_message(m, common, changed) for m in (baseline, candidate))),
        margin=margin,
        notes=tuple(_notes(baseline, candidate, changed, persona_changes, stale=stale)),
    )
    return adjusted([comparison])[0]


def compare_to_baseline(
    run: EvaluationRun, *, margin: float = MARGIN, dimensions: Collection[str] = (), propositions: bool = True
) -> Comparison | None:
    """A completed run against its agent's current baselines of the same judge and procedure (AC-6.5.4), as `compare` does.

    Args:
        dimensions: Only these; default all the run measured.

    Returns:
        None where there is no baseline in any of the dimensions but the run itself, or the target is a channel.

    Raises:
        NotComparable: The run is not completed.
    """
    runs = dict.fromkeys(run.dimensions, run)
    return compare_runs(runs, margin=margin, dimensions=dimensions, propositions=propositions)


def compare_runs(
    runs: Mapping[str, EvaluationRun],
    *,
    margin: float = MARGIN,
    dimensions: Collection[str] = (),
    propositions: bool = True,
) -> Comparison | None:
    """The same where each dimension may come from an evaluation of its own, such as the newest evidence.

    Args:
        runs: By dimension, at least one, the newest last; of one agent, judge and procedure.
    """
    last = list(runs.values())[-1]
    if last.agent is None:
        return None
    baselines = get_baseline(agent=last.agent, judge=last.judge, procedure=last.procedure)
    wanted = {d: run for d, run in runs.items() if d in baselines and (not dimensions or d in dimensions)}
    rows = [baselines[d] for d, run in wanted.items() if baselines[d].evaluation_run_id != run.pk]
    if not rows:
        return None
    candidate = measurement_of_runs({b.dimension: wanted[b.dimension] for b in rows})
    return compare(measurement_of_baselines(rows, candidate), candidate, margin=margin, propositions=propositions)


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
    """One dimension of two measurements: which propositions of it can be compared, and their samples.

    Attributes:
        reworded: Asked in both, but not the same any more.
        samples: By proposition both samples, of those that are the same.
        over_window: Of these, where others are judged message by message, those judged once over the window: one judgement is no
            sample of messages.
        scored_in_one: Those that are scored in one of the two only.
    """

    def __init__(self, baseline: Measurement, candidate: Measurement, name: str) -> None:
        self.both, self.name = (baseline, candidate), name
        self.counted = name in baseline.counted | candidate.counted
        digests = [m.digests.get(name, {}) for m in self.both]
        asked = [p for p in _scores(baseline, name) if p in _scores(candidate, name)]
        self.reworded = [p for p in asked if all(p in of for of in digests) and digests[0][p] != digests[1][p]]
        self.samples = {p: [_sample(m, name, p) for m in self.both] for p in asked if p not in self.reworded}
        judged = {p: [o for sample in pair for o in sample.observations] for p, pair in self.samples.items()}
        windows = [p for p, rows in judged.items() if rows and all(str(o.cluster).startswith("repeat:") for o in rows)]
        self.over_window = windows if any(rows for p, rows in judged.items() if p not in windows) else []
        self.scored_in_one = [
            p for p, (b, c) in self.samples.items() if not self.counted and (b.score is None) != (c.score is None)
        ]

    def named(self, propositions: Iterable[str]) -> list[str]:
        return [f"{self.name}/{proposition}" for proposition in propositions]

    def change(self, margin: float) -> Change:
        """Of the dimension as a whole; where too little was scored for a score it says so."""
        change = self._change_of(self._samples(), margin)
        scores = [m.scores[self.name] for m in self.both]
        why = [f"{m.reasons[self.name]} {at}" for m, at in zip(self.both, WHERE, strict=True) if self.name in m.reasons]
        if why:
            return Change(
                dimension=self.name,
                baseline=scores[0],
                candidate=scores[1],
                interval_note="; ".join(why),
                verdict="not enough data",
                reason="; ".join(why),
                n=change.n,
                baseline_n=change.baseline_n,
                unit=change.unit,
                share=change.share,
                baseline_share=change.baseline_share,
                too_little_scored=True,
            )
        if change.delta is None and None not in scores:
            return change.model_copy(update={"reason": NONE_IN_COMMON, "interval_note": NONE_IN_COMMON})
        return change

    def changes(self, margin: float) -> tuple[Change, ...]:
        """Of each proposition, worst first."""
        rows = [self._change_of(pair, margin, proposition) for proposition, pair in self.samples.items()]
        return tuple(sorted(rows, key=lambda row: (row.delta is None, row.delta or 0.0, row.proposition)))

    def _change_of(self, samples: Sequence[Sample], margin: float, proposition: str = "") -> Change:
        change = change_of(
            *samples,
            dimension=self.name,
            proposition=proposition,
            margin=margin,
            counted=self.counted,
            heuristic=is_heuristic(self.both[1].judge),
        )
        baseline_share, share = (m.share(self.name, proposition) for m in self.both)
        return change.model_copy(update={"share": share, "baseline_share": baseline_share})

    def _samples(self) -> list[Sample]:
        """The dimension in both, by the propositions that are scored in both.

        A file may hold scores without judgements: then its propositions count as much as in the other.
        """
        if self.counted or not any(_scores(m, self.name) for m in self.both):  # files may name no propositions
            return [_sample(m, self.name) for m in self.both]
        same = [p for p in self.samples if p not in self.over_window]
        before, now = ([p for p in same if _scores(m, self.name).get(p) is not None] for m in self.both)
        if before and now:  # else there is nothing to compare: what there is is shown
            before = now = [p for p in before if p in now]
        baseline, candidate = self.both
        return [_over(baseline, candidate, self.name, before), _over(candidate, baseline, self.name, now)]


def _scores(measurement: Measurement, dimension: str) -> Mapping[str, float | None]:
    return measurement.proposition_scores.get(dimension, {})


def _sample(measurement: Measurement, dimension: str, proposition: str = "") -> Sample:
    """Of one proposition, or of the dimension as a whole."""
    judged = measurement.observations.get(dimension, {})
    if proposition:
        return Sample(score=_scores(measurement, dimension).get(proposition), observations=judged.get(proposition, ()))
    return Sample(score=measurement.scores.get(dimension), observations=[o for rows in judged.values() for o in rows])


def _over(measurement: Measurement, other: Measurement, dimension: str, names: Sequence[str]) -> Sample:
    """Of these propositions."""
    scores = _scores(measurement, dimension)
    if set(names) == {p for p, score in scores.items() if score is not None}:
        return _sample(measurement, dimension)
    observations = [o for p in names for o in measurement.observations.get(dimension, {}).get(p, ())]
    if observations or not names:
        return Sample(score=mean_of(observations), observations=observations)
    weights = {p: sum(o.weight for o in other.observations.get(dimension, {}).get(p, ())) or 1.0 for p in names}
    return Sample(score=mean_of(Observation(scores[p] or 0.0, weights[p]) for p in names))


def _by_message(measurement: Measurement, dimensions: Iterable[str], changed: Collection[str]) -> Shares:
    """How much was scored of each proposition that is judged message by message and still the same."""
    of = {(d, p): share for d in dimensions for p, share in measurement.by_message.get(d, {}).items()}
    return {(d, p): share for (d, p), share in of.items() if f"{d}/{p}" not in changed}


def _only(measurement: Measurement, other: Measurement, common: Iterable[str]) -> tuple[str, ...]:
    dimensions = [d for d in SCORERS if d in measurement.scores and d not in other.scores]
    rows = [f"{d}/{p}" for d in common for p in _scores(measurement, d) if p not in _scores(other, d)]
    return (*dimensions, *rows)


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
        notes.append(f"of other messages: baseline {baseline.scope or 'all'}, candidate {candidate.scope or 'all'}")
    if changed:
        why = "its words, weight or rule, or the trait it speaks of, changed"
        notes.append(f"not the same proposition any more, so not compared: {', '.join(changed)} ({why})")
    for measurement in (baseline, candidate):
        if not measurement.digests and any(measurement.proposition_scores.values()):
            notes.append(
                f"{measurement.name} does not say how its propositions were worded; they are taken to be the same"
            )
    return notes


# -- many at once
def adjusted(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Comparisons looked at together: a difference that chance would give somewhere among so many is not sure (Holm).

    Two families: the dimensions of all of them, and the propositions of all of them; in each the chance of any false ``drifted`` is at
    most 5 %. It only ever takes verdicts back, so it may be applied again to more comparisons at once. Where a proposition was lost and
    nothing surely got worse the verdict is ``not enough data``.
    """
    together = list(comparisons)
    margin = together[0].margin if together else MARGIN
    dimensions = iter(corrected([change for c in together for change in c.dimensions], margin, "dimensions"))
    rows = [change for c in together for changes in c.propositions.values() for change in changes]
    propositions = iter(corrected(rows, margin, "propositions"))
    return [
        c.model_copy(
            update={
                "dimensions": tuple(_with_lost(next(dimensions), c.lost) for _ in c.dimensions),
                "propositions": {
                    d: tuple(_with_lost(next(propositions), c.lost) for _ in rows) for d, rows in c.propositions.items()
                },
            }
        )
        for c in together
    ]


def _with_lost(change: Change, lost: Sequence[Lost]) -> Change:
    of_it = [one for one in lost if one.dimension == change.dimension and change.proposition in ("", one.proposition)]
    if not of_it or change.worse:
        return change
    reasons = [change.reason] if change.too_little_scored else []  # of a dimension without a score, or marked before
    reasons += [str(one) for one in of_it if str(one) not in change.reason]
    update = {"verdict": "not enough data", "n_more": None, "reason": "; ".join(reasons), "too_little_scored": True}
    return change.model_copy(update=update)


def lost_propositions(before: Shares, now: Shares) -> tuple[Lost, ...]:
    """The propositions of one agent whose scored share fell by more than half, and surely so.

    Fisher's exact test for each, one-sided: only a fall is looked for, so that the whole 5 % lie there. Holm's correction for all of the
    agent's propositions of which anything was scored before: no other can fall.

    Args:
        before, now: What was judged message by message; what is in one only is left out.
    """
    from scipy.stats import fisher_exact

    names = [name for name, share in before.items() if share.scored and name in now and now[name].asked]
    chances = []
    for name in names:
        table = [[share.scored, share.asked - share.scored] for share in (before[name], now[name])]
        chances.append(float(fisher_exact(table, alternative="greater").pvalue))
    return tuple(
        Lost(dimension=name[0], proposition=name[1], before=before[name], now=now[name], p=p)
        for name, p in zip(names, holm(chances), strict=True)
        if p <= ALPHA and (now[name].value or 0.0) < FELL_BELOW * (before[name].value or 0.0)
    )
