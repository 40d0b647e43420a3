"""Did a number change? Two samples of verdicts in, one `ChangeResult` out. Everything that compares measurements goes through here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field

from agents.kit.text.wording import difference
from evaluation.dimensions import BY_MESSAGE
from evaluation.runs.numbers import rounded
from evaluation.runs.shares import Share, ShareShown
from evaluation.statistics.bootstrap import (
    HIGHEST,
    Interval,
    IntervalShown,
    Observation,
    bootstrap_difference,
    effective_clusters,
)
from evaluation.statistics.difference import (
    ALPHA,
    MARGIN,
    Scores,
    Verdict,
    below_p,
    decide,
    difference_interval,
    difference_p,
    holm,
    rate_interval,
    shares_interval,
    shares_p,
    smallest_detectable_change,
    spread,
    undecided,
)

DELETED = "message:deleted"  # the cluster of what was judged of messages that are gone
SHARP_FALL = 3.0  # points
ENOUGH_FOR_SHARP_FALL = 10  # judgements on both sides
HIT = 1.0  # the highest score of a hit: a broken rule scores 0, cues against a proposition 1
MOST_RESAMPLED = 200  # messages; four thousand resamples of more take seconds and change nothing
NOISE_ALONE = "of the judge's noise alone: other messages might have scored otherwise"
WORDS_ALONE = "words: of repeated words alone, 0 (all repeat) to 9 (none do): an exact statistic, no score; blind to repeated thoughts"
WHERE_BEFORE = "in the baseline"
WHERE_NOW = "now"
UNITS = {
    "message": "messages",
    "conversation": "conversations",
    "situation": "situations",
    "channel": "channels",
    "repeat": "repeats",
}
# Both are of single messages and may be compared: drawn one by one, or with all others of their conversation.
MESSAGE_UNITS = {"messages", "conversations"}

AnyChange = TypeVar("AnyChange", bound="ChangeResult")


def rounded_to(digits: int) -> Any:
    """Return the annotation of a field that is dumped with so many decimals."""
    # A lambda has no return type, so that the schema keeps that of the field.
    return PlainSerializer(lambda number: None if number is None else round(number, digits))


# A p value is dumped with three digits that count, so that a tiny one is not 0; one below 1e-300 is 1e-300.
Probability = Annotated[float, PlainSerializer(lambda p: float(f"{p:.3g}"))]


def _hits_json(hits: Share | None) -> dict[str, int] | None:
    if hits is None:
        return None
    return {"hits": hits.scored, "messages": hits.asked}


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
        verdict: As in `Decision`; a count that changed significantly is ``drifted`` in either direction.
        p_adjusted: Chance of a difference this large where there is none, among all that were compared at once (Holm); the verdict
            goes by it. `p_value` is of this one alone. None without an interval.
        n, baseline_n: Messages (pairs, situations) the two rest on; `unit` says what they count.
        effective, baseline_effective: Which share of `n` and `baseline_n` would tell as much if all counted alike; 1 where they do.
        n_more: Messages that would decide, where that can be said.
        share, baseline_share: How much was scored, of what the judge can score; None where that is not known.
        hits, baseline_hits: Messages that hit a cue or a rule, of those judged, where these shares are compared instead of the scores.
        sd: Standard deviation between messages, pooled (paired: of the differences), in points.
        smallest_detectable: The smallest change this comparison would detect with power 0.8, in points; None when it cannot be said.
        paired: Whether the same situations (channels, messages) are in both and were compared one by one.
        counted: Whether it is a count of ideas, which is in no comparison of scores.
        too_little_scored: Whether there is no verdict because too little of what the judge can score was scored.
        of_ten: Of a rule that need not hold in every message: in how many of 10 it should.
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
    p_adjusted: Probability | None = Field(None, serialization_alias="p")
    n: int = 0
    baseline_n: int = 0
    effective: float = Field(1.0, exclude=True)
    baseline_effective: float = Field(1.0, exclude=True)
    unit: str = "messages"
    n_more: int | None = None
    share: ShareShown = Field(None, serialization_alias="coverage")
    baseline_share: ShareShown = Field(None, serialization_alias="baseline_coverage")
    hits: HitsShown = None
    baseline_hits: HitsShown = None
    sd: Annotated[float | None, rounded_to(2)] = None
    smallest_detectable: Annotated[float | None, rounded_to(2)] = None
    paired: bool = False
    counted: bool = Field(False, exclude_if=lambda counted: not counted)
    too_little_scored: bool = Field(False, exclude=True)
    of_words: bool = Field(False, exclude=True)
    of_ten: int | None = Field(None, exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def delta(self) -> float | None:
        """Candidate minus baseline; None when one is missing."""
        if self.baseline is None or self.candidate is None:
            return None
        return rounded(self.candidate - self.baseline)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def worse(self) -> bool:
        """Significantly worse. Fewer ideas are not worse: a count goes with how much was said."""
        return self.verdict == "drifted" and not self.counted

    @property
    def effective_n(self) -> float:
        """Return how many messages (pairs, situations) that count alike would tell as much as those of the candidate.

        Of pairs those that tell less: both sides are of the same ones.
        """
        if self.paired:
            return self.n * min(self.effective, self.baseline_effective)
        return self.n * self.effective

    @property
    def effective_baseline_n(self) -> float:
        """Return how many messages (situations) that count alike would tell as much as those of the baseline."""
        return self.baseline_n * self.baseline_effective

    @property
    def points(self) -> float | None:
        """Return the change in points. A message with a hit counts as one that breaks a rule: 0 instead of 9.

        Of a rule with `of_ten` only below what is asked.
        """
        if self.of_ten is not None and self.baseline is not None and self.candidate is not None:
            least_points = HIGHEST * self.of_ten / 10
            return rounded(min(self.candidate, least_points) - min(self.baseline, least_points))
        if self.hits is None or self.baseline_hits is None:
            return self.delta
        hit_before = self.baseline_hits.value or 0.0
        hit_now = self.hits.value or 0.0
        return rounded(HIGHEST * (hit_before - hit_now))

    @property
    def shown_points(self) -> float | None:
        """Return the change in points to show beside the two scores: their difference as they are shown, where the points are that."""
        if self.hits is not None or self.of_ten is not None:
            return self.points
        return difference(self.baseline, self.candidate, 0 if self.counted else 1)

    @property
    def is_sure(self) -> bool:
        """Return whether it is significant and at least as large as the margin."""
        return self.verdict in ("drifted", "improved") and abs(self.points or 0.0) >= MARGIN

    @property
    def name(self) -> str:
        """Return ``dimension`` or ``dimension/proposition``."""
        return f"{self.dimension}/{self.proposition}" if self.proposition else self.dimension

    @property
    def undecided(self) -> bool:
        """Return whether more judgements could decide it."""
        return self.verdict in ("possibly drifted", "not enough data") and not self.too_little_scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One number of one measurement: the score (or count; None when nothing was scored), and the judgements behind it."""

    score: float | None = None
    observations: Scores = ()


# -- scores
@dataclass(frozen=True, slots=True, kw_only=True)
class _SamplePair:
    """The judgements that are compared: of the baseline and of the candidate, with a note on how they overlap."""

    before: Scores
    now: Scores
    note: str = ""

    @property
    def units(self) -> set[str]:
        """Return what the judgements are clustered by: one of `UNITS`, two where the samples differ, none without judgements."""
        return _units_of(self.before) | _units_of(self.now)

    @property
    def unit(self) -> str:
        """Return what the judgements are counted in; messages where the samples differ, or there are none."""
        if len(self.units) != 1:
            return "messages"
        (unit,) = self.units
        return unit

    @property
    def are_repeats(self) -> bool:
        """Return whether windows were judged as a whole: repeats show the noise of the judge, not how messages vary."""
        return self.units == {"repeats"}

    @property
    def are_messages(self) -> bool:
        """Return whether messages were judged one by one, drawn alone or with their conversations."""
        return bool(self.units) and self.units <= MESSAGE_UNITS

    @property
    def are_paired(self) -> bool:
        """Return whether the same clusters (messages, conversations, situations, channels) are in both, each compared with itself."""
        return not self.are_repeats and _clusters_with_weight(self.before) == _clusters_with_weight(self.now)

    @property
    def are_same_messages(self) -> bool:
        """Return whether both judged the same messages: nothing else was drawn."""
        if not self.are_messages or not self.are_paired:
            return False
        messages = _messages_of(self.before)
        return bool(messages) and messages == _messages_of(self.now)


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
    """Return delta, interval and verdict of one number.

    Messages are drawn independently from the two. Where the same situations, channels or messages are in both they are compared one by
    one. A window judged as a whole has only its repeats to draw from: the interval is then of the judge's noise alone. Where there is no
    interval the reason says why, and the verdict is ``possibly drifted`` for a fall of at least the margin, else ``not enough data``.
    The verdict does not allow for what else is compared: see `corrected`.

    Args:
        before, now: Of the baseline and the candidate.
        margin: Half-width of "no change", in points.
        counted: Whether it is a count, not a score.
        heuristic: Whether it was judged offline: repeats are all the same and tell nothing.
    """
    pair = _comparable(before.observations, now.observations)
    change = ChangeResult(
        dimension=dimension,
        proposition=proposition,
        counted=counted,
        baseline=before.score,
        candidate=now.score,
        verdict="not enough data",
        n=len(_clusters_with_weight(pair.now)),
        baseline_n=len(_clusters_with_weight(pair.before)),
        effective=_effective_share(pair.now),
        baseline_effective=_effective_share(pair.before),
        unit=pair.unit,
    )
    change = change.model_copy(update={"verdict": undecided(change.delta, margin)})
    why = _why_not_scored(before, now, counted=counted) or _why_no_interval(pair, counted=counted, heuristic=heuristic)
    if why:
        return change.model_copy(update={"interval_note": why, "reason": why})
    # Of a dimension that is judged as a whole the offline judge scores no message: numbers of messages are the statistic of words.
    of_words = heuristic and pair.are_messages and dimension not in BY_MESSAGE
    return _tested_change(change, pair, margin, of_words=of_words)


def _tested_change(change: ChangeResult, pair: _SamplePair, margin: float, *, of_words: bool) -> ChangeResult:
    """Return the change with its test, its interval and the verdict that they allow; without an interval only with the reason.

    The two numbers become the means of what is compared; counts stay.

    Args:
        of_words: Whether the judgements are the exact statistic of repeated words.
    """
    paired = pair.are_paired
    # Other messages may show an outcome that none of these did. Repeats, counts, and the same messages judged again draw no messages.
    unseen = not (pair.are_repeats or change.counted or pair.are_same_messages)
    interval = _interval_of_difference(change, pair, paired=paired, unseen=unseen)
    if interval is None:
        why = "too few scores for an interval"
        return change.model_copy(update={"interval_note": why, "reason": why})
    if not change.counted:
        change = change.model_copy(update={"baseline": mean_of(pair.before), "candidate": mean_of(pair.now)})
    p_value = difference_p(pair.before, pair.now, paired=paired, unseen=unseen)
    if pair.are_repeats:
        # No number of messages would narrow the judge's noise.
        change = with_verdict(change, interval, margin, n=None)
        change = undecided_unless_beyond_margin(change, margin, "the judge's noise")
        note = NOISE_ALONE
        sd = None
    else:
        baseline_n = None if paired else change.baseline_n  # pairs grow in both
        change = with_verdict(change, interval, margin, n=change.n, baseline_n=baseline_n)
        note = pair.note
        sd = spread(pair.before, pair.now, paired=paired, unseen=unseen)
    if of_words:
        change = undecided_unless_beyond_margin(change, margin, "chance")
        note = f"{WORDS_ALONE}; {note}" if note else WORDS_ALONE
    update: dict[str, Any] = {
        "interval_note": note,
        "sd": sd,
        "p_value": p_value,
        "paired": paired,
        "of_words": of_words,
    }
    if change.counted and change.verdict == "improved":
        update["verdict"] = "drifted"  # more ideas are as little better as fewer are worse
    change = change.model_copy(update=update)
    if sd is None:
        return change
    smallest = smallest_detectable_change(change.effective_n, sd, baseline_n=change.effective_baseline_n, paired=paired)
    return change.model_copy(update={"smallest_detectable": smallest})


def _interval_of_difference(change: ChangeResult, pair: _SamplePair, *, paired: bool, unseen: bool) -> Interval | None:
    """Return the 95 % interval of the difference: by resampling, of very many messages by Student's t; None for too few scores.

    Args:
        paired: Whether each message, situation or channel is compared with itself.
        unseen: Whether other draws could show scores that these do not (see `least_variance`).
    """
    smaller = min(change.n, change.baseline_n)
    larger = max(change.n, change.baseline_n)
    # A small sample is better resampled, unless the other is so large that it would take seconds.
    if smaller > MOST_RESAMPLED or larger > 10 * MOST_RESAMPLED:
        return difference_interval(pair.before, pair.now, paired=paired, unseen=unseen)
    return bootstrap_difference(pair.before, pair.now, paired=paired, unseen=unseen).interval


def _why_not_scored(before: Sample, now: Sample, *, counted: bool) -> str:
    """Return which of the two has no score; empty when both have one. Only what is in both is compared, so either alone may have one."""
    done = "counted" if counted else "scored"
    if before.score is None and now.score is None:
        return f"nothing was {done} both {WHERE_BEFORE} and {WHERE_NOW}"
    if before.score is None:
        return f"nothing was {done} {WHERE_BEFORE}"
    if now.score is None:
        return f"nothing was {done} {WHERE_NOW}"
    return ""


def _why_no_interval(pair: _SamplePair, *, counted: bool, heuristic: bool) -> str:
    """Return why nothing can be said about how sure the change is; empty when something can.

    Repeats of the offline judge (`heuristic`) are all equal, so they never give an interval.
    """
    if not pair.before or not pair.now:
        return "there are no single judgements on both sides, and no interval without them"
    if len(pair.units) > 1 and not pair.are_messages:
        return f"one is judged over {' and the other over '.join(sorted(pair.units))}: there is no interval"
    too_few = min(len(_clusters_with_weight(pair.before)), len(_clusters_with_weight(pair.now))) < 2
    if not pair.are_repeats:
        return (
            f"fewer than 2 {' or '.join(sorted(pair.units))} in one of the two: there is no interval" if too_few else ""
        )
    why = "a count" if counted else "the whole window is judged at once"
    if heuristic:
        return f"{why}, by a judge that always says the same: an interval takes an LLM judge and --repeats 3 for both"
    return f"{why}: an interval takes repeats (--repeats 3) for both" if too_few else ""


def _comparable(before: Scores, now: Scores) -> _SamplePair:
    """Return the judgements that are compared, with a note on how the samples overlap.

    Where at least two situations (channels) are in both, those in one only are left out, so that each is compared with itself. Messages
    and repeats are all taken.
    """
    pair = _SamplePair(before=before, now=now)
    clusters_before = _clusters_with_weight(before)
    clusters_now = _clusters_with_weight(now)
    in_both = clusters_before & clusters_now
    if pair.are_messages:
        note = ""
        if pair.are_same_messages or not pair.are_paired:
            note = _note_on_same_messages(_messages_of(before), _messages_of(now))
        return _SamplePair(before=before, now=now, note=note)
    if pair.units not in ({"situations"}, {"channels"}) or len(in_both) < 2 or clusters_before == clusters_now:
        return pair
    (unit,) = pair.units
    return _SamplePair(
        before=[observation for observation in before if observation.cluster in in_both],
        now=[observation for observation in now if observation.cluster in in_both],
        note=f"{unit} in one of the two only, left out: {len(clusters_before ^ clusters_now)}",
    )


def _note_on_same_messages(messages_before: set[object], messages_now: set[object]) -> str:
    """Return what it means that both judged the same messages, or some of them; empty where they share none."""
    if messages_before and messages_before == messages_now:
        return "both judge the same messages: nothing new was said, what differs is how they were judged"
    shared = len(messages_before & messages_now)
    if shared:
        return f"messages that are in both: {shared}, which makes the interval wider than it need be"
    return ""


def _units_of(observations: Scores) -> set[str]:
    """Return what the clusters of a sample are, as a set of one; empty without observations.

    All have the same kind of cluster, but for messages that are gone: of those no conversation is known.
    """
    if not observations:
        return set()
    kept_observations = [observation for observation in observations if observation.cluster != DELETED]
    kind = str((kept_observations or observations)[0].cluster).partition(":")[0]
    return {UNITS.get(kind, "messages")}


def _clusters_with_weight(observations: Scores) -> set[object]:
    return {observation.cluster for observation in observations if observation.weight}


def _effective_share(observations: Scores) -> float:
    """Return which share of the clusters would tell as much if all counted alike, above 0; 1 where they do, or there are none."""
    clusters = len(_clusters_with_weight(observations))
    return effective_clusters(observations) / clusters if clusters else 1.0


def _messages_of(observations: Scores) -> set[object]:
    """Return the messages that were judged, also where whole conversations are drawn; without those that are gone or not known."""
    messages: set[object] = set()
    for observation in observations:
        if not observation.weight or observation.cluster == DELETED:
            continue
        if observation.item is not None:
            messages.add(observation.item)
        elif _units_of([observation]) == {"messages"}:
            messages.add(observation.cluster)
    return messages


def mean_of(observations: Iterable[Observation]) -> float | None:
    """Return Σ weight · value ÷ Σ weight, as scores are stored; None without any."""
    rows = list(observations)
    weight = sum(observation.weight for observation in rows)
    if not weight:
        return None
    return rounded(sum(observation.weight * observation.value for observation in rows) / weight)


# -- shares of messages with a hit
def goes_by_hits(hits: tuple[Share, Share], scored: tuple[Share | None, Share | None]) -> bool:
    """Return whether the share of messages that hit a cue is compared, and not the scores.

    It is where all scores of both are hits and some messages have none (what has no hit is unscored then, so the mean score says
    nothing of how many hits there are), and where the baseline has fewer than two scores: one is no sample. Never without judged
    messages in both, or without a hit in either.

    Args:
        hits, scored: Messages with a hit, and with any score, of those judged: in the baseline and now. `scored` None: not known.
    """
    hits_before, hits_now = hits
    if not hits_before.asked or not hits_now.asked:
        return False
    if not hits_before.scored and not hits_now.scored:
        return False
    some_have_none = hits_before.scored < hits_before.asked or hits_now.scored < hits_now.asked
    all_scores_are_hits = hits == scored  # as many hits as scores, of as many messages, in both
    if some_have_none and all_scores_are_hits:
        return True
    scored_before = scored[0]
    return scored_before is not None and scored_before.scored < 2


def change_of_hits(change: AnyChange, before: Share, now: Share, margin: float) -> AnyChange:
    """Return the change of a proposition by its hits: by the share of messages that had one, not by how low those scored.

    The two shares are compared by Fisher's exact test; the interval is of the change in points, where a message with a hit counts 0 and
    another 9. ``steady`` where it lies within the margin; ``drifted`` or ``improved`` where p is at most 5 % and the change at least the
    margin; else undecided.

    Args:
        before, now: Hits of the messages judged, of the baseline and of the candidate; both of at least one message.
        margin: Half-width of "no change", in points.
    """
    counts_before = (before.scored, before.asked)
    counts_now = (now.scored, now.asked)
    p_value = shares_p(counts_before, counts_now)
    rise = shares_interval(counts_before, counts_now)
    interval = Interval(-HIGHEST * rise.high, -HIGHEST * rise.low)  # more hits are worse
    change = change.model_copy(
        update={
            "hits": now,
            "baseline_hits": before,
            "n": now.asked,
            "baseline_n": before.asked,
            "interval": interval,
            "interval_note": "by the share of messages with a hit (Fisher's exact test); one with a hit counts 0, another 9",
            "reason": f"hits against it in {now} messages, {before} in the baseline",
            "p_value": p_value,
            "n_more": None,
        }
    )
    return change.model_copy(update={"verdict": _verdict_by_hits(change.points or 0.0, interval, p_value, margin)})


def _verdict_by_hits(points: float, interval: Interval, p_value: float, margin: float) -> Verdict:
    if -margin <= interval.low and interval.high <= margin:
        return "steady"
    if p_value > ALPHA or abs(points) < margin:
        return undecided(points, margin)
    return "drifted" if points < 0 else "improved"


# -- rules that need not hold in every message
def change_of_rate(change: AnyChange, before: Scores, now: Scores, *, of_ten: int, margin: float) -> AnyChange:
    """Return the change of a rule that should hold in `of_ten` of ten messages: only what is missing to that is compared.

    A fall (or rise) from and to at least as many is no change. It is ``drifted`` where the rule now holds significantly less often than
    is asked, and than before; ``improved`` where it did before. The interval follows from those of the two shares, each cut at what is
    asked (Newcombe's method 10, as of hits); p is the larger one of "less often than before" and "less often than is asked".

    Args:
        change: Of the scores, by `change_of`.
        before, now: Scores of 0 and 9, of the baseline and of the candidate.
        margin: Half-width of "no change", in points.
    """
    least_rate = HIGHEST * of_ten / 10
    change = change.model_copy(update={"of_ten": of_ten, "n_more": None})
    pair = _comparable(before, now)
    interval_before = rate_interval(pair.before)
    interval_now = rate_interval(pair.now)
    lower = pair.before if (change.delta or 0.0) > 0 else pair.now  # the side on which it holds less often
    less_than_asked = below_p(lower, least_rate)
    points = change.points
    if interval_before is None or interval_now is None or less_than_asked is None:
        return change.model_copy(update={"verdict": undecided(points, margin)})
    if points is None or change.p_value is None:  # not compared: `interval_note` says why
        return change.model_copy(update={"verdict": undecided(points, margin)})
    p_value = max(less_than_asked, change.p_value)
    mean_before = min(change.baseline or 0.0, least_rate)
    mean_now = min(change.candidate or 0.0, least_rate)
    low = math.hypot(mean_now - min(interval_now.low, least_rate), min(interval_before.high, least_rate) - mean_before)
    high = math.hypot(min(interval_now.high, least_rate) - mean_now, mean_before - min(interval_before.low, least_rate))
    interval = Interval(points - low, points + high)
    update = {
        "interval": interval,
        "interval_note": f"of what is missing to the {of_ten} of 10 messages that are asked for",
        "reason": f"in {_in_ten(change.candidate)} of 10 messages, {_in_ten(change.baseline)} in the baseline; {of_ten} are asked for",
        "p_value": p_value,
        "verdict": _verdict_by_hits(points, interval, p_value, margin),
    }
    return change.model_copy(update=update)


def _in_ten(score: float | None) -> str:
    return f"{10 * (score or 0.0) / HIGHEST:.1f}"


# -- verdicts
def with_verdict(
    change: AnyChange, interval: Interval | None, margin: float, *, n: int | None, baseline_n: int | None = None
) -> AnyChange:
    """Return the change with its interval (of scores cut to ±9) and the verdict, reason and `n_more` that `decide` gives for it.

    Args:
        interval: None: there is none to decide by.
        n: Messages of the candidate; None: no number of messages would decide, so `n_more` is None.
        baseline_n: Messages of a baseline that stays as it is; None: both grow alike, or the difference is paired.
    """
    decision = decide(
        change.delta,
        interval,
        margin,
        n=n,
        baseline_n=baseline_n,
        effective=change.effective,
        baseline_effective=change.baseline_effective,
        unit=change.unit,
    )
    if interval is not None and not change.counted:
        # Means of 0 to 9 differ by 9 at most.
        interval = Interval(max(interval.low, -HIGHEST), min(interval.high, HIGHEST))
    update = {
        "verdict": decision.verdict,
        "reason": decision.reason,
        "n_more": decision.n_more,
        "interval": interval,
    }
    return change.model_copy(update=update)


def undecided_unless_beyond_margin(change: AnyChange, margin: float, noise: str) -> AnyChange:
    """Take a verdict back that is not significantly beyond the margin: two texts always differ a little, and so does a judge from itself.

    Args:
        noise: What may explain a smaller difference, for the reason.
    """
    interval = change.interval
    if interval is None or change.verdict not in ("drifted", "improved"):
        return change
    if interval.low >= margin or interval.high <= -margin:
        return change
    reason = f"beyond {noise}, but not significantly by more than {margin:g}"
    return change.model_copy(update={"verdict": undecided(change.delta, margin), "reason": reason})


def fell_sharply(change: ChangeResult) -> bool:
    """Return whether it fell by at least 3 points, the interval clear of 0, by at least 10 judgements on both sides: enough to alert.

    Judgements that count unequally are as many as equal ones that would tell as much.
    """
    if change.counted or change.delta is None or change.delta > -SHARP_FALL:
        return False
    if change.interval is None or change.interval.high >= 0:
        return False
    judged_now = _judged_on_one_side(change, change.n, change.share) * change.effective
    judged_before = _judged_on_one_side(change, change.baseline_n, change.baseline_share) * change.baseline_effective
    return min(judged_now, judged_before) >= ENOUGH_FOR_SHARP_FALL


def _judged_on_one_side(change: ChangeResult, n: int, share: Share | None) -> int:
    """Return how many judgements a side rests on; where that is not known, how many messages."""
    if share is None or change.of_words:
        return n
    return share.scored


def corrected(
    changes: Sequence[AnyChange], margin: float, kind: str, *, elsewhere: Sequence[float] = ()
) -> list[AnyChange]:
    """Return the changes with verdicts that allow for all that is compared at once (Holm's correction).

    It only ever takes verdicts back, so it may be applied again to more of them. Those without a p value stay as they are.

    Args:
        margin: Half-width of "no change", in points.
        kind: What they are, for the reason: ``dimensions``.
        elsewhere: The p values of other changes that are corrected together with these.
    """
    p_values = [change.p_value for change in changes if change.p_value is not None]
    p_values += elsewhere
    adjusted = dict(zip(p_values, holm(p_values), strict=True))  # equal p values have equal adjusted ones
    among = f"{len(p_values)} {kind}" if len(p_values) > 1 else ""
    results = []
    for change in changes:
        if change.p_value is not None:
            adjusted_p = adjusted[change.p_value]
            change = change.model_copy(update={"p_adjusted": adjusted_p})
            if change.verdict in ("drifted", "improved") and adjusted_p > ALPHA:
                change = _without_verdict(change, adjusted_p, margin, among=among)
        results.append(change)
    return results


def _without_verdict(change: AnyChange, p: float, margin: float, *, among: str) -> AnyChange:
    """Return the change with its significant verdict taken back, because its adjusted p value is too large.

    Args:
        among: With what it was compared at once, e.g. ``4 dimensions``; empty where it was compared alone.
    """
    reason = f"the interval just leaves zero out, a test of the difference does not (p {p:.3g})"
    if among:
        reason = f"significant alone, but not after Holm correction ({among}, p {p:.2g})"
    return change.model_copy(update={"verdict": undecided(change.points, margin), "n_more": None, "reason": reason})
