"""Does an agent fade within long conversations? Samples drawn evenly by position, and message scores told apart by it.

A position is where a message stands in its conversation: its rank among the agent's own messages there, from 1.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db.models import Avg, Count, F, Max, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from agents.models import Agent, Message
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.coverage import COVERABLE, NOTHING, Share, total
from evaluation.scorers.windows import MessageWindow, spoken_by
from evaluation.statistics.agreement import spearman
from evaluation.statistics.bootstrap import Observation, bootstrap_difference, bootstrap_mean
from evaluation.statistics.difference import MARGIN, Decision, decide
from evaluation.statistics.estimates import Estimate, Interval

Bin = tuple[int, int | None]  # first and last position, from 1; None = no end

DEFAULT_BINS = "1-5,6-15,16-30,31+"
MOST_BINS = 12
ALLOWED_BINS = f"up to {MOST_BINS} stretches of positions, rising and apart, such as {DEFAULT_BINS}"
BY_POSITION = ("adherence",)  # judged message by message; the others judge a window, a pair or a channel as a whole
HIGHEST = 9.0
STATUSES = ("scored", "trivial", "unscored", "pending")
ENOUGH_CONVERSATIONS = 6  # from here on whole conversations are resampled, and the result holds for others, too
_BIN = re.compile(r"(\d{1,6})(?:-(\d{1,6})|(\+))?")


# -- stretches of positions
def parse_bins(text: str) -> tuple[Bin, ...]:
    """Read stretches of positions as people write them: ``1-5,6-15,16+``; a single number is a stretch of one position.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    bins: list[Bin] = []
    for part in (piece.strip() for piece in text.split(",")):
        match = _BIN.fullmatch(part)
        if match is None:
            raise ValueError(f"bins {text!r}: {part!r} is not understood; allowed: {ALLOWED_BINS}")
        first, last, open_end = match.groups()
        bins.append((int(first), None if open_end else int(last or first)))
    check_bins(bins)
    return tuple(bins)


def check_bins(bins: Sequence[Bin]) -> None:
    """Refuse stretches that do not rise, overlap, or have no position.

    Raises:
        ValueError: Names the stretch and what is allowed.
    """
    if len(bins) > MOST_BINS:
        raise ValueError(f"{len(bins)} bins; allowed: {ALLOWED_BINS}")
    before: int | None = 0
    for bin_ in bins:
        first, last = bin_
        if before is None or first <= before or (last is not None and last < first):
            raise ValueError(f"bin {bin_name(bin_)} of {', '.join(map(bin_name, bins))}; allowed: {ALLOWED_BINS}")
        before = last


def bin_name(bin_: Bin) -> str:
    """As `parse_bins` reads it."""
    first, last = bin_
    return f"{first}+" if last is None else str(first) if first == last else f"{first}-{last}"


def bin_of(position: int, bins: Sequence[Bin]) -> int | None:
    """The index of the stretch a position lies in; None for one between or after them."""
    within = (i for i, (first, last) in enumerate(bins) if position >= first and (last is None or position <= last))
    return next(within, None)


def numbered(*, agent: Agent, simulated: bool = False) -> Any:
    """Everything the agent said, as messages, each with its position as `own_position`; channel by channel, each in its order."""
    own = Window(RowNumber(), partition_by=F("channel_id"), order_by=F("position").asc())
    said = spoken_by(agent=agent, window=MessageWindow(), simulated=simulated)
    return said.annotate(own_position=own).order_by("channel_id", "position")


def positions_of(messages: Collection[int], *, agent: Agent, simulated: bool = False) -> dict[int, tuple[int, int]]:
    """Channel and position of some of the agent's messages, by primary key; those that are gone are left out."""
    wanted = set(messages)
    channels = Message.objects.filter(pk__in=wanted).values("channel_id")
    rows = numbered(agent=agent, simulated=simulated).filter(channel_id__in=channels)
    found = rows.values_list("pk", "channel_id", "own_position").iterator()
    return {pk: (channel, position) for pk, channel, position in found if pk in wanted}


# -- samples
def sample_by_position(
    *,
    agent: Agent,
    eligible: QuerySet[Message],
    bins: Sequence[Bin],
    samples: int,
    seed: int,
    simulated: bool = False,
) -> list[int]:
    """Ids of up to `samples` messages, as many from each stretch; what a short one leaves goes to the others.

    Later positions come from long conversations only. So conversations that reach from the first to the last stretch with messages are
    drawn from before the others, and each stretch takes one message after the other from them in the same order: early and late
    positions then stand for the same conversations. Drawn with the seed; two passes over the agent's messages, of which only counts per
    conversation and stretch are kept.

    Args:
        agent: Who spoke.
        eligible: Its messages that may be drawn.
        bins: The stretches.
        samples: Most messages, at least 1.
        seed: Equal seeds draw equal samples.
        simulated: Whether `eligible` is simulated speech.
    """
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    counts = Counter((channel, place) for _, channel, place in _in_bins(agent, eligible, bins, simulated))
    sizes: Counter[int] = Counter()
    for (_, place), count in counts.items():
        sizes[place] += count
    channels = sorted({channel for channel, _ in counts})
    rng.shuffle(channels)
    whole = spanning(counts)
    picked: dict[tuple[int, int], list[int]] = {}
    for place, share in sorted(_shares(sizes, samples).items()):
        first = _one_by_one([c for c in channels if c in whole], place, counts, share)
        then = _one_by_one([c for c in channels if c not in whole], place, counts, share - sum(first.values()))
        for channel, number in {**first, **then}.items():
            picked[channel, place] = sorted(rng.sample(range(counts[channel, place]), number), reverse=True)
    ids: list[int] = []
    seen: Counter[tuple[int, int]] = Counter()
    for pk, channel, place in _in_bins(agent, eligible, bins, simulated):
        left = picked.get((channel, place))
        if left and left[-1] == seen[channel, place]:
            left.pop()
            ids.append(pk)
        seen[channel, place] += 1
    return ids


def spanning(counts: Mapping[tuple[int, int], int]) -> set[int]:
    """Of (conversation, stretch) → messages, the conversations with messages in the first and in the last stretch that has any."""
    places = {place for _, place in counts}
    ends = {min(places), max(places)} if places else set()
    return {channel for channel, _ in counts if all(counts.get((channel, end)) for end in ends)}


def _in_bins(
    agent: Agent, eligible: QuerySet[Message], bins: Sequence[Bin], simulated: bool
) -> Iterator[tuple[int, int, int]]:
    """(message, channel, stretch) of what may be drawn. Positions count everything the agent said there, drawn or not.

    Both are read in the same order and merged: a subquery per message may cost PostgreSQL a scan for each.
    """
    keys = eligible.order_by("channel_id", "position").values_list("channel_id", "position")
    may = keys.iterator(chunk_size=2000)
    next_may = next(may, None)
    rows = numbered(agent=agent, simulated=simulated).values_list("pk", "channel_id", "position", "own_position")
    for pk, channel, position, own_position in rows.iterator(chunk_size=2000):
        while next_may is not None and next_may < (channel, position):
            next_may = next(may, None)
        if next_may is None:
            return
        place = bin_of(own_position, bins) if next_may == (channel, position) else None
        if place is not None:
            yield pk, channel, place


def _shares(sizes: Mapping[int, int], samples: int) -> dict[int, int]:
    """How many to draw from each stretch: equally many, and what one has not goes to the others."""
    shares = dict.fromkeys(sizes, 0)
    while samples and (open_ := [place for place in sorted(sizes) if shares[place] < sizes[place]]):
        each = max(1, samples // len(open_))
        for place in open_[:samples]:
            more = min(each, sizes[place] - shares[place])
            shares[place] += more
            samples -= more
    return shares


def _one_by_one(
    channels: Sequence[int], place: int, counts: Mapping[tuple[int, int], int], share: int
) -> dict[int, int]:
    """How many messages to take from each conversation in a stretch: one from each after the other, until the share is drawn."""
    sizes = {rank: counts[channel, place] for rank, channel in enumerate(channels) if (channel, place) in counts}
    return {channels[rank]: number for rank, number in _shares(sizes, share).items() if number}


# -- scores by position
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
            found.dimension: {
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
                    for row in found.bins
                ],
                "within": _change_json(found.within),
                "overall": _change_json(found.overall),
                "trend": _estimate_json(found.trend, "spearman"),
            }
            for found in profile.dimensions
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


def _estimate_json(found: Estimate, name: str) -> dict[str, Any]:
    interval = found.interval
    return {
        name: None if found.value is None else round(found.value, 4),
        "interval": [round(interval.low, 4), round(interval.high, 4)] if interval else None,
        **({"note": found.reason} if found.reason else {}),
    }
