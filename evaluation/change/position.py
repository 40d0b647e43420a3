"""Does an agent fade within long conversations? The scores of an evaluation by position."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from django.db.models import Avg, Count, Max, Q
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from agents.models import Agent
from evaluation.change.change import ChangeResult, mean_of, with_verdict
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.numbers import rounded
from evaluation.runs.shares import COVERABLE, Share, ShareShown, total
from evaluation.scorers.selection import DEFAULT_BINS, Bin, bin_name, bin_of, positions_of, spanning
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _JudgedMessage:
    """The judgements of one proposition on one message, its repeats together.

    Attributes:
        stretch: Number of the stretch that the message lies in.
        weight: Of the proposition × `inclusion_weight`: 1 ÷ the chance with which the conversation was kept.
        score: The mean of the repeats; None where none was scored.
        counts: Judgements by status.
    """

    stretch: int
    channel: int
    message: int
    weight: float
    inclusion_weight: float
    score: float | None
    counts: dict[str, int]
    share: Share


def position_profile(run: EvaluationRun, bins: Sequence[Bin] = (), *, margin: float = MARGIN) -> PositionProfile:
    """Return a run's scores by position. Fading is measured within conversations that reach both ends: long ones may differ from the start.

    Args:
        bins: Stretches of positions; default those the run was sampled by.
        margin: A change within ± this many points is none.

    Raises:
        ValueError: The run targets a channel, or there are no stretches.
    """
    if run.agent is None:
        raise ValueError(f"evaluation run {run.pk} targets a channel; positions are an agent's")
    stretches = tuple(bins) or tuple((first, last) for first, last in run.position_bins)
    if not stretches:
        raise ValueError(f"evaluation run {run.pk} was not sampled by position; name the bins, e.g. {DEFAULT_BINS}")
    dimensions: dict[str, PositionDimension] = {}
    not_by_position = []
    left_out = 0
    for name in run.dimensions:
        if name not in BY_ONE_MESSAGE:
            not_by_position.append(name)
    for name in BY_ONE_MESSAGE:
        if name in run.dimensions:
            messages, outside = _judged_messages(run, run.agent, name, stretches)
            dimensions[name] = _dimension(name, stretches, messages, margin)
            left_out += outside
    return PositionProfile(
        agent=run.agent.slug,
        evaluation_run=run.pk,
        judge=run.judge,
        procedure=run.procedure,
        dimensions=dimensions,
        not_by_position=tuple(not_by_position),
        left_out=left_out,
    )


def _judged_messages(
    run: EvaluationRun, agent: Agent, dimension: str, bins: Sequence[Bin]
) -> tuple[list[_JudgedMessage], int]:
    """Return what was judged in the stretches, and how many messages lie in none or were deleted since."""
    # A rule with `of_ten` need not hold in each message.
    scores = EvaluationScore.objects.filter(evaluation_run=run, dimension=dimension, of_ten=None).order_by()
    counts = {f"n_{status}": Count("pk", filter=Q(status=status)) for status in STATUSES}
    rows: list[Any] = list(
        scores.filter(message__isnull=False)
        .values("message_id", "proposition_id")
        .annotate(
            heaviest=Max("weight"),
            inclusion=Max("inclusion_weight"),
            mean=Avg("score", filter=Q(status="scored")),
            coverable=Count("pk", filter=COVERABLE),
            **counts,
        )
    )
    measured = {row["message_id"] for row in rows}
    positions = positions_of(measured, agent=agent, simulated=run.simulated, where=run.where)
    messages: list[_JudgedMessage] = []
    outside: set[int] = set()
    for row in rows:
        channel, position = positions.get(row["message_id"], (0, 0))  # gone: 0 is in no stretch
        stretch = bin_of(position, bins)
        if stretch is None:
            outside.add(row["message_id"])
            continue
        message = _JudgedMessage(
            stretch=stretch,
            channel=channel,
            message=row["message_id"],
            weight=row["heaviest"] * row["inclusion"],
            inclusion_weight=row["inclusion"],
            score=row["mean"],
            counts={status: row[f"n_{status}"] for status in STATUSES},
            share=Share(int(row["mean"] is not None), int(row["coverable"] > 0)),
        )
        messages.append(message)
    deleted = scores.filter(message__isnull=True, over_window=False, repeat=1).values("proposition_id")
    # A message is asked each proposition, so the proposition with most rows has one of each deleted message.
    most_deleted = max(deleted.annotate(n=Count("pk")).values_list("n", flat=True), default=0)
    return messages, len(outside) + most_deleted


def _dimension(name: str, bins: Sequence[Bin], messages: Sequence[_JudgedMessage], margin: float) -> PositionDimension:
    """Return a dimension by position."""
    by_stretch: dict[int, list[_JudgedMessage]] = defaultdict(list)
    for message in messages:
        by_stretch[message.stretch].append(message)
    rows = [_position_bin(bounds, by_stretch[stretch]) for stretch, bounds in enumerate(bins)]
    return PositionDimension(dimension=name, bins=tuple(rows), within=_change_within(bins, messages, margin))


def _position_bin(bounds: Bin, messages: Sequence[_JudgedMessage]) -> PositionBin:
    """Return the mean of these scores, with an interval that stays on the scale of 0 to 9."""
    # Of conversations that were kept by chance whole ones were drawn.
    is_sampled = any(message.inclusion_weight != 1 for message in messages)
    drawn = _drawn_by_conversation if is_sampled else _drawn_by_message
    estimate = bootstrap_mean(drawn(messages))
    interval = estimate.interval
    if interval is not None:
        interval = Interval(_on_scale(interval.low), _on_scale(interval.high))
    counts: Counter[str] = Counter()
    for message in messages:
        counts.update(message.counts)
    return PositionBin(
        score=estimate.value,
        interval=interval,
        note=estimate.reason,
        positions=bin_name(bounds),
        share=total(message.share for message in messages),
        messages=len({message.message for message in messages}),
        conversations=len({message.channel for message in messages}),
        scored=counts["scored"],
        trivial=counts["trivial"],
        unscored=counts["unscored"],
        pending=counts["pending"],
    )


def _on_scale(score: float) -> float:
    return min(max(score, 0.0), HIGHEST)


def _drawn_by_message(messages: Iterable[_JudgedMessage]) -> list[Observation]:
    """Return the scores as observations that are drawn by message, within their conversation."""
    observations = []
    for message in messages:
        if message.score is not None:
            observations.append(Observation(message.score, message.weight, message.message, message.channel))
    return observations


def _drawn_by_conversation(messages: Iterable[_JudgedMessage]) -> list[Observation]:
    """Return the scores as observations of which those of a conversation are drawn together."""
    observations = []
    for message in messages:
        if message.score is not None:
            observations.append(Observation(message.score, message.weight, message.channel))
    return observations


def _change_within(bins: Sequence[Bin], messages: Sequence[_JudgedMessage], margin: float) -> PositionChange:
    """Return the difference between the first and the last stretch with scores, inside the conversations that have scores in both.

    From six conversations on each is compared with itself; of fewer the messages are drawn, and the result holds for these alone.
    """
    scored = [message for message in messages if message.score is not None]
    scored_by_stretch = Counter((message.channel, message.stretch) for message in scored)
    stretches = sorted({message.stretch for message in scored})
    if len(stretches) < 2:
        why = "fewer than two stretches have scores"
        nothing = PositionChange(baseline=None, candidate=None, interval_note=why, verdict="not enough data")
        return with_verdict(nothing, None, margin, n=None)
    first = stretches[0]
    last = stretches[-1]
    conversations = spanning(scored_by_stretch)  # those with scores in the first and in the last stretch
    inside = _weighted_equally([message for message in scored if message.channel in conversations])
    is_by_conversation = len(conversations) >= ENOUGH_CONVERSATIONS
    drawn = _drawn_by_conversation if is_by_conversation else _drawn_by_message
    before = drawn(message for message in inside if message.stretch == first)
    now = drawn(message for message in inside if message.stretch == last)
    difference = bootstrap_difference(before, now, paired=is_by_conversation)
    change = PositionChange(
        baseline=mean_of(before),
        candidate=mean_of(now),
        interval_note=difference.reason if conversations else "no conversation has scores in both stretches",
        verdict="not enough data",
        n=difference.n,
        paired=is_by_conversation,
        first=bin_name(bins[first]),
        last=bin_name(bins[last]),
        conversations=len(conversations),
    )
    return with_verdict(change, difference.interval, margin, n=difference.n or None)


def _weighted_equally(messages: Sequence[_JudgedMessage]) -> list[_JudgedMessage]:
    """Return the messages with weights by which each conversation weighs the same in each stretch; those of weight 0 are left out.

    One that was kept by chance weighs as its inclusion weight says.
    """
    totals: dict[tuple[int, int], float] = defaultdict(float)
    for message in messages:
        totals[message.channel, message.stretch] += message.weight
    weighted = []
    for message in messages:
        if message.weight:
            share = message.weight / totals[message.channel, message.stretch]
            weighted.append(replace(message, weight=share * message.inclusion_weight))
    return weighted
