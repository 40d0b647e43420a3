"""What another threshold would have done to the drafts that were judged (specification 000, S-7.3)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, F, Q, QuerySet
from django.db.models.functions import Floor
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, computed_field, field_serializer

from agents.models import Agent
from correction.costs import window_of_time
from correction.models import CorrectionLog, GateDimensionResult, synthetic_logs
from evaluation.models import is_heuristic
from evaluation.scorers.subjects import MessageWindow

Mark = GateDimensionResult.Mark
Z_95 = 1.959963984540054  # two-sided 95 % of the normal distribution


def mark_result(
    *,
    result: GateDimensionResult,
    mark: str,
    user: AbstractBaseUser | AnonymousUser | None,
    expected: str | None = None,
) -> GateDimensionResult:
    """Note what a person says of one failed dimension; an empty mark takes it back.

    Args:
        mark: ``right``, ``false_alarm`` or empty.
        expected: Only where the mark still is this one, as the person saw it; None = whatever it is.

    Raises:
        ValueError: The mark is none of these, the dimension did not fail, or its mark is not the expected one.
    """
    if mark not in ("", *Mark.values):
        raise ValueError(f"mark {mark!r}: allowed: {', '.join(Mark.values)}, or empty to take a mark back")
    if result.passed:
        raise ValueError(f"{result.dimension} did not fail here; allowed: marks on failed dimensions")
    rows = GateDimensionResult.objects.filter(pk=result.pk)
    if expected is not None:
        rows = rows.filter(mark=expected)
    by = user.pk if mark and user is not None else None
    changed = rows.update(mark=mark, marked_by=by, marked_at=timezone.now() if mark else None)
    result.refresh_from_db(fields=["mark", "marked_by", "marked_at"])
    if not changed:
        said = f"marked {result.get_mark_display()}" if result.mark else "without a mark"
        raise ValueError(f"it is {said}{f' by {result.marked_by}' if result.marked_by else ''} already")
    return result


class Precision(BaseModel):
    """How often a failed check was right, as far as people marked it; `low` and `high` are Wilson's 95 % interval."""

    model_config = ConfigDict(frozen=True)

    dimension: str
    threshold: Decimal
    judge: str
    right: int
    false_alarms: int

    @field_serializer("threshold")
    def _number(self, threshold: Decimal) -> float:
        return float(threshold)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def marked(self) -> int:
        return self.right + self.false_alarms

    @computed_field(description="right ÷ marked, 0 to 1")  # type: ignore[prop-decorator]
    @property
    def precision(self) -> float:
        return self.right / self.marked

    @computed_field  # type: ignore[prop-decorator]
    @property
    def low(self) -> float:
        return wilson_interval(self.right, self.marked)[0]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def high(self) -> float:
        return wilson_interval(self.right, self.marked)[1]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def heuristic(self) -> bool:
        return is_heuristic(self.judge)


def precision(
    *, agent: Agent | None = None, window: str | MessageWindow = "all", dimension: str = ""
) -> list[Precision]:
    """Precision per dimension, threshold and judge, of the marked failures; in one query.

    Verdicts of the gate, observed ones and external ones count alike: a false alarm is one wherever it rang.

    Args:
        window: ``all`` or a duration such as ``24h``, ``7d``, ``4w``, of when the draft was checked.

    Raises:
        ValueError: The window is not one; names what is allowed.
    """
    stretch = window_of_time(window) if isinstance(window, str) else window
    marked = GateDimensionResult.objects.exclude(mark="").filter(~synthetic_logs("log__"))
    where: dict[str, Any] = {}
    if agent is not None:
        where["log__agent"] = agent
    if dimension:
        where["dimension"] = dimension
    if stretch.start is not None:
        where["log__created_at__gte"] = stretch.start
    if stretch.end is not None:
        where["log__created_at__lte"] = stretch.end
    rows = (
        marked.filter(**where)
        .order_by("dimension", "threshold", "log__judge")
        .values("dimension", "threshold", "log__judge")
        .annotate(
            right=Count("pk", filter=Q(mark=Mark.RIGHT)), false_alarms=Count("pk", filter=Q(mark=Mark.FALSE_ALARM))
        )
    )
    return [Precision(judge=row.pop("log__judge"), **row) for row in map(dict, rows)]


def wilson_interval(successes: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share; (0, 1) where nothing was counted (Wilson 1927, JASA 22).

    Raises:
        ValueError: `successes` is not between 0 and `total`.
    """
    if not 0 <= successes <= total:
        raise ValueError(f"{successes} of {total} is no share")
    if total == 0:
        return 0.0, 1.0
    share, z2 = successes / total, Z_95**2
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z_95 / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    return max(0.0, centre - half), min(1.0, centre + half)


LOGGED = 500  # latest first drafts that are looked at
MARKED = 2_000  # latest marks of people


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one dimension, counted by tenths of a point: 47 stands for 4.7 up to 4.8. Thresholds have one decimal place, so a
    draft fails with a threshold exactly when its tenths lie below those of the threshold.

    Attributes:
        logged: First drafts that the gate judged before they were said.
        observed: Those that were judged afterwards.
        marks: Failed checks that people marked, of any attempt: how many were right, and how many false alarms; of the latest 2,000.
    """

    logged: Counter[int] = field(default_factory=Counter)
    observed: Counter[int] = field(default_factory=Counter)
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def drafts(self) -> Counter[int]:
        return self.logged + self.observed

    def marked_below(self, threshold: Decimal) -> tuple[int, int]:
        """Right alarms and false ones that this threshold would have raised, too."""
        raised = [counts for tenths, counts in self.marks.items() if tenths < 10 * threshold]
        return sum(right for right, _ in raised), sum(false for _, false in raised)


def failing(counts: Mapping[int, int], threshold: Decimal) -> int:
    """How many of the scores lie below the threshold."""
    return sum(count for tenths, count in counts.items() if tenths < 10 * threshold)


def scores_of(*, agent: Agent | None, heuristic: bool, limit: int = LOGGED) -> tuple[int, dict[str, Scores]]:
    """The latest first drafts' scores by dimension, in three queries however many logs there are.

    Gate and observe mode count, external checks do not: they are no drafts of the agent. Retries do not count either, for they
    were written after feedback.

    Args:
        agent: Whose drafts; None for those of every agent.
        heuristic: Drafts that an offline judge (True) or a model (False) was asked about: their scores are not comparable. Drafts that only
            rules judged count with both.
        limit: How many of the latest first drafts are read.

    Returns:
        How many drafts there were, and the scores of each dimension in which any was judged or marked.
    """
    by_dimension: dict[str, Scores] = defaultdict(Scores)
    latest = _latest(agent, limit, heuristic)
    tenths = Floor(F("score") * 10 + 1e-9)  # 4.6 * 10 may be a little less than 46
    judged = (
        GateDimensionResult.objects.filter(log__in=latest, status=GateDimensionResult.Status.SCORED)
        .order_by()
        .values("dimension", "log__source", tenths=tenths)
        .annotate(drafts=Count("pk"))
    )
    for row in judged:
        scores, place = by_dimension[row["dimension"]], int(row["tenths"])
        observed = row["log__source"] == CorrectionLog.Source.OBSERVE
        (scores.observed if observed else scores.logged)[place] += row["drafts"]
    newest = GateDimensionResult.objects.exclude(mark="").order_by("-pk")
    if agent is not None:
        newest = newest.filter(log__agent=agent)
    marked = GateDimensionResult.objects.filter(
        ~synthetic_logs("log__"), pk__in=newest.values("pk")[:MARKED], score__isnull=False
    )
    rows = _of_kind(marked, heuristic, "log__").order_by().values("dimension", "mark", tenths=tenths)
    for row in rows.annotate(marks=Count("pk")):
        place, is_right = int(row["tenths"]), row["mark"] == GateDimensionResult.Mark.RIGHT
        right, false = by_dimension[row["dimension"]].marks.get(place, (0, 0))
        more = row["marks"]
        by_dimension[row["dimension"]].marks[place] = (right + more, false) if is_right else (right, false + more)
    return CorrectionLog.objects.filter(pk__in=latest).count(), dict(by_dimension)


def _latest(agent: Agent | None, limit: int, heuristic: bool) -> QuerySet[CorrectionLog, Any]:
    """Keys of the latest first drafts of the agent, or of every agent."""
    drafts = CorrectionLog.objects.filter(
        ~synthetic_logs(), attempt=1, source__in=[CorrectionLog.Source.GATE, CorrectionLog.Source.OBSERVE]
    )
    if agent is not None:
        drafts = drafts.filter(agent=agent)
    return _of_kind(drafts, heuristic).order_by("-created_at", "-pk").values("pk")[:limit]


def _of_kind(rows: QuerySet[Any], heuristic: bool, prefix: str = "") -> QuerySet[Any]:
    """What offline judges (or models) were asked about; what only rules judged counts with both."""
    offline = Q(**{f"{prefix}judge__startswith": "offline:"})
    return rows.filter(offline | Q(**{f"{prefix}judge": ""})) if heuristic else rows.exclude(offline)
