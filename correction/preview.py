"""What another threshold would have done to the drafts that were judged (specification 000, S-7.3)."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from django.db.models import Count, FilteredRelation, Q

from agents.models import Agent
from correction.models import CorrectionLog, GateDimensionResult, played

LOGGED = 500  # latest first drafts that are looked at
_HEURISTIC = Q(judge__startswith="offline:")


class WouldFail(NamedTuple):
    """Of the `total` latest first drafts, `judged` have a score in the dimension, and `failed` of those lie below the threshold."""

    failed: int
    judged: int
    total: int


def would_fail(
    *, agent: Agent | None, dimension: str, threshold: Decimal, limit: int = LOGGED, heuristic: bool | None = None
) -> WouldFail:
    """How many of the latest first drafts would have failed with this threshold, in one query.

    Gate and observe mode count, external checks do not: they are no drafts of the agent. Retries do not count either, for they
    were written after feedback.

    Args:
        agent: Whose drafts; None for those of every agent.
        dimension: Gate dimension, e.g. ``adherence``.
        threshold: Lowest score that passes, 0 to 9.
        limit: How many of the latest first drafts are looked at.
        heuristic: Only drafts that an offline judge (True) or a model (False) was asked about: their scores are not comparable.
            Drafts that only rules judged count with both. None: all of them.
    """
    drafts = CorrectionLog.objects.filter(
        ~played(), attempt=1, source__in=[CorrectionLog.Source.GATE, CorrectionLog.Source.OBSERVE]
    )
    if agent is not None:
        drafts = drafts.filter(agent=agent)
    if heuristic is not None:
        drafts = drafts.filter(_HEURISTIC | Q(judge="")) if heuristic else drafts.exclude(_HEURISTIC)
    latest = drafts.order_by("-created_at", "-pk").values("pk")[:limit]
    scored = Q(result__status=GateDimensionResult.Status.SCORED)
    found = (
        CorrectionLog.objects.filter(pk__in=latest)
        .annotate(result=FilteredRelation("dimension_results", condition=Q(dimension_results__dimension=dimension)))
        .aggregate(
            total=Count("pk"),
            judged=Count("result", filter=scored),
            failed=Count("result", filter=scored & Q(result__score__lt=float(threshold))),
        )
    )
    return WouldFail(**found)
