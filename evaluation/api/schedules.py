"""Rolling evaluations; read only, the console changes them."""

from __future__ import annotations

from rest_framework.mixins import ListModelMixin
from rest_framework.serializers import (
    CharField,
    ChoiceField,
    DictField,
    ListField,
    SerializerMethodField,
)

from agents.kit.api import filters
from agents.kit.api.filters import Filters
from agents.kit.api.model_rows import Row
from agents.kit.api.views import View
from evaluation.models import Dimension, EvaluationSchedule, is_heuristic


class ScheduleRow(Row):
    """A measurement that is made again and again. No agents = every active one; no dimensions = all with propositions."""

    dimensions = ListField(child=ChoiceField(Dimension.choices))
    where = DictField(child=CharField())
    heuristic = SerializerMethodField(help_text="null = the judge is the one configured when it fires")

    class Meta:
        model = EvaluationSchedule
        fields = (
            *("id", "name", "agents", "dimensions", "window", "where", "samples", "judge", "heuristic"),
            *("every_minutes", "drift_limit", "batch", "is_active", "next_at", "last_fired_at", "created_at"),
        )

    def get_heuristic(self, schedule: EvaluationSchedule) -> bool | None:
        return is_heuristic(schedule.judge) if schedule.judge else None


class ScheduleFilters(Filters):
    is_active = filters.flag()
    ordering = filters.ordering(
        {"name": ("name", "pk"), "next_at": ("next_at", "pk"), "-created_at": ("-created_at", "-pk")}
    )


class Schedules(View, ListModelMixin):
    """Rolling evaluations by name. Filter: is_active; ordering."""

    queryset = EvaluationSchedule.objects.prefetch_related("agents").order_by("name", "pk")
    serializer_class = ScheduleRow
    filterset_class = ScheduleFilters
