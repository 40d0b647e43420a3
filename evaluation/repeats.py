"""Repeated judgements: the mean per item counts once, and how far the repeats lie apart is the judge's noise."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low
from typing import Any

from django.db.models import Count, F, Max, Q, Sum
from django.db.models.functions import Coalesce

from evaluation.coverage import COVERABLE, MESSAGES
from evaluation.models import EvaluationRun, EvaluationScore

_STATUSES = ("scored", "trivial", "unscored", "pending")


def repeated_rows(run: EvaluationRun) -> list[dict[str, Any]]:
    """One row per dimension and proposition, from the repeats of each item (a message, a pair, or the whole window).

    `total` sums the items' means, `items` says how many have one. `squares` is the sum of squared deviations from them and `freedom`
    its degrees of freedom: their quotient is the variance of one judgement.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    scored = Q(status="scored", score__isnull=False)
    items = (
        EvaluationScore.objects.filter(evaluation_run=run)
        .order_by()
        .values("dimension", "proposition_id", "message")
        .annotate(
            heaviest=Max("weight"),
            flipped=Count("pk", filter=Q(inverted=True)),
            points=Coalesce(Sum("score", filter=scored), 0),
            squared=Coalesce(Sum(F("score") * F("score"), filter=scored), 0),
            with_score=Count("pk", filter=scored),
            coverable=Count("pk", filter=COVERABLE),
            single=Count("pk", filter=MESSAGES),
            **{f"n_{status}": Count("pk", filter=Q(status=status)) for status in _STATUSES},
        )
    )
    for item in items.iterator(chunk_size=2000):
        key = (item["dimension"], item["proposition_id"])
        _add(found.setdefault(key, _empty(*key)), item)
    counts = counts_of(run)
    return [{**row, "count": counts.get(key)} for key, row in found.items()]


def _empty(dimension: str, proposition_id: str) -> dict[str, Any]:
    numbers = dict.fromkeys((*_STATUSES, "weight", "inverted", "items", "freedom", "hits", "asked", "of_messages"), 0)
    return {"dimension": dimension, "proposition_id": proposition_id, **numbers, "total": 0.0, "squares": 0.0}


def _add(row: dict[str, Any], item: Mapping[str, Any]) -> None:
    row["weight"] = max(row["weight"], item["heaviest"])
    row["inverted"] += item["flipped"]
    for status in _STATUSES:
        row[status] += item[f"n_{status}"]
    row["hits"] += bool(item["n_scored"])
    row["asked"] += bool(item["coverable"])
    row["of_messages"] += bool(item["single"])
    n = item["with_score"]
    if n:
        mean = item["points"] / n
        row["total"] += mean
        row["items"] += 1
        row["freedom"] += n - 1
        row["squares"] += max(0.0, item["squared"] - n * mean**2)


def counts_of(run: EvaluationRun) -> dict[tuple[str, str], int]:
    """What was counted, by dimension and proposition: of several repeats the median, of two middle ones the smaller."""
    found: dict[tuple[str, str], list[int]] = {}
    rows = EvaluationScore.objects.filter(evaluation_run=run, status="scored", count__isnull=False)
    for dimension, proposition_id, count in rows.values_list("dimension", "proposition_id", "count"):
        found.setdefault((dimension, proposition_id), []).append(count or 0)
    return {key: median_low(counts) for key, counts in found.items()}
