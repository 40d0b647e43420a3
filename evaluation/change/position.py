"""Does an agent fade within long conversations? The scores of an evaluation by position."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db.models import Avg, Count, Max, Q

from agents.models import Agent
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.summary import COVERABLE, NOTHING, Share, total
from evaluation.scorers.windows import DEFAULT_BINS, Bin, bin_name, bin_of, positions_of, spanning
from evaluation.statistics.agreement import spearman
from evaluation.statistics.bootstrap import Observation, bootstrap_difference, bootstrap_mean
from evaluation.statistics.difference import MARGIN, Decision, decide
from evaluation.statistics.estimates import Estimate, Interval

BY_POSITION = ("adherence",)  # judged message by message; the others judge a window, a pair or a channel as a whole
HIGHEST = 9.0
STATUSES = ("scored", "trivial", "unscored", "pending")
ENOUGH_CONVERSATIONS = 6  # from here on whole conversations are resampled, and the result holds for others, too


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBin:
    """One stretch of positions.

    Attributes:
        name: As it was asked for, e.g. ``6-15``.
        messages: Judged messages; `conversations` they come from.
        counts: Judgements by status (scored, trivial, unscored, pending).
        score: Mean with its interval over the scored judgements; no value when there are none.
        share: How much was scored of what the judge can score; repeats count once.
        same: The mean over the conversations that have scores in the first and in the last stretch.
    """

    name: str
    first: int
    last: int | None
    messages: int
    conversations: int
    counts: Mapping[str, int]
    score: Estimate
    same: Estimate
    share: Share = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionChange:
    """The last stretch with scores against the first.

    Attributes:
        first, last: Names of the stretches; empty when fewer than two have scores.
        delta: Last minus first, in points; negative: it fades.
        decision: The verdict, as of any change.
        conversations: How many the difference rests on.
        resampled: What the interval draws from: ``conversations`` (it holds for others, too) or ``messages`` (of these ones).
    """

    first: str
    last: str
    delta: Estimate
    decision: Decision
    conversations: int
    resampled: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionDimension:
    """One dimension by position.

    Attributes:
        bins: One per stretch asked for, empty ones, too.
        within: The change inside the conversations that reach both ends, each counting once: what fading means.
        overall: The change over all judged messages: also differs when long conversations are others than short ones.
        trend: Spearman's correlation of position and message score in the conversations of `within`, −1 to 1.
    """

    dimension: str
    bins: tuple[PositionBin, ...]
    within: PositionChange
    overall: PositionChange
    trend: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionProfile:
    """An evaluation by position.

    Attributes:
        dimensions: Those that are judged message by message.
        not_by_position: The run's other dimensions, which have no position.
        left_out: Judged messages that lie in no stretch, or were deleted since.
    """

    agent: str
    evaluation_run: int
    judge: str
    procedure: str
    dimensions: tuple[PositionDimension, ...]
    not_by_position: tuple[str, ...]
    left_out: int


class _Judged(NamedTuple):
    """The judgements of one proposition on one message (its repeats together)."""

    place: int
    channel: int
    position: int
    message: int
    weight: float
    value: float | None
    counts: dict[str, int]
    share: Share


def position_profile(run: EvaluationRun, bins: Sequence[Bin] = (), *, margin: float = MARGIN) -> PositionProfile:
    """Tell a run's scores apart by position.

    Fading is measured *within* conversations that reach both ends, each weighing the same: later positions come from long conversations
    only, and those may be others from the start.

    Args:
        run: A run of an agent; best one that was sampled by position (`RunSpec.position_bins`).
        bins: Stretches of positions; default those the run was sampled by.
        margin: A change within ± this many points is none.

    Raises:
        ValueError: The run targets a channel, or there are no stretches.
    """
    if run.agent is None:
        raise ValueError(f"evaluation run {run.pk} targets a channel; positions are an agent's")
    wanted = tuple(bins) or tuple((first, last) for first, last in run.position_bins)
    if not wanted:
        raise ValueError(f"evaluation run {run.pk} was not sampled by position; name the bins, e.g. {DEFAULT_BINS}")
    dimensions, left_out = [], 0
    for name in (d for d in BY_POSITION if d in run.dimensions):
        judged, out = _judged(run, run.agent, name, wanted)
        dimensions.append(_dimension(name, wanted, judged, margin))
        left_out += out
    return PositionProfile(
        agent=run.agent.slug,
        evaluation_run=run.pk,
        judge=run.judge,
        procedure=run.procedure,
        dimensions=tuple(dimensions),
        not_by_position=tuple(d for d in run.dimensions if d not in BY_POSITION),
        left_out=left_out,
    )


def _judged(run: EvaluationRun, agent: Agent, dimension: str, bins: Sequence[Bin]) -> tuple[list[_Judged], int]:
    """What was judged in the stretches, and how many messages lie in none."""
    scores = EvaluationScore.objects.filter(evaluation_run=run, dimension=dimension).order_by()
    rows: list[Any] = list(
        scores.filter(message__isnull=False)
        .values("message_id", "proposition_id")
        .annotate(
            heaviest=Max("weight"),
            mean=Avg("score", filter=Q(status="scored")),
            coverable=Count("pk", filter=COVERABLE),
            **{f"n_{status}": Count("pk", filter=Q(status=status)) for status in STATUSES},
        )
    )
    positions = positions_of({row["message_id"] for row in rows}, agent=agent, simulated=run.simulated)
    judged: list[_Judged] = []
    outside: set[int] = set()
    for row in rows:
        channel, position = positions.get(row["message_id"], (0, 0))
        place = bin_of(position, bins)
        if place is None:
            outside.add(row["message_id"])
            continue
        counts = {status: row[f"n_{status}"] for status in STATUSES}
        share = Share(int(row["mean"] is not None), int(row["coverable"] > 0))
        judged.append(_Judged(place, channel, position, row["message_id"], row["heaviest"], row["mean"], counts, share))
    deleted = scores.filter(message__isnull=True, over_window=False, repeat=1).values("proposition_id")
    return judged, len(outside) + max(deleted.annotate(n=Count("pk")).values_list("n", flat=True), default=0)


def _dimension(name: str, bins: Sequence[Bin], judged: Sequence[_Judged], margin: float) -> PositionDimension:
    scored = [j for j in judged if j.value is not None]
    counts = Counter((j.channel, j.place) for j in scored)
    places = sorted({place for _, place in counts})
    same = spanning(counts) if len(places) > 1 else set()
    ends = [(place, bin_name(bins[place])) for place in (places[0], places[-1])] if len(places) > 1 else []
    inside = [j for j in scored if j.channel in same]
    # Each conversation weighs the same in each stretch.
    totals: dict[tuple[int, int], float] = defaultdict(float)
    for j in inside:
        totals[j.channel, j.place] += j.weight
    equally = [j._replace(weight=j.weight / totals[j.channel, j.place]) for j in inside if j.weight]
    rows = []
    for place, bin_ in enumerate(bins):
        here = [j for j in judged if j.place == place]
        rows.append(
            PositionBin(
                name=bin_name(bin_),
                first=bin_[0],
                last=bin_[1],
                messages=len({j.message for j in here}),
                conversations=len({j.channel for j in here}),
                counts={status: sum(j.counts[status] for j in here) for status in STATUSES},
                score=_possible(bootstrap_mean(_observations(here)), 0.0),
                same=_possible(bootstrap_mean(_observations(j for j in here if j.channel in same)), 0.0),
                share=total(j.share for j in here),
            )
        )
    return PositionDimension(
        dimension=name,
        bins=tuple(rows),
        within=_change(ends, equally, len(same), margin),
        overall=_change(ends, scored, 0, margin),
        trend=_trend(inside),
    )


def _possible(estimate: Estimate, lowest: float) -> Estimate:
    """The estimate with an interval of what is possible: scores lie between 0 and 9, their differences between -9 and 9."""
    interval = estimate.interval
    if interval is None:
        return estimate
    low, high = (min(max(end, lowest), HIGHEST) for end in (interval.low, interval.high))
    return replace(estimate, interval=Interval(low, high, interval.level))


def _observations(judged: Iterable[_Judged]) -> list[Observation]:
    """Scores that know their message, drawn within their conversation."""
    return [Observation(j.value, j.weight, j.message, j.channel) for j in judged if j.value is not None]


def _change(
    ends: Sequence[tuple[int, str]], judged: Sequence[_Judged], conversations: int, margin: float
) -> PositionChange:
    """The difference between the ends; of `conversations` that have both, or (0) of all there are."""
    if not ends:
        nothing = Estimate(None, None, 0, "fewer than two stretches have scores")
        return PositionChange(
            first="", last="", delta=nothing, decision=decide(None, None, margin), conversations=0, resampled=""
        )
    first, last = ([j for j in judged if j.place == place] for place, _ in ends)
    together = conversations >= ENOUGH_CONVERSATIONS
    samples = [_observations(rows) for rows in (first, last)]
    if together:
        samples = [[Observation(o.value, o.weight, o.stratum) for o in rows] for rows in samples]
    delta = bootstrap_difference(*samples, paired=together)
    if delta.value is None:
        delta = Estimate(None, None, 0, "no conversation has scores in both stretches")
    return PositionChange(
        first=ends[0][1],
        last=ends[1][1],
        delta=_possible(delta, -HIGHEST),
        decision=decide(delta.value, delta.interval, margin, n=delta.n or None),
        conversations=conversations or len({j.channel for j in (*first, *last)}),
        resampled="conversations" if together else "messages",
    )


def _trend(judged: Sequence[_Judged]) -> Estimate:
    """How message scores go with positions: of each message the mean of its propositions."""
    sums: dict[int, list[float]] = {}
    for j in judged:
        entry = sums.setdefault(j.message, [j.position, 0.0, 0.0])
        entry[1] += j.weight * (j.value or 0.0)
        entry[2] += j.weight
    points = [(position, points / weight) for position, points, weight in sums.values() if weight]
    if len(points) < 3:
        return Estimate(None, None, len(points), "fewer than three messages")
    return spearman([position for position, _ in points], [score for _, score in points])


# -- JSON
def position_json(profile: PositionProfile) -> dict[str, Any]:
    """The profile as the object ``--json`` prints: per dimension the stretches, and the change `within` conversations and `overall`."""
    return {
        "agent": profile.agent,
        "evaluation_run": profile.evaluation_run,
        "judge": profile.judge,
        "procedure": profile.procedure,
        "dimensions": {
            dimension.dimension: {
                "bins": [
                    {
                        "positions": row.name,
                        "first": row.first,
                        "last": row.last,
                        **_estimate_json(row.score, "score"),
                        "coverage": row.share.rounded,
                        "same_conversations": _estimate_json(row.same, "score"),
                        "messages": row.messages,
                        "conversations": row.conversations,
                        **row.counts,
                    }
                    for row in dimension.bins
                ],
                "within": _change_json(dimension.within),
                "overall": _change_json(dimension.overall),
                "trend": _estimate_json(dimension.trend, "spearman"),
            }
            for dimension in profile.dimensions
        },
        "not_by_position": list(profile.not_by_position),
        "left_out": profile.left_out,
    }


def _change_json(change: PositionChange) -> dict[str, Any]:
    return {
        "first": change.first,
        "last": change.last,
        **_estimate_json(change.delta, "delta"),
        "verdict": change.decision.verdict,
        "reason": change.decision.reason,
        "n_more": change.decision.n_more,
        "conversations": change.conversations,
        "resampled": change.resampled,
    }


def _estimate_json(estimate: Estimate, name: str) -> dict[str, Any]:
    interval = estimate.interval
    return {
        name: None if estimate.value is None else round(estimate.value, 4),
        "interval": [round(interval.low, 4), round(interval.high, 4)] if interval else None,
        **({"note": estimate.reason} if estimate.reason else {}),
    }
