"""Alerts over the API: listed, acknowledged alone or by build, and resolved in a build."""

from __future__ import annotations

from typing import ClassVar

from django.db.models import QuerySet
from pydantic import BaseModel, Field
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agents.alerts.models import LONGEST_BUILD, Alert
from agents.alerts.raising import acknowledge, acknowledge_build
from agents.alerts.resolving import resolve
from agents.api.filters import OfWatchedAgents
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
        *("build", "resolved_at", "resolved_by", "resolved_in", "resolved_after", "back_in", "resolve_url"),
    ),
):
    """Something that a person has to know of; `url` is its page in the console."""

    url: str


class Note(Body):
    """What you do about it, for your colleagues."""

    note: str = Field("", max_length=500)


class Resolution(Note):
    """The build that resolves it: when the same comes back in that build or a later one, the alert reopens by itself."""

    in_build: str = Field("", max_length=LONGEST_BUILD, description="such as 42; empty = the next one")


class BuildNote(Note):
    """The build whose alerts you have seen, and what you do about them."""

    build: str = Field(min_length=1, max_length=LONGEST_BUILD, description="a tag such as build=41")


class AcknowledgedAnswer(BaseModel):
    """How many alerts were acknowledged."""

    acknowledged: int


class AlertFilters(OfWatchedAgents, InTime):
    kind = filters.choice(AlertKind.values, "kind")
    build = filters.Parameter("build", about="a tag such as build=41")
    acknowledged = filters.flag(method="by_acknowledgement")

    def by_acknowledgement(self, alerts: QuerySet[Alert], name: str, value: bool) -> QuerySet[Alert]:
        return alerts.filter(acknowledged_at__isnull=not value)


class Alerts(Rows):
    """Alerts, newest first.

    Filters: `kind`, `agent` (slug), `build` (such as ``build=41``), `acknowledged`, `since`, `until`; `ordering=id` for the oldest first.
    Those of the examples are listed where there are no agents of your own, or with `agent`.
    """

    queryset = Alert.objects.select_related("agent", "acknowledged_by", "resolved_by")
    answer_class = AlertRow
    pagination_class = Log
    filterset_class = AlertFilters
    bodies: ClassVar = {"acknowledge": Note, "acknowledge_build": BuildNote, "resolve": Resolution}

    @answers(AlertRow)
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def acknowledge(self, request: Request, pk: int) -> Response:
        """Note that you have seen it, and what you do about it. 409 when it is acknowledged already."""
        alert = self.get_object()
        note = self.read_body().note
        if not acknowledge(Alert.objects.filter(pk=alert.pk), user=request.user, note=note):
            raise Conflict("it is acknowledged already")
        return Response(self.shown(self.get_object()))

    @answers(AlertRow)
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def resolve(self, request: Request, pk: int) -> Response:
        """Note which build resolves it, and acknowledge it. It reopens by itself when the same comes back in that build or a later one.

        409 when it is resolved already, 400 for an alert of no build, and for a build that is not later than its own.
        """
        alert = self.get_object()
        body = self.read_body()
        try:
            done = resolve(alert, in_build=body.in_build, user=request.user, note=body.note)
        except ValueError as refused:
            raise ValidationError({"in_build": [str(refused)]}) from None
        if not done:
            raise Conflict("it is resolved already")
        return Response(self.shown(self.get_object()))

    @answers(AcknowledgedAnswer)
    @action(detail=False, methods=["post"], url_path="acknowledge-build", permission_classes=(ActionPermissions,))
    def acknowledge_build(self, request: Request) -> Response:
        """Note that you have seen all alerts of a build that wait in the review queue. 0 where none waits."""
        body = self.read_body()
        done = acknowledge_build(build=body.build, user=request.user, note=body.note)
        return Response(AcknowledgedAnswer(acknowledged=done))
