"""Rolling evaluations; read only, the console changes them."""

from __future__ import annotations

from agents.kit.api import filters
from agents.kit.api.filters import Filters
from agents.kit.api.rows import Row, shown
from agents.kit.api.views import Listed
from evaluation.api.answers import DimensionName
from evaluation.models import EvaluationSchedule, is_heuristic


class ScheduleRow(
    Row,
    table=EvaluationSchedule,
    columns=(
        *("id", "name", "agents", "dimensions", "window", "where", "samples", "judge", "heuristic"),
        "additional_context",
        *("every_minutes", "drift_limit", "batch", "is_active", "next_at", "last_fired_at", "created_at"),
    ),
):
    """A measurement that is made again and again. No agents = every active one; no dimensions = all with propositions."""

    agents: list[str] = shown(
        lambda schedule, context: [agent.slug for agent in schedule.agents.all()], "empty = every active agent"
    )
    dimensions: list[DimensionName]
    where: dict[str, str]
    heuristic: bool | None = shown(
        lambda schedule, context: is_heuristic(schedule.judge) if schedule.judge else None,
        "null = the judge is the one configured when it fires",
    )


class ScheduleFilters(Filters):
    is_active = filters.flag()
    ordering = filters.ordering(
        {"name": ("name", "pk"), "next_at": ("next_at", "pk"), "-created_at": ("-created_at", "-pk")}
    )


class Schedules(Listed):
    """Rolling evaluations by name. Filter: is_active; ordering."""

    queryset = EvaluationSchedule.objects.prefetch_related("agents").order_by("name", "pk")
    answer_class = ScheduleRow
    filterset_class = ScheduleFilters
