"""Drift by turn: does an agent fade within long conversations? A run's message scores, told apart by the turn they were said in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from django.db.models import Avg, Count, Max, Q

from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.coverage import COVERABLE, Share, total
from evaluation.statistics.agreement import spearman
from evaluation.statistics.bootstrap import Observation, bootstrap_difference, bootstrap_mean
from evaluation.statistics.difference import MARGIN, verdict
from evaluation.statistics.estimates import Estimate, Interval
from evaluation.turn_tables import turn_json, turn_table
from evaluation.turn_values import TurnBin, TurnChange, TurnDimension, TurnProfile
from evaluation.turns import DEFAULT_BINS, Bin, bin_name, bin_of, parse_bins, spanning, turns_of

__all__ = [
    "BY_TURN",
    "DEFAULT_BINS",
    "TurnBin",
    "TurnChange",
    "TurnDimension",
    "TurnProfile",
    "parse_bins",
    "turn_json",
    "turn_profile",
    "turn_table",
]

BY_TURN = ("adherence",)  # judged message by message; the others judge a window, a pair or a channel as a whole
HIGHEST = 9.0
STATUSES = ("scored", "trivial", "unscored", "pending")
ENOUGH_CONVERSATIONS = 6  # from here on whole conversations are resampled, and what is found speaks of others, too


class _Judged(NamedTuple):
    """The judgements of one proposition on one message (its repeats together)."""

    place: int
    channel: int
    turn: int
    message: int
    weight: float
    value: float | None
    counts: dict[str, int]
    share: Share


def turn_profile(run: EvaluationRun, bins: Sequence[Bin] = (), *, margin: float = MARGIN) -> TurnProfile:
    """Tell a run's scores apart by turn.

    A turn is a message's rank among the agent's own messages in its channel. Fading is measured *within* conversations that reach both
    ends, each weighing the same: later turns come from long conversations only, and those may be others from the start.

    Args:
        run: A run of an agent; best one that was sampled by turn (`RunSpec.turn_bins`).
        bins: Stretches of turns; default those the run was sampled by.
        margin: A change within ± this many points is none.

    Raises:
        ValueError: The run targets a channel, or there are no stretches.
    """
    if run.agent is None:
        raise ValueError(f"evaluation run {run.pk} targets a channel; turns are an agent's")
    wanted = tuple(bins) or tuple((first, last) for first, last in run.turn_bins)
    if not wanted:
        raise ValueError(f"evaluation run {run.pk} was not sampled by turn; name the bins, e.g. {DEFAULT_BINS}")
    dimensions, left_out = [], 0
    for name in (d for d in BY_TURN if d in run.dimensions):
        judged, out = _judged(run, name, wanted)
        dimensions.append(_dimension(name, wanted, judged, margin))
        left_out += out
    return TurnProfile(
        agent=run.agent.slug,
        evaluation_run=run.pk,
        judge=run.judge,
        procedure=run.procedure,
        dimensions=tuple(dimensions),
        not_by_turn=tuple(d for d in run.dimensions if d not in BY_TURN),
        left_out=left_out,
    )


def _judged(run: EvaluationRun, dimension: str, bins: Sequence[Bin]) -> tuple[list[_Judged], int]:
    """What was judged in the stretches, and how many messages lie in none."""
    assert run.agent is not None  # noqa: S101 (the caller checked)
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
    turns = turns_of({row["message_id"] for row in rows}, agent=run.agent, simulated=run.simulated)
    found: list[_Judged] = []
    outside: set[int] = set()
    for row in rows:
        channel, turn = turns.get(row["message_id"], (0, 0))
        place = bin_of(turn, bins)
        if place is None:
            outside.add(row["message_id"])
            continue
        counts = {status: row[f"n_{status}"] for status in STATUSES}
        share = Share(int(row["mean"] is not None), int(row["coverable"] > 0))
        found.append(_Judged(place, channel, turn, row["message_id"], row["heaviest"], row["mean"], counts, share))
    deleted = (
        scores.filter(message__isnull=True, over_window=False, repeat=1)
        .values("proposition_id")
        .annotate(n=Count("pk"))
    )
    return found, len(outside) + max((row["n"] for row in deleted), default=0)


def _dimension(name: str, bins: Sequence[Bin], judged: Sequence[_Judged], margin: float) -> TurnDimension:
    scored = [j for j in judged if j.value is not None]
    counts = Counter((j.channel, j.place) for j in scored)
    places = sorted({place for _, place in counts})
    same = spanning(counts) if len(places) > 1 else set()
    ends = (places[0], places[-1]) if len(places) > 1 else None
    names = [bin_name(bin_) for bin_ in bins]
    inside = [j for j in scored if j.channel in same]
    return TurnDimension(
        dimension=name,
        bins=tuple(_bin(place, bin_, judged, same) for place, bin_ in enumerate(bins)),
        within=_change(names, ends, _equally(inside), len(same), margin),
        overall=_change(names, ends, scored, 0, margin),
        trend=_trend(inside),
    )


def _bin(place: int, bin_: Bin, judged: Sequence[_Judged], same: set[int]) -> TurnBin:
    here = [j for j in judged if j.place == place]
    return TurnBin(
        name=bin_name(bin_),
        first=bin_[0],
        last=bin_[1],
        messages=len({j.message for j in here}),
        conversations=len({j.channel for j in here}),
        **{status: sum(j.counts[status] for j in here) for status in STATUSES},
        score=_within(bootstrap_mean(_observations(here)), 0.0),
        same=_within(bootstrap_mean(_observations(j for j in here if j.channel in same)), 0.0),
        share=total(j.share for j in here),
    )


def _within(found: Estimate, lowest: float) -> Estimate:
    """The estimate with an interval of what is possible: scores lie between 0 and 9, their differences between -9 and 9."""
    interval = found.interval
    if interval is None:
        return found
    low, high = (min(max(end, lowest), HIGHEST) for end in (interval.low, interval.high))
    return replace(found, interval=Interval(low, high, interval.level))


def _observations(judged: Iterable[_Judged]) -> list[Observation]:
    """Scores that know their message, drawn within their conversation."""
    return [Observation(j.value, j.weight, j.message, j.channel) for j in judged if j.value is not None]


def _equally(judged: Sequence[_Judged]) -> list[_Judged]:
    """The same scores, weighted so that each conversation weighs the same in each stretch."""
    totals: dict[tuple[int, int], float] = defaultdict(float)
    for j in judged:
        totals[j.channel, j.place] += j.weight
    return [j._replace(weight=j.weight / totals[j.channel, j.place]) for j in judged if j.weight]


def _change(
    names: Sequence[str],
    ends: tuple[int, int] | None,
    judged: Sequence[_Judged],
    conversations: int,
    margin: float,
) -> TurnChange:
    """The difference between the ends; of `conversations` that have both, or (0) of all there are."""
    if ends is None:
        nothing = Estimate(None, None, 0, "fewer than two stretches have scores")
        return TurnChange(
            first="", last="", delta=nothing, decision=verdict(None, None, margin), conversations=0, resampled=""
        )
    first, last = ([j for j in judged if j.place == end] for end in ends)
    together = conversations >= ENOUGH_CONVERSATIONS
    sides = [_observations(side) for side in (first, last)]
    if together:
        sides = [[Observation(o.value, o.weight, o.stratum) for o in side] for side in sides]
    delta = bootstrap_difference(sides[0], sides[1], paired=together)
    if delta.value is None:
        delta = Estimate(None, None, 0, "no conversation has scores in both stretches")
    interval = delta.interval
    return TurnChange(
        first=names[ends[0]],
        last=names[ends[1]],
        delta=_within(delta, -HIGHEST),
        decision=verdict(delta.value, interval, margin, n=delta.n or None),
        conversations=conversations or len({j.channel for j in (*first, *last)}),
        resampled="conversations" if together else "messages",
    )


def _trend(judged: Sequence[_Judged]) -> Estimate:
    """How message scores go with turns: of each message the mean of its propositions."""
    sums: dict[int, list[float]] = {}
    for j in judged:
        entry = sums.setdefault(j.message, [j.turn, 0.0, 0.0])
        entry[1] += j.weight * (j.value or 0.0)
        entry[2] += j.weight
    points = [(turn, total / weight) for turn, total, weight in sums.values() if weight]
    if len(points) < 3:
        return Estimate(None, None, len(points), "fewer than three messages")
    return spearman([turn for turn, _ in points], [score for _, score in points])
