"""What another threshold would have done to the drafts that were judged (specification 000, S-7.3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from django.db.models import Count, F, FilteredRelation, Q, QuerySet
from django.db.models.functions import Floor

from agents.models import Agent
from correction.models import CorrectionLog, GateDimensionResult, played

LOGGED = 500  # latest first drafts that are looked at
MARKED = 2_000  # latest marks of people


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
    latest = _latest(agent, limit, heuristic)
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


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one dimension, counted by tenths of a point: 47 stands for 4.7 up to 4.8. Thresholds have one decimal place, so a
    draft fails with a threshold exactly when its tenths lie below those of the threshold.

    Attributes:
        logged: First drafts that the gate judged before they were said.
        observed: Those that were judged afterwards.
        by_agent: Both, by the agent's key.
        marks: Failed checks that people marked, of any attempt: how many were right, and how many false alarms; of the latest 2,000.
    """

    logged: Counter[int] = field(default_factory=Counter)
    observed: Counter[int] = field(default_factory=Counter)
    by_agent: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def drafts(self) -> Counter[int]:
        return self.logged + self.observed

    def marked_below(self, threshold: Decimal) -> tuple[int, int]:
        """Right alarms and false ones that this threshold would have raised, too."""
        found = [counts for tenths, counts in self.marks.items() if tenths < 10 * threshold]
        return sum(right for right, _ in found), sum(false for _, false in found)


def failing(counts: Mapping[int, int], threshold: Decimal) -> int:
    """How many of the scores lie below the threshold."""
    return sum(count for tenths, count in counts.items() if tenths < 10 * threshold)


def scores_of(*, agent: Agent | None, heuristic: bool, limit: int = LOGGED) -> tuple[int, dict[str, Scores]]:
    """The latest first drafts' scores by dimension, in three queries whatever the log holds.

    Args:
        agent, heuristic, limit: As for `would_fail`.

    Returns:
        How many drafts were looked at, and the scores of each dimension in which any was judged or marked.
    """
    found: dict[str, Scores] = defaultdict(Scores)
    latest = _latest(agent, limit, heuristic)
    tenths = Floor(F("score") * 10 + 1e-9)  # 4.6 * 10 may be a little less than 46
    judged = (
        GateDimensionResult.objects.filter(log__in=latest, status=GateDimensionResult.Status.SCORED)
        .order_by()
        .values("dimension", "log__source", "log__agent", tenths=tenths)
        .annotate(drafts=Count("pk"))
    )
    for row in judged:
        scores, place = found[row["dimension"]], int(row["tenths"])
        observed = row["log__source"] == CorrectionLog.Source.OBSERVE
        (scores.observed if observed else scores.logged)[place] += row["drafts"]
        scores.by_agent[row["log__agent"] or 0][place] += row["drafts"]
    newest = GateDimensionResult.objects.exclude(mark="").order_by("-pk")
    if agent is not None:
        newest = newest.filter(log__agent=agent)
    marked = GateDimensionResult.objects.filter(
        ~played("log__"), pk__in=newest.values("pk")[:MARKED], score__isnull=False
    )
    rows = _of_kind(marked, heuristic, "log__").order_by().values("dimension", "mark", tenths=tenths)
    for row in rows.annotate(marks=Count("pk")):
        place, is_right = int(row["tenths"]), row["mark"] == GateDimensionResult.Mark.RIGHT
        right, false = found[row["dimension"]].marks.get(place, (0, 0))
        more = row["marks"]
        found[row["dimension"]].marks[place] = (right + more, false) if is_right else (right, false + more)
    return CorrectionLog.objects.filter(pk__in=latest).count(), dict(found)


def _latest(agent: Agent | None, limit: int, heuristic: bool | None) -> QuerySet[CorrectionLog, Any]:
    """Keys of the latest first drafts of the agent, or of every agent."""
    drafts = CorrectionLog.objects.filter(
        ~played(), attempt=1, source__in=[CorrectionLog.Source.GATE, CorrectionLog.Source.OBSERVE]
    )
    if agent is not None:
        drafts = drafts.filter(agent=agent)
    if heuristic is not None:
        drafts = _of_kind(drafts, heuristic)
    return drafts.order_by("-created_at", "-pk").values("pk")[:limit]


def _of_kind(rows: QuerySet[Any], heuristic: bool, prefix: str = "") -> QuerySet[Any]:
    """What offline judges (or models) were asked about; what only rules judged counts with both."""
    offline = Q(**{f"{prefix}judge__startswith": "offline:"})
    return rows.filter(offline | Q(**{f"{prefix}judge": ""})) if heuristic else rows.exclude(offline)
