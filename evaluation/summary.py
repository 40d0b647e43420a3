"""What a run found, computed from its scores and from the ledger: weighted means over *scored* judgements only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db.models import Count, Max, Q, Sum
from django.db.models.functions import Coalesce

from agents.llm import ledger
from evaluation.models import Dimension, EvaluationRun, EvaluationScore

WITHOUT_SCORE = (
    EvaluationRun.Status.FAILED,
    EvaluationRun.Status.ERRORED,
    EvaluationRun.Status.CANCELLED,
)  # what they have is partial
COUNTED = (Dimension.IDEAS_QUANTITY.value,)  # a count, never averaged with scores of 0 to 9


@dataclass(frozen=True, slots=True, kw_only=True)
class PropositionSummary:
    """One proposition over a run. `score` is the mean of its scored judgements, 0 to 9; None when none was scored."""

    id: str
    score: float | None
    weight: float
    inverted: bool
    scored: int
    trivial: int
    unscored: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionSummary:
    """One dimension over a run. `score` is the mean weighted by proposition over all scored judgements; None when there are none."""

    dimension: str
    score: float | None
    scored: int
    trivial: int
    unscored: int
    pending: int
    propositions: tuple[PropositionSummary, ...]

    @property
    def weakest(self) -> PropositionSummary | None:
        """The proposition with the lowest mean; None when nothing was scored."""
        return min((p for p in self.propositions if p.score is not None), key=lambda p: (p.score, p.id), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run in numbers. `overall_score` is the mean of its dimensions' scores; tokens and cost are sums over the ledger."""

    run: EvaluationRun
    overall_score: float | None
    dimensions: dict[str, DimensionSummary] = field(default_factory=dict)
    calls: int = 0
    tokens: int = 0
    cost_usd: Decimal | None = None
    unpriced_calls: int = 0


def _score(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def dimension_summaries(scores: Iterable[Mapping[str, Any]]) -> dict[str, DimensionSummary]:
    """Dimensions from rows of (dimension, proposition_id, weight, inverted, total, scored, trivial, unscored, pending)."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for row in scores:
        grouped.setdefault(str(row["dimension"]), []).append(row)
    return {dimension: _dimension(dimension, rows) for dimension, rows in sorted(grouped.items())}


def _dimension(dimension: str, rows: list[Mapping[str, Any]]) -> DimensionSummary:
    propositions = []
    weighted = weights = 0.0
    for row in sorted(rows, key=lambda r: str(r["proposition_id"])):
        scored, total, weight = row["scored"], float(row["total"]), float(row["weight"])
        weighted += weight * total
        weights += weight * scored
        propositions.append(
            PropositionSummary(
                id=str(row["proposition_id"]),
                score=_score(total / scored) if scored else None,
                weight=weight,
                inverted=bool(row["inverted"]),
                scored=scored,
                trivial=row["trivial"],
                unscored=row["unscored"],
                pending=row["pending"],
            )
        )
    return DimensionSummary(
        dimension=dimension,
        score=_score(weighted / weights) if weights else None,
        scored=sum(p.scored for p in propositions),
        trivial=sum(p.trivial for p in propositions),
        unscored=sum(p.unscored for p in propositions),
        pending=sum(p.pending for p in propositions),
        propositions=tuple(propositions),
    )


def empty_dimension(dimension: str) -> DimensionSummary:
    """A dimension for which nothing was judged."""
    return DimensionSummary(
        dimension=dimension, score=None, scored=0, trivial=0, unscored=0, pending=0, propositions=()
    )


def overall(dimensions: Iterable[DimensionSummary]) -> float | None:
    """Mean of the dimensions that have a score of 0 to 9; None when none has."""
    scores = [d.score for d in dimensions if d.score is not None and d.dimension not in COUNTED]
    return _score(sum(scores) / len(scores)) if scores else None


def summarize(run: EvaluationRun) -> RunSummary:
    """The numbers of one run, in two queries."""
    rows = (
        EvaluationScore.objects.filter(evaluation_run=run)
        .order_by()
        .values("dimension", "proposition_id")
        .annotate(
            weight=Max("weight"),
            inverted=Count("pk", filter=Q(inverted=True)),
            total=Coalesce(Sum("score", filter=Q(status="scored")), 0),
            scored=Count("pk", filter=Q(status="scored")),
            trivial=Count("pk", filter=Q(status="trivial")),
            unscored=Count("pk", filter=Q(status="unscored")),
            pending=Count("pk", filter=Q(status="pending")),
        )
    )
    dimensions = dimension_summaries(rows)
    used = ledger.totals(work_id=run.work_id)
    return RunSummary(
        run=run,
        overall_score=None if run.status in WITHOUT_SCORE else overall(dimensions.values()),
        dimensions=dimensions,
        calls=used.calls,
        tokens=used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens,
        cost_usd=used.cost_usd if used.unpriced < used.calls or not used.calls else None,
        unpriced_calls=used.unpriced,
    )


def by_tag(run: EvaluationRun, key: str) -> dict[str, float]:
    """Mean of the run's message-by-message scores per value of a tag, weighted by proposition: the same judgements, told apart.

    Returns:
        Score 0 to 9 by tag value, sorted by value; messages without the tag are left out.
    """
    sums: dict[str, list[float]] = {}
    rows = EvaluationScore.objects.filter(evaluation_run=run, status="scored", message__isnull=False)
    for tags, weight, score in rows.values_list("message__tags", "weight", "score").iterator():
        if isinstance(tags, dict) and key in tags:
            entry = sums.setdefault(str(tags[key]), [0.0, 0.0])
            entry[0] += weight * (score or 0)
            entry[1] += weight
    return {value: round(total / weight, 4) for value, (total, weight) in sorted(sums.items())}


def worst_judgement(run: EvaluationRun, dimension: str, proposition_id: str) -> EvaluationScore | None:
    """The lowest scored judgement of a proposition, the oldest of equals."""
    return (
        EvaluationScore.objects.filter(
            evaluation_run=run, dimension=dimension, proposition_id=proposition_id, status="scored"
        )
        .order_by("score", "pk")
        .first()
    )
