"""Two measurements of one target, compared (AC-6.5.4): per dimension and proposition the change, how sure it is, and a verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.persona import changes_between
from evaluation.change.evidence import get_baseline
from evaluation.change.measurements import (
    DELETED,
    Measurement,
    NotComparable,
    mean_of,
    measurement_of_baselines,
    measurement_of_runs,
)
from evaluation.models import EvaluationRun, is_heuristic
from evaluation.runs.summary import Share, rounded
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation, bootstrap_difference, bootstrap_mean
from evaluation.statistics.difference import (
    ALPHA,
    MARGIN,
    Scores,
    Verdict,
    decide,
    difference_interval,
    difference_p,
    from_fixed_p,
    holm,
    smallest_detectable_change,
    spread,
    undecided,
)
from evaluation.statistics.estimates import Interval

NONE_IN_COMMON = "no proposition was scored in both"
NOISE_ALONE = "of the judge's noise alone: other messages might have scored otherwise"
UNITS = {"message": "messages", "situation": "situations", "channel": "channels", "repeat": "repeats"}
MOST_RESAMPLED = 200  # messages; four thousand resamples of more take seconds and change nothing
WHERE = ("in the baseline", "now")
FELL_BELOW = 0.5  # of the share scored in the baseline

Shares = Mapping[tuple[str, str], Share]  # by dimension and proposition


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one number: of a dimension, or of one proposition in it.

    Attributes:
        proposition: Empty for the dimension as a whole.
        baseline, candidate: Scores, 0 to 9, or counts; None when nothing was scored there.
        interval: 95 %, of the delta; None with `interval_note` saying why.
        verdict: As in `Decision`; a count that surely changed is ``drifted`` in either direction.
        n_more: Messages that would decide, where that can be said.
        n, baseline_n: Messages (pairs, situations) the two rest on.
        smallest_detectable: Change this comparison would find with power 0.8, in points; None when it cannot be said.
        paired: Whether the same situations (channels, messages) are in both and were compared one by one.
        p_value: Chance of a difference this large where there is none, looked at alone; None without an interval.
        p_adjusted: The same among all that were compared at once (Holm); the verdict goes by it.
        sd: Standard deviation between messages, pooled (paired: of the differences), in points.
        unit: What `n` counts: ``messages``, ``situations``, ``channels`` or ``repeats``.
        share, baseline_share: How much was scored, of what the judge can score; None where that is not known.
        too_little_scored: Whether there is no verdict because too little of what the judge can score was scored.
    """

    dimension: str
    proposition: str = ""
    baseline: float | None
    candidate: float | None
    interval: Interval | None
    interval_note: str = ""
    verdict: Verdict
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
    too_little_scored: bool = False

    @property
    def delta(self) -> float | None:
        """Candidate minus baseline; None when one is missing."""
        return _delta(self.baseline, self.candidate)

    @property
    def name(self) -> str:
        """``dimension`` or ``dimension/proposition``."""
        return f"{self.dimension}/{self.proposition}" if self.proposition else self.dimension

    @property
    def worse(self) -> bool:
        """Whether it surely got worse. Fewer ideas are not worse: a count goes with how much was said."""
        return self.verdict == "drifted" and not self.counted

    @property
    def undecided(self) -> bool:
        """Whether the judgements there are do not decide."""
        return self.verdict in ("possibly drifted", "not enough data") and not self.too_little_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A proposition of which surely much less is scored than in the baseline: its mean says little now.

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
        return f"{self.proposition}: {self.before} judgements scored in the baseline, {self.now} now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two measurements of one target, compared.

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

    baseline: Measurement
    candidate: Measurement
    dimensions: tuple[Change, ...]
    propositions: Mapping[str, tuple[Change, ...]]
    only_baseline: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    scored_in_one: tuple[str, ...] = ()
    stale: bool = False
    persona_changes: tuple[str, ...] = ()
    over_window: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()
    margin: float = MARGIN
    notes: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[Change, ...]:
        """What surely got worse: dimensions, then propositions."""
        rows = (*self.dimensions, *(change for changes in self.propositions.values() for change in changes))
        return tuple(change for change in rows if change.worse)


@dataclass(frozen=True, slots=True)
class _Sample:
    """One number of one measurement: the score (or count), and the judgements behind it where they are known."""

    score: float | None
    observations: Scores = ()


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
    both = (baseline, candidate)
    common = [d for d in SCORERS if d in baseline.scores and d in candidate.scores]
    stale = bool(baseline.persona_digest and candidate.persona_digest) and (
        baseline.persona_digest != candidate.persona_digest
    )
    digests = (baseline.persona_digest, candidate.persona_digest)
    persona_changes = tuple(map(str, changes_between(candidate.target, *digests))) if stale else ()
    heuristic = is_heuristic(candidate.judge)
    dimensions: list[Change] = []
    by_proposition: dict[str, tuple[Change, ...]] = {}
    changed: list[str] = []
    scored_in_one: list[str] = []
    windows: list[str] = []
    for dimension in common:
        counted = dimension in baseline.counted | candidate.counted
        asked = [p for p in _scores(baseline, dimension) if p in _scores(candidate, dimension)]
        reworded = [p for p in asked if _is_reworded(baseline, candidate, dimension, p)]
        samples = {p: [_sample(m, dimension, p) for m in both] for p in asked if p not in reworded}
        once = _over_window(samples)
        changed += [f"{dimension}/{p}" for p in reworded]
        windows += [f"{dimension}/{p}" for p in once]
        if not counted:
            scored_in_one += [
                f"{dimension}/{p}" for p, (b, c) in samples.items() if (b.score is None) != (c.score is None)
            ]
        whole = _of_dimension(baseline, candidate, dimension, [p for p in samples if p not in once], counted=counted)
        change = change_of(*whole, dimension=dimension, margin=margin, counted=counted, heuristic=heuristic)
        why = [
            f"{m.reasons[dimension]} {where}" for m, where in zip(both, WHERE, strict=True) if dimension in m.reasons
        ]
        scores = baseline.scores[dimension], candidate.scores[dimension]
        if why:
            change = _without_score(change, scores, "; ".join(why))
        elif change.delta is None and None not in scores:
            change = replace(change, reason=NONE_IN_COMMON, interval_note=NONE_IN_COMMON)
        dimensions.append(_with_shares(change, baseline, candidate))
        if propositions:
            rows = [
                change_of(
                    *pair,
                    dimension=dimension,
                    proposition=name,
                    margin=margin,
                    counted=counted,
                    heuristic=heuristic,
                )
                for name, pair in samples.items()
            ]
            rows.sort(key=lambda row: (row.delta is None, row.delta or 0.0, row.proposition))
            by_proposition[dimension] = tuple(_with_shares(row, baseline, candidate) for row in rows)
    return adjusted(
        [
            Comparison(
                baseline=baseline,
                candidate=candidate,
                dimensions=tuple(dimensions),
                propositions=by_proposition,
                only_baseline=_only(baseline, candidate, common),
                only_candidate=_only(candidate, baseline, common),
                changed=tuple(changed),
                scored_in_one=tuple(scored_in_one),
                stale=stale,
                persona_changes=persona_changes,
                over_window=tuple(windows),
                lost=lost_propositions(*(_by_message(m, common, changed) for m in both)),
                margin=margin,
                notes=tuple(_notes(baseline, candidate, changed, persona_changes, stale=stale)),
            )
        ]
    )[0]


def compare_to_baseline(
    run: EvaluationRun, *, margin: float = MARGIN, dimensions: Collection[str] = (), propositions: bool = True
) -> Comparison | None:
    """A completed run against its agent's current baselines of the same judge and procedure (AC-6.5.4).

    Args:
        run: Of an agent.
        margin, propositions: As in `compare`.
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
        margin, dimensions, propositions: As in `compare_to_baseline`.
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


def _scores(measurement: Measurement, dimension: str) -> Mapping[str, float | None]:
    return measurement.proposition_scores.get(dimension, {})


def _is_reworded(baseline: Measurement, candidate: Measurement, dimension: str, proposition: str) -> bool:
    before, now = (m.digests.get(dimension, {}).get(proposition) for m in (baseline, candidate))
    return before is not None and now is not None and before != now


def _sample(measurement: Measurement, dimension: str, proposition: str) -> _Sample:
    observations = measurement.observations.get(dimension, {}).get(proposition, ())
    return _Sample(_scores(measurement, dimension).get(proposition), observations)


def _over_window(samples: Mapping[str, Sequence[_Sample]]) -> list[str]:
    """Of a dimension judged message by message, the propositions judged once over the window: one judgement is no sample of messages."""
    judged = {p: [o for sample in pair for o in sample.observations] for p, pair in samples.items()}
    windows = [p for p, rows in judged.items() if rows and all(str(o.cluster).startswith("repeat:") for o in rows)]
    return windows if any(rows for p, rows in judged.items() if p not in windows) else []


def _of_dimension(
    baseline: Measurement, candidate: Measurement, dimension: str, same: Sequence[str], *, counted: bool
) -> tuple[_Sample, _Sample]:
    """The dimension in both, by the propositions that are scored in both.

    A file may hold scores without judgements: then its propositions count as much as in the other.
    """
    if counted or not (_scores(baseline, dimension) or _scores(candidate, dimension)):  # files may name no propositions
        return _whole(baseline, dimension), _whole(candidate, dimension)
    before, now = ([p for p in same if _scores(m, dimension).get(p) is not None] for m in (baseline, candidate))
    if before and now:  # else there is nothing to compare: what there is is shown
        before = now = [p for p in before if p in now]
    return _over(baseline, candidate, dimension, before), _over(candidate, baseline, dimension, now)


def _whole(measurement: Measurement, dimension: str) -> _Sample:
    rows = measurement.observations.get(dimension, {}).values()
    return _Sample(measurement.scores.get(dimension), [o for of_one in rows for o in of_one])


def _over(measurement: Measurement, other: Measurement, dimension: str, names: Sequence[str]) -> _Sample:
    scores = _scores(measurement, dimension)
    if set(names) == {p for p, score in scores.items() if score is not None}:
        return _whole(measurement, dimension)
    observations = [o for p in names for o in measurement.observations.get(dimension, {}).get(p, ())]
    if observations or not names:
        return _Sample(mean_of(observations), observations)
    weights = {p: sum(o.weight for o in other.observations.get(dimension, {}).get(p, ())) or 1.0 for p in names}
    return _Sample(mean_of(Observation(scores[p] or 0.0, weights[p]) for p in names))


def _without_score(change: Change, scores: tuple[float | None, float | None], why: str) -> Change:
    """The change of a dimension that has no score because too little was scored."""
    return Change(
        dimension=change.dimension,
        baseline=scores[0],
        candidate=scores[1],
        interval=None,
        interval_note=why,
        verdict="not enough data",
        reason=why,
        n=change.n,
        baseline_n=change.baseline_n,
        unit=change.unit,
        too_little_scored=True,
    )


def _with_shares(change: Change, baseline: Measurement, candidate: Measurement) -> Change:
    of = (change.dimension, change.proposition)
    return replace(change, share=candidate.share(*of), baseline_share=baseline.share(*of))


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


# -- one number
def change_of(
    before: _Sample,
    now: _Sample,
    *,
    dimension: str,
    proposition: str = "",
    margin: float,
    counted: bool = False,
    heuristic: bool = False,
) -> Change:
    """Delta, interval and verdict of one number.

    Messages are drawn independently from the two. Where the same situations, channels or messages are in both they are compared one by
    one. A window judged as a whole has only its repeats to draw from: the interval is then of the judge's noise alone. Scores without
    judgements are taken as exact.

    Args:
        before, now: Of the baseline and the candidate.
        dimension, proposition: Whose.
        margin: Half-width of "no change", in points.
        counted: A count, not a score.
        heuristic: Judged offline: repeats are all the same and tell nothing.
    """
    first, second, note = _comparable(before.observations, now.observations)
    units = {_unit_of(first), _unit_of(second)} - {""}
    why = _why_no_interval(before, now, (first, second), units, counted=counted, heuristic=heuristic)
    change = Change(
        dimension=dimension,
        proposition=proposition,
        counted=counted,
        baseline=before.score,
        candidate=now.score,
        interval=None,
        interval_note=why,
        verdict=undecided(_delta(before.score, now.score), margin),
        reason=why,
        n=len(_clusters(second)),
        baseline_n=len(_clusters(first)),
        unit=next(iter(units)) if len(units) == 1 else "messages",
    )
    if why:
        return change
    whole, known = "repeats" in units, bool(first and second)
    paired = known and not whole and _clusters(first) == _clusters(second)
    if known:
        many = (
            min(change.n, change.baseline_n) > MOST_RESAMPLED or max(change.n, change.baseline_n) > 10 * MOST_RESAMPLED
        )
        interval = (
            difference_interval(first, second, paired=paired)
            if many
            else bootstrap_difference(first, second, paired=paired).interval
        )
        p = difference_p(first, second, paired=paired)
        if not counted:
            change = replace(change, baseline=mean_of(first), candidate=mean_of(second))
        note = NOISE_ALONE if whole else note
    else:
        fixed, observations = (before.score, second) if second else (now.score, first)
        estimate = bootstrap_mean(observations).interval
        interval = None
        if estimate is not None and fixed is not None:
            low, high = estimate.low - fixed, estimate.high - fixed
            interval = Interval(low, high) if second else Interval(-high, -low)
        p = None if fixed is None else from_fixed_p(fixed, observations)
        note = f"the {'baseline' if second else 'candidate'} holds no single judgements: its score is taken as exact"
        note += f"; the interval is {NOISE_ALONE}" if whole else ""
    if interval is None:
        why = "too few scores for an interval"
        return replace(change, interval_note=why, reason=why)
    decision = decide(
        change.delta,
        interval,
        margin,
        n=None if whole else max(change.n, 0 if known else change.baseline_n),
        baseline_n=None if whole or paired or not known else change.baseline_n,
        unit=change.unit,
    )
    verdict, reason = decision.verdict, decision.reason
    if whole and verdict in ("drifted", "improved") and interval.low < margin and interval.high > -margin:
        # Two texts always differ a little: what only the judge's noise speaks for must be more than the margin.
        verdict, reason = (
            undecided(change.delta, margin),
            f"beyond the judge's noise, but not surely by more than {margin:g}",
        )
    sd = None if whole else spread(first, second, paired=paired)
    return replace(
        change,
        # Means of scores of 0 to 9 cannot differ by more than 9.
        interval=interval if counted else Interval(max(interval.low, -9.0), min(interval.high, 9.0), interval.level),
        interval_note=note,
        verdict="drifted" if counted and verdict == "improved" else verdict,
        reason=reason,
        n_more=decision.n_more,
        smallest_detectable=detectable(sd, n=change.n, baseline_n=change.baseline_n, paired=paired),
        sd=sd,
        paired=paired,
        p_value=p,
    )


def detectable(sd: float | None, *, n: int, baseline_n: int, paired: bool, alpha: float = ALPHA) -> float | None:
    """The smallest change such a comparison finds with power 0.8; scores without judgements (0) are taken as exact."""
    if sd is None:
        return None
    if not n or not baseline_n:
        return smallest_detectable_change(max(n, baseline_n), sd, alpha=alpha, paired=True)
    return smallest_detectable_change(n, sd, alpha=alpha, baseline_n=baseline_n, paired=paired)


def _why_no_interval(
    before: _Sample,
    now: _Sample,
    compared: tuple[Scores, Scores],
    units: Collection[str],
    *,
    counted: bool,
    heuristic: bool,
) -> str:
    """Why nothing can be said about how sure the change is; empty when something can."""
    empty = [where for where, sample in zip(WHERE, (before, now), strict=True) if sample.score is None]
    if empty:
        return f"nothing was {'counted' if counted else 'scored'} {' and '.join(empty)}"
    if not units:
        return "neither holds single judgements: there is no interval without them"
    if len(units) > 1:
        return f"one is judged over {' and the other over '.join(sorted(units))}: there is no interval"
    few = min(len(_clusters(rows)) for rows in compared if rows) < 2
    (unit,) = units
    if unit != "repeats":
        return f"fewer than 2 {unit} in one of the two: there is no interval" if few else ""
    what = "a count" if counted else "the whole window is judged at once"
    if heuristic:
        return f"{what}, by a judge that always says the same: an interval takes an LLM judge and --repeats 3 for both"
    return f"{what}: an interval takes repeats (--repeats 3) for both" if few else ""


def _comparable(first: Scores, second: Scores) -> tuple[Scores, Scores, str]:
    """Situations and channels in one of the two only are left out, where at least two are in both; with a note."""
    units, one, two = {_unit_of(first), _unit_of(second)}, _clusters(first), _clusters(second)
    both = one & two
    if units == {"messages"}:
        if one - {DELETED} and one - {DELETED} == two - {DELETED}:
            return (
                first,
                second,
                "both judge the same messages: nothing new was said, what differs is how they were judged",
            )
        if n := len(both - {DELETED}):
            return first, second, f"messages that are in both: {n}, which makes the interval wider than it need be"
    if units not in ({"situations"}, {"channels"}) or len(both) < 2 or one == two:
        return first, second, ""
    first, second = ([o for o in rows if o.cluster in both] for rows in (first, second))
    return first, second, f"{units.pop()} in one of the two only, left out: {len(one ^ two)}"


def _unit_of(observations: Scores) -> str:
    """What their clusters are; empty without any."""
    return next((UNITS.get(str(o.cluster).partition(":")[0], "messages") for o in observations), "")


def _clusters(observations: Scores) -> set[object]:
    return {o.cluster for o in observations if o.weight}


def _delta(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else rounded(now - before)


# -- many at once
def adjusted(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Comparisons looked at together: a difference that chance would give somewhere among so many is not sure (Holm).

    Two families: the dimensions of all of them, and the propositions of all of them; in each the chance of any false ``drifted`` is at
    most 5 %. It only ever takes verdicts back, so it may be applied again to more comparisons at once. Where a proposition was lost and
    nothing surely got worse the verdict is ``not enough data``.
    """
    together = list(comparisons)
    dimensions = iter(_family([(c, change) for c in together for change in c.dimensions], "dimensions"))
    rows = [(c, change) for c in together for changes in c.propositions.values() for change in changes]
    propositions = iter(_family(rows, "propositions"))
    return [
        replace(
            c,
            dimensions=tuple(next(dimensions) for _ in c.dimensions),
            propositions={d: tuple(next(propositions) for _ in changes) for d, changes in c.propositions.items()},
        )
        for c in together
    ]


def _family(rows: Sequence[tuple[Comparison, Change]], what: str) -> list[Change]:
    tested = [change.p_value for _, change in rows if change.p_value is not None]
    corrected = iter(holm(tested))
    changes = []
    for comparison, change in rows:
        if change.p_value is not None:
            p = next(corrected)
            change = replace(change, p_adjusted=p)
            if change.verdict in ("drifted", "improved") and p > ALPHA:
                reason = (
                    f"alone it would be sure, but among {len(tested)} {what} chance gives such a difference (p {p:.2g}, Holm)"
                    if len(tested) > 1
                    else f"the interval just leaves zero out, a test of the difference does not (p {p:.3g})"
                )
                verdict = undecided(change.delta, comparison.margin)
                change = replace(change, verdict=verdict, n_more=None, reason=reason)
        changes.append(_with_lost(change, comparison.lost))
    return changes


def _with_lost(change: Change, lost: Sequence[Lost]) -> Change:
    of_it = [one for one in lost if one.dimension == change.dimension and change.proposition in ("", one.proposition)]
    if not of_it or change.worse:
        return change
    reasons = [change.reason] if change.too_little_scored else []  # of a dimension without a score, or marked before
    reasons += [str(one) for one in of_it if str(one) not in change.reason]
    return replace(change, verdict="not enough data", n_more=None, reason="; ".join(reasons), too_little_scored=True)


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


# -- JSON
def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Per dimension (and in it per proposition, worst first) both scores, delta, 95 % interval and verdict.

    Points of 0 to 9; `null` where there is none. `worse` lists what surely got worse, as ``dimension`` or ``dimension/proposition``.
    """
    return {
        "target": comparison.candidate.target,
        "judge": comparison.candidate.judge,
        "procedure": comparison.candidate.procedure,
        "baseline": _measurement_json(comparison.baseline),
        "candidate": _measurement_json(comparison.candidate),
        "stale": comparison.stale,
        "persona_changes": list(comparison.persona_changes),
        "margin": comparison.margin,
        "dimensions": {
            change.dimension: {
                **change_json(change),
                "propositions": {
                    row.proposition: change_json(row) for row in comparison.propositions.get(change.dimension, ())
                },
            }
            for change in comparison.dimensions
        },
        "worse": [change.name for change in comparison.worse],
        "only_baseline": list(comparison.only_baseline),
        "only_candidate": list(comparison.only_candidate),
        "changed": list(comparison.changed),
        "scored_in_one": list(comparison.scored_in_one),
        "over_window": list(comparison.over_window),
        "not_enough_data": [
            {
                "dimension": lost.dimension,
                "proposition": lost.proposition,
                "baseline_scored": lost.before.scored,
                "baseline_of": lost.before.asked,
                "scored": lost.now.scored,
                "of": lost.now.asked,
                "p": round(lost.p, 6),
            }
            for lost in comparison.lost
        ],
        "notes": list(comparison.notes),
    }


def change_json(change: Change) -> dict[str, Any]:
    """One change. `n` and `baseline_n` count what `unit` says; `p` is adjusted for all that was compared at once."""
    interval = change.interval
    return {
        "baseline": change.baseline,
        "candidate": change.candidate,
        "delta": change.delta,
        "interval": None if interval is None else [round(interval.low, 4), round(interval.high, 4)],
        "interval_note": change.interval_note,
        "verdict": change.verdict,
        "worse": change.worse,
        "reason": change.reason,
        "p": None if change.p_adjusted is None else round(change.p_adjusted, 6),
        "n": change.n,
        "baseline_n": change.baseline_n,
        "unit": change.unit,
        "n_more": change.n_more,
        "coverage": change.share.rounded if change.share else None,
        "baseline_coverage": change.baseline_share.rounded if change.baseline_share else None,
        "sd": None if change.sd is None else round(change.sd, 2),
        "smallest_detectable": None if change.smallest_detectable is None else round(change.smallest_detectable, 2),
        "paired": change.paired,
        **({"counted": True} if change.counted else {}),
    }


def _measurement_json(measurement: Measurement) -> dict[str, Any]:
    return {
        "name": measurement.name,
        "evaluation_run": measurement.evaluation_run,
        "where": None if measurement.where is None else dict(measurement.where),
        "persona_digest": measurement.persona_digest,
    }
