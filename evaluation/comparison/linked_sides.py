"""An agent's side in the dimensions that are measured of whole channels: each of its channels is one observation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.db.models import Case, When

from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.coverage import COVERABLE, NOTHING, Share
from evaluation.runs.summary import WITHOUT_SCORE
from evaluation.statistics.bootstrap import Observation


@dataclass(slots=True)
class LinkedPart:
    """One dimension in one channel.

    Attributes:
        messages: The agent's there: the channel's weight.
        scores: Per proposition (repeat, score, weight) of each scored judgement.
        counts: Per proposition the count of each repeat.
        shares: Per proposition how much was scored of what the judge can score.
    """

    run: EvaluationRun
    channel: str
    dimension: str
    messages: int
    scores: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)
    counts: dict[str, dict[int, int]] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)
    judged: int = 0
    unscored: int = 0


def linked_parts(run: EvaluationRun, dimensions: Iterable[str]) -> list[LinkedPart]:
    """The agent's channels per dimension, from the runs that are not failed: two queries."""
    shares = list(
        run.channel_shares.select_related("channel_run__channel").exclude(channel_run__status__in=WITHOUT_SCORE)
    )
    parts = {
        (share.channel_run_id, dimension): LinkedPart(
            share.channel_run,
            share.channel_run.channel.slug if share.channel_run.channel else "",
            dimension,
            share.messages,
        )
        for share in shares
        for dimension in dimensions
    }
    rows = EvaluationScore.objects.filter(
        evaluation_run__in=[share.channel_run_id for share in shares], dimension__in=list(dimensions)
    )
    fields = (
        "evaluation_run",
        "dimension",
        "proposition_id",
        "repeat",
        "status",
        "score",
        "count",
        "weight",
        "coverable",
    )
    rows = rows.annotate(coverable=Case(When(COVERABLE, then=True), default=False))
    for pk, dimension, proposition, repeat, status, score, count, weight, coverable in rows.order_by("pk").values_list(
        *fields
    ):
        part = parts[pk, dimension]
        part.judged += status != "pending"
        part.unscored += status == "unscored"
        if repeat == 1:
            share = Share(int(status == "scored"), int(coverable))
            part.shares[proposition] = part.shares.get(proposition, NOTHING) + share
        scores, counts = part.scores.setdefault(proposition, []), part.counts.setdefault(proposition, {})
        if status == "scored" and count is not None:
            counts[repeat] = count
        elif status == "scored" and score is not None:
            scores.append((repeat, score, weight))
    return list(parts.values())


def linked_observations(parts: Sequence[LinkedPart]) -> dict[str, list[Observation]]:
    """One dimension's observations over its channels; with one channel alone, over the repeats of its judgement.

    A channel's propositions share out the weight of the agent's messages there, so that the weighted mean of the observations is
    the mean of the channels' scores weighted by messages. A count is summed over the channels, repeat by repeat.
    """
    counted = [part for part in parts if any(part.counts.values())]
    if counted:
        return _counts(counted)
    found: dict[str, list[Observation]] = {name: [] for part in parts for name in part.scores}
    scored = [part for part in parts if any(part.scores.values())]
    for part in scored:
        total = sum(rows[0][2] for rows in part.scores.values() if rows)
        for proposition, rows in part.scores.items():
            if not rows:
                continue
            weight = part.messages * rows[0][2] / total
            if len(scored) == 1:
                found[proposition] += repeats_of_one(rows)
            else:
                mean = sum(score for _, score, _ in rows) / len(rows)
                found[proposition].append(Observation(mean, weight, f"channel:{part.channel}"))
    return found


def repeats_of_one(rows: Sequence[tuple[int, int, float]]) -> list[Observation]:
    """The repeated judgements (repeat, score, weight) of one window; they share one weight, so that their mean counts once."""
    return [Observation(float(score), weight / len(rows), f"repeat:{repeat}") for repeat, score, weight in rows]


def _counts(parts: Sequence[LinkedPart]) -> dict[str, list[Observation]]:
    """Per repeat the sum over the channels; repeats that lack a channel are left out."""
    found = {}
    for proposition in dict.fromkeys(name for part in parts for name in part.counts):
        by_channel = [part.counts[proposition] for part in parts if part.counts.get(proposition)]
        whole = sorted(set.intersection(*(set(by) for by in by_channel))) if by_channel else []
        found[proposition] = [
            Observation(float(sum(by[repeat] for by in by_channel)), 1.0, f"repeat:{repeat}") for repeat in whole
        ]
    return found
