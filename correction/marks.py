"""What people say of failed checks, *right* or *false alarm*, and how precise a threshold is by that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, Q
from django.utils import timezone

from agents.models import Agent
from correction.costs import window_of_time
from correction.models import GateDimensionResult, played
from evaluation.models import is_heuristic
from evaluation.windows import MessageWindow

Mark = GateDimensionResult.Mark
Z_95 = 1.959963984540054  # two-sided 95 % of the normal distribution


def mark_result(
    *, result: GateDimensionResult, mark: str, user: AbstractBaseUser | AnonymousUser | None
) -> GateDimensionResult:
    """Note what a person says of one failed dimension; an empty mark takes it back.

    Args:
        result: The failed dimension of a logged attempt.
        mark: ``right``, ``false_alarm`` or empty.
        user: Who says it.

    Raises:
        ValueError: The mark is none of these, or the dimension did not fail.
    """
    if mark not in ("", *Mark.values):
        raise ValueError(f"mark {mark!r}: allowed: {', '.join(Mark.values)}, or empty to take a mark back")
    if result.passed:
        raise ValueError(f"{result.dimension} did not fail here; allowed: marks on failed dimensions")
    result.mark = mark
    result.marked_by_id = user.pk if mark and user is not None else None
    result.marked_at = timezone.now() if mark else None
    result.save(update_fields=["mark", "marked_by", "marked_at"])
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How often a failed check was right, as far as people said so.

    Attributes:
        dimension: Its id. `threshold`: the lowest passing score then.
        judge: Who was asked then.
        right, false_alarms: Marks.
        precision: right ÷ marked, 0 to 1.
        low, high: Wilson's 95 % interval of it.
    """

    dimension: str
    threshold: Decimal
    judge: str
    right: int
    false_alarms: int
    precision: float
    low: float
    high: float

    @property
    def marked(self) -> int:
        return self.right + self.false_alarms

    @property
    def heuristic(self) -> bool:
        return is_heuristic(self.judge)


def precision(
    *, agent: Agent | None = None, window: str | MessageWindow = "all", dimension: str = ""
) -> list[Precision]:
    """Precision per dimension, threshold and judge, of the marked failures; in one query.

    Verdicts of the gate, observed ones and external ones count alike: a false alarm is one wherever it rang.

    Args:
        agent: Whose; None for all.
        window: ``all`` or a duration such as ``24h``, ``7d``, ``4w``, of when the draft was checked.
        dimension: Only this one.

    Raises:
        ValueError: The window is not one; names what is allowed.
    """
    stretch = window_of_time(window) if isinstance(window, str) else window
    marked = GateDimensionResult.objects.exclude(mark="").filter(~played("log__"))
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
    return [_precision(dict(row)) for row in rows]


def _precision(row: dict[str, Any]) -> Precision:
    right, total = row["right"], row["right"] + row["false_alarms"]
    low, high = wilson_interval(right, total)
    return Precision(
        dimension=row["dimension"],
        threshold=row["threshold"],
        judge=row["log__judge"],
        right=right,
        false_alarms=row["false_alarms"],
        precision=right / total,
        low=low,
        high=high,
    )


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
