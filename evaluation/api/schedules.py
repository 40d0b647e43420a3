"""Rolling evaluations and the alerts they raised; read only, the console changes them."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.reverse import reverse

from agents.api import parameters
from agents.api.parameters import Log
from agents.api.schema import AGENT, SINCE, UNTIL, documented, query
from evaluation.api.requests import DIMENSION, YES_NO, in_time
from evaluation.models import Dimension, DriftAlert, EvaluationSchedule, is_heuristic


class ScheduleRow(serializers.ModelSerializer[EvaluationSchedule]):
    """A measurement that is made again and again. No agents = every active one; no dimensions = all with propositions."""

    agents = serializers.SlugRelatedField[Any](slug_field="slug", many=True, read_only=True)
    dimensions = serializers.ListField(child=serializers.ChoiceField(Dimension.choices), read_only=True)
    where = serializers.DictField(child=serializers.CharField(), read_only=True)
    heuristic = serializers.SerializerMethodField()

    class Meta:
        model = EvaluationSchedule
        fields = (
            *("id", "name", "agents", "dimensions", "window", "where", "samples", "judge", "heuristic"),
            *("every_minutes", "drift_limit", "batch", "is_active", "next_at", "last_fired_at", "created_at"),
        )

    def get_heuristic(self, schedule: EvaluationSchedule) -> bool | None:
        return is_heuristic(schedule.judge) if schedule.judge else None  # the one configured when it fires


class AlertRow(serializers.ModelSerializer[DriftAlert]):
    """A lasting fall in a series of scores, with the evaluation in which it was noticed."""

    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    schedule = serializers.SlugRelatedField[Any](slug_field="name", read_only=True, allow_null=True)
    acknowledged_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)
    heuristic = serializers.SerializerMethodField()
    run_url = serializers.SerializerMethodField()

    class Meta:
        model = DriftAlert
        fields = (
            *("id", "agent", "dimension", "judge", "heuristic", "procedure", "before", "after", "since", "schedule"),
            *("evaluation_run", "run_url", "created_at", "acknowledged_at", "acknowledged_by"),
        )

    def get_heuristic(self, alert: DriftAlert) -> bool:
        return is_heuristic(alert.judge)

    @extend_schema_field(OpenApiTypes.URI)
    def get_run_url(self, alert: DriftAlert) -> str:
        return str(reverse("evaluation:run", [alert.evaluation_run_id], request=self.context["request"]))


ORDERS = {"name": ("name", "pk"), "next_at": ("next_at", "pk"), "-created_at": ("-created_at", "-pk")}
_OF_SCHEDULES = (query("is_active", enum=YES_NO), query("ordering", "default name", enum=ORDERS))


@extend_schema_view(get=documented({200: ScheduleRow(many=True)}, parameters=_OF_SCHEDULES))
class Schedules(ListAPIView[EvaluationSchedule]):
    """Rolling evaluations by name. Filter: is_active; ordering."""

    queryset = EvaluationSchedule.objects.prefetch_related("agents").order_by("name")
    serializer_class = ScheduleRow

    def filter_queryset(self, queryset: QuerySet[EvaluationSchedule, Any]) -> QuerySet[EvaluationSchedule, Any]:
        parameters.only(self.request, "is_active", "ordering")
        if active := parameters.choice(self.request, "is_active", YES_NO):
            queryset = queryset.filter(is_active=YES_NO[active])
        return queryset.order_by(*ORDERS[parameters.choice(self.request, "ordering", ORDERS) or "name"])


_FILTERS = (AGENT, DIMENSION, SINCE, UNTIL, query("acknowledged", enum=YES_NO))


@extend_schema_view(get=documented({200: AlertRow(many=True)}, parameters=_FILTERS))
class Alerts(ListAPIView[DriftAlert]):
    """Falls that lasted, newest first. Filters: agent (slug), dimension, acknowledged, since, until (ISO times, of the alert);
    `ordering=id` for the oldest first."""

    queryset = DriftAlert.objects.select_related("agent", "schedule", "acknowledged_by")
    serializer_class = AlertRow
    pagination_class = Log

    def filter_queryset(self, queryset: QuerySet[DriftAlert, Any]) -> QuerySet[DriftAlert, Any]:
        request = self.request
        parameters.only(request, "agent", "dimension", "acknowledged", "since", "until", "ordering")
        if agent := parameters.agent(request):
            queryset = queryset.filter(agent=agent)
        if dimension := parameters.choice(request, "dimension", Dimension.values):
            queryset = queryset.filter(dimension=dimension)
        if acknowledged := parameters.choice(request, "acknowledged", YES_NO):
            queryset = queryset.filter(acknowledged_at__isnull=not YES_NO[acknowledged])
        return in_time(request, queryset)
