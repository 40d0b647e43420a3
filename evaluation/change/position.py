"""Does an agent fade within long conversations? The scores of an evaluation by position."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple

from django.db.models import Avg, Count, Max, Q
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from agents.models import Agent
from evaluation.change.change import ChangeResult, decided, mean_of
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.summary import COVERABLE, Share, ShareShown, rounded, total
from evaluation.scorers.subjects import DEFAULT_BINS, Bin, bin_name, bin_of, positions_of, spanning
from evaluation.statistics.bootstrap import (
    HIGHEST,
    Interval,
    IntervalShown,
    Observation,
    bootstrap_difference,
    bootstrap_mean,
)
from evaluation.statistics.difference import MARGIN

STATUSES = ("scored", "trivial", "unscored", "pending")
ENOUGH_CONVERSATIONS = 6  # from here on whole conversations are resampled, and the result holds for others, too


class PositionBin(BaseModel):
    """One stretch of positions (as it was asked for, e.g. ``6-15``): the mean over its scored judgements, with its interval.

    Attributes:
        note: Why `interval`, or `score`, is None.
        messages: Judged messages; `conversations` they come from.
        scored, trivial, unscored, pending: Judgements by status; `share` counts repeats once.
    """

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    score: Annotated[float | None, PlainSerializer(rounded)]
    interval: IntervalShown
    note: str = Field("", exclude_if=lambda note: not note)
    positions: str
    share: ShareShown = Field(serialization_alias="coverage")
    messages: int
    conversations: int
    scored: int
    trivial: int
    unscored: int
    pending: int


class PositionChange(ChangeResult):
    """The last stretch with scores against the first; negative: it fades.

    Attributes:
        first, last: Names of the stretches; empty when fewer than two have scores.
        conversations: How many the difference rests on.
    """

    first: str = ""
    last: str = ""
    conversations: int = 0


class PositionDimension(BaseModel):
    """One dimension by position: a bin per stretch asked for, and the change inside the conversations that reach both ends."""

    dimension: str = Field(exclude=True)
    bins: tuple[PositionBin, ...]
    within: PositionChange


class PositionProfile(BaseModel):
    """An evaluation by position. Dumped it is what ``--json`` prints.

    Attributes:
        dimensions: Those that are judged message by message.
        not_by_position: The run's other dimensions, which have no position.
        left_out: Judged messages that lie in no stretch, or were deleted since.
    """

    agent: str
    evaluation_run: int
    judge: str
    procedure: str
    dimensions: dict[str, PositionDimension]
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
    """A run's scores by position. Fading is measured within conversations that reach both ends: long ones may differ from the start.

    Args:
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
    dimensions, left_out = {}, 0
    for name in (d for d in BY_ONE_MESSAGE if d in run.dimensions):
        judged, out = _judged(run, run.agent, name, wanted)
        rows = [_bin(bin_, [j for j in judged if j.place == place]) for place, bin_ in enumerate(wanted)]
        dimensions[name] = PositionDimension(dimension=name, bins=tuple(rows), within=_change(wanted, judged, margin))
        left_out += out
    return PositionProfile(
        agent=run.agent.slug,
        evaluation_run=run.pk,
        judge=run.judge,
        procedure=run.procedure,
        dimensions=dimensions,
        not_by_position=tuple(d for d in run.dimensions if d not in BY_ONE_MESSAGE),
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
    measured = {row["message_id"] for row in rows}
    positions = positions_of(measured, agent=agent, simulated=run.simulated, where=run.where)
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


def _bin(bin_: Bin, judged: Sequence[_Judged]) -> PositionBin:
    """The mean of these scores, with an interval that stays on the scale of 0 to 9."""
    estimate = bootstrap_mean(_observations(judged))
    interval = estimate.interval
    if interval is not None:
        interval = Interval(*(min(max(end, 0.0), HIGHEST) for end in (interval.low, interval.high)))
    return PositionBin(
        score=estimate.value,
        interval=interval,
        note=estimate.reason,
        positions=bin_name(bin_),
        share=total(j.share for j in judged),
        messages=len({j.message for j in judged}),
        conversations=len({j.channel for j in judged}),
        **{status: sum(j.counts[status] for j in judged) for status in STATUSES},
    )


def _observations(judged: Iterable[_Judged], *, by_conversation: bool = False) -> list[Observation]:
    """Scores that know their message, drawn within their conversation; or those of a conversation drawn together."""
    scored = [j for j in judged if j.value is not None]
    if by_conversation:
        return [Observation(j.value or 0.0, j.weight, j.channel) for j in scored]
    return [Observation(j.value or 0.0, j.weight, j.message, j.channel) for j in scored]


def _change(bins: Sequence[Bin], judged: Sequence[_Judged], margin: float) -> PositionChange:
    """The difference between the first and the last stretch with scores, inside the conversations that have scores in both."""
    scored = [j for j in judged if j.value is not None]
    counts = Counter((j.channel, j.place) for j in scored)
    places = sorted({place for _, place in counts})
    if len(places) < 2:
        why = "fewer than two stretches have scores"
        nothing = PositionChange(baseline=None, candidate=None, interval_note=why, verdict="not enough data")
        return decided(nothing, None, margin, n=None)
    same = spanning(counts)
    inside = [j for j in scored if j.channel in same]
    # Each conversation weighs the same in each stretch.
    totals: dict[tuple[int, int], float] = defaultdict(float)
    for j in inside:
        totals[j.channel, j.place] += j.weight
    equally = [j._replace(weight=j.weight / totals[j.channel, j.place]) for j in inside if j.weight]
    together = len(same) >= ENOUGH_CONVERSATIONS
    ends = (places[0], places[-1])
    before, now = (_observations((j for j in equally if j.place == end), by_conversation=together) for end in ends)
    delta = bootstrap_difference(before, now, paired=together)
    change = PositionChange(
        baseline=mean_of(before),
        candidate=mean_of(now),
        interval_note=delta.reason if same else "no conversation has scores in both stretches",
        verdict="not enough data",
        n=delta.n,
        paired=together,
        first=bin_name(bins[ends[0]]),
        last=bin_name(bins[ends[1]]),
        conversations=len(same),
    )
    return decided(change, delta.interval, margin, n=delta.n or None)
