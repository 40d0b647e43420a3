"""Did a number change? Two samples of verdicts in, one `ChangeResult` out. Everything that compares measurements goes through here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field

from evaluation.dimensions import BY_MESSAGE
from evaluation.propositions.schema import DimensionId
from evaluation.runs.summary import Share, ShareShown, rounded
from evaluation.statistics.bootstrap import (
    HIGHEST,
    Interval,
    IntervalShown,
    Observation,
    bootstrap_difference,
    bootstrap_mean,
)
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
    shares_interval,
    shares_p,
    smallest_detectable_change,
    spread,
    undecided,
)

DELETED = "message:deleted"  # the cluster of what was judged of messages that are gone
SHARP, ENOUGH = 3.0, 10  # points, and judgements on both sides
FELL_BELOW = 0.5  # of the share scored in the baseline
HIT = 1.0  # a broken rule scores 0, cues against a proposition 1
MOST_RESAMPLED = 200  # messages; four thousand resamples of more take seconds and change nothing
NOISE_ALONE = "of the judge's noise alone: other messages might have scored otherwise"
WORDS_ALONE = "words: of repeated words alone, 0 (all repeat) to 9 (none do): an exact statistic, no score; blind to repeated thoughts"
UNITS = {"message": "messages", "situation": "situations", "channel": "channels", "repeat": "repeats"}
WHERE = ("in the baseline", "now")

AnyChange = TypeVar("AnyChange", bound="ChangeResult")


def to(digits: int) -> Any:
    """Dump a number with so many decimals."""
    return PlainSerializer(lambda value: value if value is None else round(value, digits))


def _hits_json(hits: Share | None) -> dict[str, int] | None:
    return None if hits is None else {"hits": hits.scored, "messages": hits.asked}


HitsShown = Annotated[
    Share | None,
    PlainSerializer(_hits_json, return_type=dict[str, int] | None),
    Field(exclude_if=lambda hits: hits is None),
]


class ChangeResult(BaseModel):
    """The change of one number: of a dimension, or of one proposition in it. Dumped it is what commands and the API show.

    Attributes:
        proposition: Empty for the dimension as a whole.
        baseline, candidate: Scores, 0 to 9, or counts; None when nothing was scored there.
        interval: 95 %, of the delta (of hits: of `points`); None with `interval_note` saying why.
        verdict: As in `Decision`; a count that surely changed is ``drifted`` in either direction.
        p_adjusted: Chance of a difference this large where there is none, among all that were compared at once (Holm); the verdict
            goes by it. `p_value` is of this one alone. None without an interval.
        n, baseline_n: Messages (pairs, situations) the two rest on; `unit` says what they count.
        n_more: Messages that would decide, where that can be said.
        share, baseline_share: How much was scored, of what the judge can score; None where that is not known.
        hits, baseline_hits: Messages that hit a cue or a rule, of those judged, where these shares are compared instead of the scores.
        sd: Standard deviation between messages, pooled (paired: of the differences), in points.
        smallest_detectable: ChangeResult this comparison would detect with power 0.8, in points; None when it cannot be said.
        paired: Whether the same situations (channels, messages) are in both and were compared one by one.
        counted: Whether it is a count of ideas, which is in no comparison of scores.
        too_little_scored: Whether there is no verdict because too little of what the judge can score was scored.
        of_words: Whether the numbers are the exact statistic of repeated words, not scores of the judge.
    """

    model_config = ConfigDict(frozen=True, serialize_by_alias=True, json_schema_serialization_defaults_required=True)

    dimension: str = Field("", exclude=True)
    proposition: str = Field("", exclude=True)
    baseline: float | None
    candidate: float | None
    interval: IntervalShown = None
    interval_note: str = ""
    verdict: Verdict
    reason: str = ""
    p_value: float | None = Field(None, exclude=True)
    p_adjusted: Annotated[float | None, to(6)] = Field(None, serialization_alias="p")
    n: int = 0
    baseline_n: int = 0
    unit: str = "messages"
    n_more: int | None = None
    share: ShareShown = Field(None, serialization_alias="coverage")
    baseline_share: ShareShown = Field(None, serialization_alias="baseline_coverage")
    hits: HitsShown = None
    baseline_hits: HitsShown = None
    sd: Annotated[float | None, to(2)] = None
    smallest_detectable: Annotated[float | None, to(2)] = None
    paired: bool = False
    counted: bool = Field(False, exclude_if=lambda counted: not counted)
    too_little_scored: bool = Field(False, exclude=True)
    of_words: bool = Field(False, exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def delta(self) -> float | None:
        """Candidate minus baseline; None when one is missing."""
        return None if self.baseline is None or self.candidate is None else rounded(self.candidate - self.baseline)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def worse(self) -> bool:
        """Whether it surely got worse. Fewer ideas are not worse: a count goes with how much was said."""
        return self.verdict == "drifted" and not self.counted

    @property
    def points(self) -> float | None:
        """The change in points. A message that hits counts as one that breaks a rule: 0 instead of 9."""
        if self.hits is None or self.baseline_hits is None:
            return self.delta
        return rounded(HIGHEST * ((self.baseline_hits.value or 0.0) - (self.hits.value or 0.0)))

    @property
    def is_sure(self) -> bool:
        """Whether more than chance stands behind it, and it is more than nothing."""
        return self.verdict in ("drifted", "improved") and abs(self.points or 0.0) >= MARGIN

    @property
    def name(self) -> str:
        """``dimension`` or ``dimension/proposition``."""
        return f"{self.dimension}/{self.proposition}" if self.proposition else self.dimension

    @property
    def undecided(self) -> bool:
        """Whether the judgements there are do not decide."""
        return self.verdict in ("possibly drifted", "not enough data") and not self.too_little_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One number of one measurement: the score (or count; None when nothing was scored), and the judgements behind it where known."""

    score: float | None = None
    observations: Scores = ()


def change_of(
    before: Sample,
    now: Sample,
    *,
    dimension: str,
    proposition: str = "",
    margin: float,
    counted: bool = False,
    heuristic: bool = False,
) -> ChangeResult:
    """Delta, interval and verdict of one number.

    Messages are drawn independently from the two. Where the same situations, channels or messages are in both they are compared one by
    one. A window judged as a whole has only its repeats to draw from: the interval is then of the judge's noise alone. Scores without
    judgements are taken as exact.

    Args:
        before, now: Of the baseline and the candidate.
        margin: Half-width of "no change", in points.
        counted: A count, not a score.
        heuristic: Judged offline: repeats are all the same and tell nothing.
    """
    first, second, note = _comparable(before.observations, now.observations)
    units = {_unit_of(first), _unit_of(second)} - {""}
    why = _why_no_interval(before, now, (first, second), units, counted=counted, heuristic=heuristic)
    change = ChangeResult(
        dimension=dimension,
        proposition=proposition,
        counted=counted,
        baseline=before.score,
        candidate=now.score,
        interval_note=why,
        verdict="not enough data",
        reason=why,
        n=len(_clusters(second)),
        baseline_n=len(_clusters(first)),
        unit=next(iter(units)) if len(units) == 1 else "messages",
    )
    change = change.model_copy(update={"verdict": undecided(change.delta, margin)})
    if why:
        return change
    at_once, known = "repeats" in units, bool(first and second)
    exact = heuristic and units == {"messages"} and dimension not in BY_MESSAGE
    paired = known and not at_once and _clusters(first) == _clusters(second)
    # Other messages may show an outcome that none of these did. Repeats, and the same messages judged again, are no draw of messages.
    unseen = not (at_once or counted or (paired and units == {"messages"}))
    if known:
        sizes, how = (change.n, change.baseline_n), {"paired": paired, "unseen": unseen}
        if min(sizes) > MOST_RESAMPLED or max(sizes) > 10 * MOST_RESAMPLED:
            interval: Interval | None = difference_interval(first, second, **how)
        else:
            interval = bootstrap_difference(first, second, **how).interval
        p = difference_p(first, second, **how)
        if not counted:
            change = change.model_copy(update={"baseline": mean_of(first), "candidate": mean_of(second)})
        note = NOISE_ALONE if at_once else note
        if exact:
            note = "; ".join(filter(None, (WORDS_ALONE, note)))
    else:
        fixed, observations = (before.score or 0.0, second) if second else (now.score or 0.0, first)
        interval = bootstrap_mean(observations, unseen=unseen).interval
        p = from_fixed_p(fixed, observations, unseen=unseen)
        if interval is not None:
            low, high = interval.low - fixed, interval.high - fixed
            interval = Interval(low, high) if second else Interval(-high, -low)
        note = f"the {'baseline' if second else 'candidate'} holds no single judgements: its score is taken as exact"
        note += f"; the interval is {NOISE_ALONE}" if at_once else ""
    if interval is None:
        why = "too few scores for an interval"
        return change.model_copy(update={"interval_note": why, "reason": why})
    change = decided(
        change,
        interval,
        margin,
        n=None if at_once else max(change.n, 0 if known else change.baseline_n),
        baseline_n=None if at_once or paired or not known else change.baseline_n,
    )
    if at_once or exact:
        change = beyond_margin(change, margin, "chance" if exact else "the judge's noise")
    sd = None if at_once else spread(first, second, paired=paired, unseen=unseen)
    update = {
        "interval_note": note,
        "sd": sd,
        "smallest_detectable": detectable(sd, n=change.n, baseline_n=change.baseline_n, paired=paired),
        "verdict": "drifted" if counted and change.verdict == "improved" else change.verdict,
        "p_value": p,
        "paired": paired,
        "of_words": exact,
    }
    return change.model_copy(update=update)


def goes_by_hits(hits: tuple[Share, Share], scored: tuple[Share | None, Share | None]) -> bool:
    """Return whether the share of messages that hit a cue is compared, and not the scores.

    It is where all scores of both are hits, and where the baseline has fewer than two scores: one is no sample.

    Args:
        hits, scored: Messages with a hit, and with any score, of those judged: in the baseline and now.
    """
    before, now = hits
    if not (before.asked and now.asked and before.scored + now.scored):
        return False
    partly = before.scored < before.asked or now.scored < now.asked
    if partly and hits == scored:
        return True
    scored_before = scored[0]
    return scored_before is not None and scored_before.scored < 2


def change_of_hits(change: AnyChange, before: Share, now: Share, margin: float) -> AnyChange:
    """Return the change of a proposition by its hits: by the share of messages that had one, not by how low those scored.

    The two shares are compared by Fisher's exact test; the interval is of the change in points, see `ChangeResult.points`.

    Args:
        before, now: Hits of the messages judged, of the baseline and of the candidate; both of at least one message.
        margin: Half-width of "no change", in points.
    """
    both = (before.scored, before.asked), (now.scored, now.asked)
    p, rise = shares_p(*both), shares_interval(*both)
    interval = Interval(-HIGHEST * rise.high, -HIGHEST * rise.low)
    counts = {"hits": now, "baseline_hits": before, "n": now.asked, "baseline_n": before.asked}
    points = change.model_copy(update=counts).points or 0.0
    verdict = undecided(points, margin)
    if -margin <= interval.low and interval.high <= margin:
        verdict = "steady"
    elif p <= ALPHA and abs(points) >= margin:
        verdict = "drifted" if points < 0 else "improved"
    return change.model_copy(
        update={
            **counts,
            "interval": interval,
            "interval_note": "by the share of messages with a hit (Fisher's exact test); one with a hit counts 0, another 9",
            "verdict": verdict,
            "reason": f"hits in {now} messages, {before} in the baseline",
            "p_value": p,
            "n_more": None,
        }
    )


def decided(
    change: AnyChange, interval: Interval | None, margin: float, *, n: int | None, baseline_n: int | None = None
) -> AnyChange:
    """The change with its interval and what that decides: see `decide`. Means of 0 to 9 cannot differ by more than 9."""
    decision = decide(change.delta, interval, margin, n=n, baseline_n=baseline_n, unit=change.unit)
    if interval is not None and not change.counted:
        interval = Interval(max(interval.low, -HIGHEST), min(interval.high, HIGHEST))
    update = {"verdict": decision.verdict, "reason": decision.reason, "n_more": decision.n_more}
    return change.model_copy(update={**update, "interval": interval})


def beyond_margin(change: AnyChange, margin: float, noise: str) -> AnyChange:
    """Take a verdict back that is not surely beyond the margin: two texts always differ a little, and so does a judge from itself."""
    interval = change.interval
    if interval is None or change.verdict not in ("drifted", "improved"):
        return change
    if interval.low >= margin or interval.high <= -margin:
        return change
    reason = f"beyond {noise}, but not surely by more than {margin:g}"
    return change.model_copy(update={"verdict": undecided(change.delta, margin), "reason": reason})


def fell_sharply(change: ChangeResult) -> bool:
    """Whether it fell by at least 3 points with an interval clear of 0, judged at least 10 times on both sides: reason for an alert."""
    sides = (change.n, change.share), (change.baseline_n, change.baseline_share)
    judged = [n if share is None or change.of_words else share.scored for n, share in sides]
    fell = change.delta is not None and change.delta <= -SHARP and not change.counted
    return fell and min(judged) >= ENOUGH and change.interval is not None and change.interval.high < 0


def mean_of(observations: Iterable[Observation]) -> float | None:
    """Σ weight · value ÷ Σ weight, as scores are stored; None without any."""
    rows = [(o.weight * o.value, o.weight) for o in observations]
    weight = sum(w for _, w in rows)
    return rounded(sum(points for points, _ in rows) / weight) if weight else None


def detectable(sd: float | None, *, n: int, baseline_n: int, paired: bool, alpha: float = ALPHA) -> float | None:
    """The smallest change such a comparison detects with power 0.8; scores without judgements (0) are taken as exact."""
    if sd is None:
        return None
    if not n or not baseline_n:
        return smallest_detectable_change(max(n, baseline_n), sd, alpha=alpha, paired=True)
    return smallest_detectable_change(n, sd, alpha=alpha, baseline_n=baseline_n, paired=paired)


def corrected(
    changes: Sequence[AnyChange], margin: float, what: str, *, family: Sequence[float] = ()
) -> list[AnyChange]:
    """Changes looked at together: a difference that chance would give somewhere among so many is not sure (Holm).

    It only ever takes verdicts back, so it may be applied again to more of them. Those without a p value stay as they are.

    Args:
        margin: Half-width of "no change", in points.
        what: What they are, for the sentence: ``dimensions``.
        family: All p values to correct for, those of the changes included; default: those of the changes.
    """
    tested = list(family) or [change.p_value for change in changes if change.p_value is not None]
    adjusted = dict(zip(tested, holm(tested), strict=True))
    rows = []
    for change in changes:
        update: dict[str, Any] = {}
        if change.p_value is not None:
            update["p_adjusted"] = p = adjusted[change.p_value]
            if change.verdict in ("drifted", "improved") and p > ALPHA:
                reason = f"the interval just leaves zero out, a test of the difference does not (p {p:.3g})"
                if (n := len(tested)) > 1:
                    reason = f"significant alone, but not after Holm correction ({n} {what}, p {p:.2g})"
                update |= {"verdict": undecided(change.points, margin), "n_more": None, "reason": reason}
        rows.append(change.model_copy(update=update))
    return rows


def _why_no_interval(
    before: Sample,
    now: Sample,
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
    """Leave out situations and channels that are in one of the two only, where at least two are in both; with a note."""
    units, one, two = {_unit_of(first), _unit_of(second)}, _clusters(first), _clusters(second)
    both = one & two
    if units == {"messages"}:
        note = ""
        if one - {DELETED} and one - {DELETED} == two - {DELETED}:
            note = "both judge the same messages: nothing new was said, what differs is how they were judged"
        elif n := len(both - {DELETED}):
            note = f"messages that are in both: {n}, which makes the interval wider than it need be"
        return first, second, note
    if units not in ({"situations"}, {"channels"}) or len(both) < 2 or one == two:
        return first, second, ""
    first, second = ([o for o in rows if o.cluster in both] for rows in (first, second))
    return first, second, f"{units.pop()} in one of the two only, left out: {len(one ^ two)}"


def _unit_of(observations: Scores) -> str:
    """What their clusters are; empty without any."""
    return next((UNITS.get(str(o.cluster).partition(":")[0], "messages") for o in observations), "")


def _clusters(observations: Scores) -> set[object]:
    return {o.cluster for o in observations if o.weight}


# -- what is scored no more
Shares = Mapping[tuple[str, str], Share]  # by dimension and proposition


class Lost(BaseModel):
    """A proposition, or a dimension (`proposition` is empty), of which surely less than half as much is scored as in the baseline.

    What is left of it says little now: a dimension has no score. `p`: chance of such a fall where there is none (Holm). Scored are so
    many of those that the judge could have scored; `without_hits`: but for propositions compared by hits.
    """

    model_config = ConfigDict(frozen=True)

    dimension: DimensionId
    proposition: str
    p: Annotated[float, to(6)]
    baseline_scored: int
    baseline_of: int
    scored: int
    of: int
    without_hits: bool = Field(False, exclude=True)

    @property
    def before(self) -> Share:
        return Share(self.baseline_scored, self.baseline_of)

    @property
    def now(self) -> Share:
        return Share(self.scored, self.of)

    def __str__(self) -> str:
        figures = f"{self.before} judgements scored in the baseline, {self.now} now"
        if not self.proposition:
            but = ", without what is compared by hits" if self.without_hits else ""
            return f"less than half as much is scored as in the baseline: {figures}{but}"
        return f"{self.proposition}: {figures}"


def _lost(dimension: str, proposition: str, p: float, before: Share, now: Share) -> Lost:
    return Lost(
        dimension=dimension,
        proposition=proposition,
        p=p,
        baseline_scored=before.scored,
        baseline_of=before.asked,
        scored=now.scored,
        of=now.asked,
    )


def lost_propositions(before: Shares, now: Shares) -> tuple[Lost, ...]:
    """The propositions of one agent, judged message by message, whose scored share fell by more than half, and surely so.

    Fisher's exact test for each, one-sided; Holm's correction for all of which anything was scored before: no other can fall.
    """
    from scipy.stats import fisher_exact

    names = [name for name, share in before.items() if share.scored and name in now and now[name].asked]
    chances = []
    for name in names:
        table = [[share.scored, share.asked - share.scored] for share in (before[name], now[name])]
        chances.append(float(fisher_exact(table, alternative="greater").pvalue))
    return tuple(
        _lost(*name, p, before[name], now[name])
        for name, p in zip(names, holm(chances), strict=True)
        if p <= ALPHA and fell_below_half(before[name], now[name])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredShare:
    """How much of a dimension was scored: in all, and per message of those with a score how many of its judgements were."""

    share: Share
    messages: int
    scored: Mapping[object, int]

    @property
    def observations(self) -> Scores:
        """The share of each message, as points of 0 to 9."""
        per_message = self.share.asked / self.messages if self.messages else 0.0
        counts = [*self.scored.items(), *((f"unscored:{n}", 0) for n in range(self.messages - len(self.scored)))]
        return [Observation(HIGHEST * min(1.0, n / per_message), 1.0, key) for key, n in counts if per_message]


def lost_dimensions(shares: Mapping[str, tuple[ScoredShare, ScoredShare]]) -> tuple[Lost, ...]:
    """Return the dimensions of one agent whose scored share fell by more than half, and surely so.

    Judgements of one message belong together, so the shares of the messages are compared, as scores are (`difference_p`), with Holm's
    correction for all dimensions of which anything was scored before.

    Args:
        shares: By dimension that of the baseline and of the candidate, over propositions that are the same in both.
    """
    names = [d for d, (before, now) in shares.items() if before.share.scored and now.share.asked]
    chances = []
    for name in names:
        before, now = shares[name]
        fell = fell_below_half(before.share, now.share)
        p = difference_p(before.observations, now.observations) if fell else None
        chances.append(1.0 if p is None else p)
    return tuple(
        _lost(name, "", p, shares[name][0].share, shares[name][1].share)
        for name, p in zip(names, holm(chances), strict=True)
        if p <= ALPHA
    )


def fell_below_half(before: Share, now: Share) -> bool:
    """Return whether less than half as much is scored as before, be it by chance."""
    return (now.value or 0.0) < FELL_BELOW * (before.value or 0.0)
