"""What one evaluation contributes to its series: per dimension a score, how sure it is, and which propositions it rests on."""

from __future__ import annotations

import hashlib
import json
from math import sqrt
from typing import Any

from django.db.models import Avg, Max

from evaluation.models import COUNTED, EvaluationRun, EvaluationScore
from evaluation.runs.summary import summarize


def points_of(run: EvaluationRun) -> dict[str, dict[str, Any]]:
    """By dimension: `score` (0 to 9), its standard `error` in points (None: not known) and `of`, a digest of the propositions.

    Dimensions that are counted, and those in which nothing was scored, have no point.
    """
    found = summarize(run).dimensions.items()
    return {
        name: {"score": d.score, "error": standard_error(run, name), "of": _asked(run, name)}
        for name, d in found
        if d.score is not None and name not in COUNTED
    }


def standard_error(run: EvaluationRun, dimension: str) -> float | None:
    """Of the weighted mean over messages drawn at random, each with all its scores; None for fewer than two, or judged as a whole.

    The ratio estimator's: √(n ÷ (n − 1) · Σ(Σ weight · (score − mean))²) ÷ Σ weight (Cochran, "Sampling Techniques", 1977, section 6.4).
    """
    rows = (
        EvaluationScore.objects.filter(
            evaluation_run=run, dimension=dimension, status="scored", score__isnull=False, message__isnull=False
        )
        .order_by()
        .values("message_id", "proposition_id")
        .annotate(heaviest=Max("weight"), mean=Avg("score"))
    )
    sums: dict[int, tuple[float, float]] = {}
    for row in rows:
        weight, points = sums.get(row["message_id"], (0.0, 0.0))
        sums[row["message_id"]] = (weight + row["heaviest"], points + row["heaviest"] * row["mean"])
    return ratio_error([weight for weight, _ in sums.values()], [points for _, points in sums.values()])


def ratio_error(weights: list[float], points: list[float]) -> float | None:
    """The standard error of Σ points ÷ Σ weights, a pair per message."""
    n, total = len(weights), sum(weights)
    if n < 2 or not total:
        return None
    mean = sum(points) / total
    squares = sum((p - mean * w) ** 2 for w, p in zip(weights, points, strict=True))
    return sqrt(n / (n - 1) * squares) / total


def _asked(run: EvaluationRun, dimension: str) -> str:
    """A digest of the propositions asked; of a channel's dimension, of those asked in the agent's channels."""
    if dimension in run.own_dimensions:
        asked = [run.proposition_digests.get(dimension)]
    else:
        linked = run.channel_runs.order_by().values_list("proposition_digests", flat=True)
        asked = [digests.get(dimension) for digests in linked]
    distinct = sorted({json.dumps(one, sort_keys=True) for one in asked})
    return hashlib.sha256("\n".join(distinct).encode()).hexdigest()[:12]
