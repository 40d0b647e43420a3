"""Alerts over the API: listed and acknowledged."""

from __future__ import annotations

from typing import ClassVar

from django.db.models import QuerySet
from pydantic import Field
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.alerts.models import Alert
from agents.alerts.raising import acknowledge
from agents.api.filters import of_agent
from agents.kit.alerting import AlertKind
from agents.kit.api import filters
from agents.kit.api.filters import InTime
from agents.kit.api.pagination import Log
from agents.kit.api.problems import Conflict
from agents.kit.api.requests import ActionPermissions
from agents.kit.api.rows import Row
from agents.kit.api.schema import answers
from agents.kit.api.views import Rows
from agents.kit.bodies import Body


class AlertRow(
    Row,
    table=Alert,
    columns=(
        *("id", "kind", "agent", "title", "url", "times", "created_at", "last_at", "ended_at"),
        *("acknowledged_at", "acknowledged_by", "note", "acknowledge_url"),
    ),
):
    """Something that a person has to know of; `url` is its page in the console."""

    url: str


class Note(Body):
    """What you do about it, for your colleagues."""

    note: str = Field("", max_length=500)


class AlertFilters(InTime):
    kind = filters.choice(AlertKind.values, "kind")
    agent = of_agent()
    acknowledged = filters.flag(method="by_acknowledgement")

    def by_acknowledgement(self, alerts: QuerySet[Alert], name: str, value: bool) -> QuerySet[Alert]:
        return alerts.filter(acknowledged_at__isnull=not value)


class Alerts(Rows):
    """Alerts, newest first.

    Filters: `kind`, `agent` (slug), `acknowledged`, `since`, `until`; `ordering=id` for the oldest first.
    """

    queryset = Alert.objects.select_related("agent", "acknowledged_by")
    answer_class = AlertRow
    pagination_class = Log
    filterset_class = AlertFilters
    bodies: ClassVar = {"acknowledge": Note}

    @answers(AlertRow)
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def acknowledge(self, request: Request, pk: int) -> Response:
        """Note that you have seen it, and what you do about it. 409 when it is acknowledged already."""
        alert, note = self.get_object(), self.read_body().note
        if not acknowledge(Alert.objects.filter(pk=alert.pk), user=request.user, note=note):
            raise Conflict("it is acknowledged already")
        return Response(self.shown(self.get_object()))
