"""What a run found, computed from its scores and from the ledger: weighted means over *scored* judgements only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

from django.db.models import Count, Max, Q, Sum
from django.db.models.functions import Coalesce

from agents.llm import ledger
from evaluation.coverage import COVERABLE, MESSAGES, NOTHING, Share, total, why_too_little
from evaluation.failures import unanswered
from evaluation.linked import linked_dimension
from evaluation.models import COUNTED, ChannelShare, EvaluationRun, EvaluationScore
from evaluation.repeats import repeated_rows
from evaluation.summary_values import ChannelScore, DimensionSummary, PropositionSummary, RunSummary, rounded
from evaluation.verdicts import RULE_JUDGE

__all__ = [
    "ChannelScore",
    "DimensionSummary",
    "PropositionSummary",
    "RunSummary",
    "by_tag",
    "dimension_summaries",
    "empty_dimension",
    "overall",
    "shares_by_tag",
    "summarize",
    "worst_judgement",
]

WITHOUT_SCORE = (
    EvaluationRun.Status.FAILED,
    EvaluationRun.Status.ERRORED,
    EvaluationRun.Status.CANCELLED,
)  # what they have is partial


def dimension_summaries(scores: Iterable[Mapping[str, Any]]) -> dict[str, DimensionSummary]:
    """Dimensions from rows of (dimension, proposition_id, weight, inverted, total, scored, trivial, unscored, pending, asked, of_messages).

    `asked` judgements could be scored by this judge, `of_messages` were made message by message. With repeats a row also has `items`
    (scored items, `total` being the sum of their means), `hits` (items scored or counted), `squares` and `freedom` (for the noise); a
    counted one has `count`.
    """
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for row in scores:
        grouped.setdefault(str(row["dimension"]), []).append(row)
    return {dimension: _dimension(dimension, rows) for dimension, rows in sorted(grouped.items())}


def _dimension(dimension: str, rows: list[Mapping[str, Any]]) -> DimensionSummary:
    propositions = []
    by_message: list[Share] = []
    weighted = weights = 0.0
    for row in sorted(rows, key=lambda r: str(r["proposition_id"])):
        items, points, weight = row.get("items", row["scored"]), float(row["total"]), float(row["weight"])
        count = row.get("count")
        share = Share(row.get("hits", row["scored"]), row["asked"])
        if row["of_messages"]:
            by_message.append(share)
        if count is None:
            weighted += weight * points
            weights += weight * items
        propositions.append(
            PropositionSummary(
                id=str(row["proposition_id"]),
                score=rounded(points / items) if items and count is None else None,
                weight=weight,
                inverted=bool(row["inverted"]),
                scored=row["scored"],
                trivial=row["trivial"],
                unscored=row["unscored"],
                pending=row["pending"],
                count=count,
                share=share,
            )
        )
    reason = why_too_little(total(by_message))
    counts = [p.count for p in propositions if p.count is not None]
    freedom = sum(row.get("freedom", 0) for row in rows)
    return DimensionSummary(
        dimension=dimension,
        score=rounded(weighted / weights) if weights and not reason else None,
        scored=sum(p.scored for p in propositions),
        trivial=sum(p.trivial for p in propositions),
        unscored=sum(p.unscored for p in propositions),
        pending=sum(p.pending for p in propositions),
        propositions=tuple(propositions),
        count=sum(counts) if counts else None,
        noise=rounded(sqrt(sum(row.get("squares", 0.0) for row in rows) / freedom)) if freedom else None,
        share=total(p.share for p in propositions),
        reason=reason,
    )


def empty_dimension(dimension: str) -> DimensionSummary:
    """A dimension for which nothing was judged."""
    return DimensionSummary(
        dimension=dimension, score=None, scored=0, trivial=0, unscored=0, pending=0, propositions=()
    )


def overall(dimensions: Iterable[DimensionSummary]) -> float | None:
    """Mean of the dimensions that have a score of 0 to 9; None when none has, or one fell short of what a score needs."""
    dimensions = list(dimensions)
    if any(d.fell_short for d in dimensions):
        return None
    scores = [d.score for d in dimensions if d.score is not None and d.dimension not in COUNTED]
    return rounded(sum(scores) / len(scores)) if scores else None


def summarize(run: EvaluationRun) -> RunSummary:
    """The numbers of one run, in two queries; more for repeats and for the channels of an agent's run."""
    return summarize_all([run])[0]


def summarize_all(runs: Sequence[EvaluationRun]) -> list[RunSummary]:
    """The numbers of several runs, in their order, in as many queries as for one."""
    rows, used = _rows(runs), ledger.totals_of_work([run.work_id for run in runs])
    silent = unanswered([run for run in runs if any(row["unscored"] for row in rows[run.pk])])
    linked = linked_dimensions([run for run in runs if set(run.dimensions) - set(run.own_dimensions)])
    return [
        _summary(
            run,
            {**_answered(run, dimension_summaries(rows[run.pk]), silent), **linked.get(run.pk, {})},
            used[run.work_id],
        )
        for run in runs
    ]


def _answered(
    run: EvaluationRun, found: dict[str, DimensionSummary], silent: set[tuple[int, str]]
) -> dict[str, DimensionSummary]:
    """The dimensions, without a score where the judge answered nothing: the rest is of exact rules, and not the judge's."""
    return {name: replace(d, score=None) if (run.pk, name) in silent else d for name, d in found.items()}


def _summary(run: EvaluationRun, dimensions: dict[str, DimensionSummary], used: ledger.Totals) -> RunSummary:
    return RunSummary(
        run=run,
        overall_score=None if run.status in WITHOUT_SCORE else overall(dimensions.values()),
        dimensions=dimensions,
        calls=used.calls,
        tokens=used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens,
        cost_usd=used.cost_usd if used.unpriced < used.calls or not used.calls else None,
        unpriced_calls=used.unpriced,
        input_tokens=used.input_tokens + used.cache_read_tokens + used.cache_write_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
    )


def _rows(runs: Sequence[EvaluationRun]) -> dict[int, list[dict[str, Any]]]:
    """Rows for `dimension_summaries`, by run; of all runs without repeats in one query."""
    found: dict[int, list[dict[str, Any]]] = {run.pk: repeated_rows(run) if run.repeats > 1 else [] for run in runs}
    rows = (
        EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs if run.repeats == 1])
        .order_by()
        .values("evaluation_run", "dimension", "proposition_id")
        .annotate(
            weight=Max("weight"),
            inverted=Count("pk", filter=Q(inverted=True)),
            total=Coalesce(Sum("score", filter=Q(status="scored")), 0),
            scored=Count("pk", filter=Q(status="scored")),
            trivial=Count("pk", filter=Q(status="trivial")),
            unscored=Count("pk", filter=Q(status="unscored")),
            pending=Count("pk", filter=Q(status="pending")),
            asked=Count("pk", filter=COVERABLE),
            of_messages=Count("pk", filter=MESSAGES),
            counted=Sum("count"),  # of one row: nothing is repeated
        )
    )
    for row in rows:
        found[row["evaluation_run"]].append({**row, "count": row["counted"]})
    return found


def linked_dimensions(runs: Sequence[EvaluationRun]) -> dict[int, dict[str, DimensionSummary]]:
    """Agents' channel dimensions by run, from the runs of their channels that are not failed.

    A score is the mean of the channels' scores, weighted by how much the agent said in each; a count is the sum, the same idea in two
    channels being two.
    """
    if not runs:
        return {}
    shares: dict[int, list[ChannelShare]] = {run.pk: [] for run in runs}
    there = ChannelShare.objects.filter(agent_run__in=runs).exclude(channel_run__status__in=WITHOUT_SCORE)
    for share in there.select_related("channel_run__channel"):
        shares[share.agent_run_id].append(share)
    channel_runs = {share.channel_run_id: share.channel_run for found in shares.values() for share in found}
    parts = {pk: dimension_summaries(rows) for pk, rows in _rows(list(channel_runs.values())).items()}
    return {
        run.pk: {
            name: linked_dimension(
                name,
                [(s, parts[s.channel_run_id][name]) for s in shares[run.pk] if name in parts[s.channel_run_id]],
            )
            for name in run.dimensions
            if name not in run.own_dimensions
        }
        for run in runs
    }


def by_tag(run: EvaluationRun, key: str) -> dict[str, float]:
    """Mean of the run's adherence scores per value of a tag, weighted by proposition: the same judgements, told apart.

    Returns:
        Score 0 to 9 by tag value, sorted by value; messages without the tag are left out.
    """
    sums: dict[str, list[float]] = {}
    rows = EvaluationScore.objects.filter(
        evaluation_run=run, dimension="adherence", status="scored", message__isnull=False
    )
    for tags, weight, score, judge in rows.values_list("message__tags", "weight", "score", "judge").iterator():
        if isinstance(tags, dict) and key in tags:
            if judge != RULE_JUDGE:
                weight /= run.repeats  # a rule is judged once
            entry = sums.setdefault(str(tags[key]), [0.0, 0.0])
            entry[0] += weight * (score or 0)
            entry[1] += weight
    return {value: round(total / weight, 4) for value, (total, weight) in sorted(sums.items())}


def shares_by_tag(run: EvaluationRun, key: str) -> dict[str, Share]:
    """How much of the run's adherence was scored, per value of a tag; repeats count once."""
    rows = EvaluationScore.objects.filter(COVERABLE, evaluation_run=run, dimension="adherence", repeat=1)
    found: dict[str, Share] = {}
    for tags, status in rows.filter(message__isnull=False).values_list("message__tags", "status").iterator():
        if isinstance(tags, dict) and key in tags:
            value = str(tags[key])
            found[value] = found.get(value, NOTHING) + Share(int(status == "scored"), 1)
    return found


def worst_judgement(run: EvaluationRun, dimension: str, proposition_id: str) -> EvaluationScore | None:
    """The lowest scored judgement of a proposition, the oldest of equals."""
    return (
        EvaluationScore.objects.filter(
            evaluation_run=run, dimension=dimension, proposition_id=proposition_id, status="scored"
        )
        .order_by("score", "pk")
        .first()
    )
