"""Rolling evaluations and the alerts they raised; read only, the console changes them."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework.mixins import ListModelMixin
from rest_framework.serializers import (
    CharField,
    ChoiceField,
    DateTimeField,
    DictField,
    ListField,
    SerializerMethodField,
)

from agents.api.filters import of_agent
from agents.kit.api import filters
from agents.kit.api.filters import Filters, InTime
from agents.kit.api.pagination import Log
from agents.kit.api.rows import Row
from agents.kit.api.views import View
from evaluation.api.requests import by_dimension
from evaluation.api.serializers import Heuristic, run_link
from evaluation.change.models import DriftAlert
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


class DriftAlertRow(Row):
    """A lasting fall in a series of scores, with the evaluation in which it was noticed."""

    heuristic = Heuristic(source="judge")
    run_url = run_link()
    acknowledged_at = DateTimeField(source="alert.acknowledged_at", default=None)
    acknowledged_by = CharField(
        source="alert.acknowledged_by.username", default=None, help_text="see `alerts`, where it is acknowledged"
    )

    class Meta:
        model = DriftAlert
        fields = (
            *("id", "agent", "dimension", "judge", "heuristic", "procedure", "before", "after", "since"),
            *("schedule", "evaluation_run", "run_url", "alert", "created_at", "acknowledged_at", "acknowledged_by"),
        )


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


class AlertFilters(InTime):
    agent = of_agent()
    dimension = by_dimension()
    acknowledged = filters.flag(method="by_acknowledgement")

    def by_acknowledgement(self, alerts: QuerySet[DriftAlert], name: str, value: bool) -> QuerySet[DriftAlert]:
        return alerts.filter(alert__acknowledged_at__isnull=not value)


class Alerts(View, ListModelMixin):
    """Falls that lasted, newest first. Filters: agent (slug), dimension, acknowledged, since, until (ISO times, of the alert);
    `ordering=id` for the oldest first."""

    queryset = DriftAlert.objects.select_related("agent", "schedule", "alert__acknowledged_by")
    serializer_class = DriftAlertRow
    pagination_class = Log
    filterset_class = AlertFilters
