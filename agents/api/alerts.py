"""Alerts: listed and acknowledged; and whom they are sent to."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from django.core.exceptions import ValidationError as Wrong
from django.db import transaction
from django.db.models import Prefetch, QuerySet
from pydantic import Field
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import CharField, ChoiceField, ListField, SerializerMethodField

from agents.alerts.delivery import send_test
from agents.alerts.raising import acknowledge, reopen
from agents.alerts.webhook import secret_of
from agents.api import filters
from agents.api.bodies import ABSENT, AgentSlug, Body, OneOf
from agents.api.filters import Filters, InTime
from agents.api.headers import Changed, etag_of, located
from agents.api.pagination import Log
from agents.api.problems import Conflict
from agents.api.requests import ActionPermissions
from agents.api.rows import Row
from agents.api.schema import answers
from agents.api.views import Editable, Rows
from agents.models import Agent, Alert, AlertKind, Delivery, Receiver

Kind = Annotated[str, OneOf(*AlertKind.values)]


class DeliveryRow(Row):
    """What became of an alert at a receiver."""

    class Meta:
        model = Delivery
        fields = ("id", "receiver", "status", "tries", "tried_at", "answer_code", "error", "created_at")


class AlertRow(Row):
    """Something that a person has to know of; `page` is below the address of the console, `url` has that where it is known."""

    url = CharField(read_only=True)
    deliveries = DeliveryRow(many=True, read_only=True)

    class Meta:
        model = Alert
        fields = (
            *("id", "kind", "agent", "title", "url", "times", "created_at", "last_at", "ended_at"),
            *("acknowledged_at", "acknowledged_by", "note", "deliveries", "acknowledge_url"),
        )


class Note(Body):
    """What you do about it, for your colleagues."""

    note: str = Field("", max_length=500)


class AlertFilters(InTime):
    kind = filters.choice(AlertKind.values, "kind")
    agent = filters.agent()
    acknowledged = filters.flag(method="by_acknowledgement")

    def by_acknowledgement(self, alerts: QuerySet[Alert], name: str, value: bool) -> QuerySet[Alert]:
        return alerts.filter(acknowledged_at__isnull=not value)


class Alerts(Rows):
    """Alerts, newest first.

    Filters: `kind`, `agent` (slug), `acknowledged`, `since`, `until`; `ordering=id` for the oldest first.
    """

    queryset = Alert.objects.select_related("agent", "acknowledged_by")
    serializer_class = AlertRow
    pagination_class = Log
    filterset_class = AlertFilters
    bodies: ClassVar = {"acknowledge": Note}

    def get_queryset(self) -> QuerySet[Alert]:
        sent = Delivery.objects.select_related("receiver").order_by("pk")
        return self.queryset.prefetch_related(Prefetch("deliveries", sent))

    @answers(AlertRow)
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def acknowledge(self, request: Request, pk: int) -> Response:
        """Note that you have seen it, and what you do about it. 409 when it is acknowledged already."""
        alert, note = self.get_object(), self.read_body().note
        if not acknowledge(Alert.objects.filter(pk=alert.pk), user=request.user, note=note):
            raise Conflict("it is acknowledged already")
        return Response(self.get_serializer(self.get_object()).data)

    @answers(AlertRow)
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def reopen(self, request: Request, pk: int) -> Response:
        """Take an acknowledgement back. 409 when there is none, or the same was raised again since."""
        self.read_body()
        if not reopen(self.get_object()):
            raise Conflict("it is not acknowledged, or the same was raised again since")
        return Response(self.get_serializer(self.get_object()).data)


class ReceiverRow(Row):
    """Where alerts are sent. Address and signing secret are null for users who may not change it."""

    kinds = ListField(child=ChoiceField(AlertKind.choices), help_text="none = all")
    agents = SerializerMethodField(help_text="slugs; none = all")
    address = SerializerMethodField()
    secret = SerializerMethodField(help_text="of a webhook, as Standard Webhooks has it")

    class Meta:
        model = Receiver
        fields = (
            *("id", "url", "name", "channel", "address", "kinds", "agents", "is_active", "failures", "retry_at"),
            *("secret", "created_by", "created_at", "test_url"),
        )

    def get_agents(self, receiver: Receiver) -> list[str]:
        return sorted(agent.slug for agent in receiver.agents.all())

    def get_address(self, receiver: Receiver) -> str | None:
        return receiver.address if self._may_change else None

    def get_secret(self, receiver: Receiver) -> str | None:
        is_webhook = receiver.channel == Receiver.Channel.WEBHOOK
        return secret_of(receiver.salt.hex) if is_webhook and self._may_change else None

    @property
    def _may_change(self) -> bool:
        return bool(self.context["request"].user.has_perm("agents.change_receiver"))


class ReceiverBody(Body):
    """A receiver as it is to be."""

    name: str = Field(min_length=1, max_length=80)
    channel: Annotated[str, OneOf(*Receiver.Channel.values)]
    address: str = Field(
        max_length=500, description="e-mail addresses separated by commas, or the https address of a webhook"
    )
    kinds: list[Kind] = Field([], max_length=20, description="none = all")
    agents: list[AgentSlug] = Field([], max_length=500, description="slugs; none = all")
    is_active: bool = True


class ReceiverChange(ReceiverBody):
    """What may be changed of a receiver; `kinds` and `agents` name all of them."""

    name: str = Field(ABSENT, min_length=1, max_length=80)
    channel: Annotated[str, OneOf(*Receiver.Channel.values)] = ABSENT
    address: str = Field(ABSENT, max_length=500)


class ReceiverFilters(Filters):
    channel = filters.choice(Receiver.Channel.values, "channel")
    is_active = filters.flag("is_active")


class Receivers(Editable):
    """Whom alerts are sent to, by name. Filters: `channel`, `is_active`."""

    queryset = Receiver.objects.select_related("created_by").order_by("name", "pk")
    serializer_class = ReceiverRow
    lookup_field = "pk"
    lookup_value_converter = "int"
    filterset_class = ReceiverFilters
    bodies: ClassVar = {"create": ReceiverBody, "update": ReceiverBody, "partial_update": ReceiverChange}
    example: ClassVar = {"name": "on call", "channel": "email", "address": "ops@example.com"}

    def get_queryset(self) -> QuerySet[Receiver]:
        return self.queryset.prefetch_related(Prefetch("agents", Agent.objects.only("slug")))

    def create(self, request: Request) -> Response:
        """Make a receiver: `name`, `channel` and `address` are needed. 201 with it; ask for a `test` next."""
        receiver = Receiver(created_by=request.user)  # type: ignore[misc]  # no user is anonymous here
        self.kwargs["pk"] = _saved(receiver, self.read_body().sent).pk
        return located(self.get_serializer(self.get_object()).data)

    def change(self, row: Receiver, fields: dict[str, Any], expected: tuple[str, ...] | None) -> None:
        with transaction.atomic():
            Receiver.objects.select_for_update().get(pk=row.pk)
            now = self.get_object()
            if expected is not None and (etag := self.etag_of_row(now)) not in expected:
                raise Changed(etag)
            _saved(now, fields)

    def etag_of_row(self, row: Receiver) -> str:
        values = [row.name, row.channel, row.address, row.kinds, row.is_active, row.salt.hex]
        return etag_of([*values, sorted(agent.slug for agent in row.agents.all())])

    @answers({204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Delete a receiver. The log of what was sent to it stays, without its name."""
        self.get_object().delete()
        return Response(status=204)

    @answers({202: DeliveryRow})
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def test(self, request: Request, pk: int) -> Response:
        """Send a test alert. 202: a worker sends it; `deliveries` say what became of it. 409 when the receiver is not active."""
        self.read_body()
        receiver = self.get_object()
        if not receiver.is_active:
            raise Conflict("it is not active: nothing is sent to it")
        return Response(DeliveryRow(send_test(receiver)).data, status=202)

    @answers(DeliveryRow(many=True))
    @action(detail=True)
    def deliveries(self, request: Request, pk: int) -> Response:
        """The newest 50 deliveries to it, tests too."""
        newest = self.get_object().deliveries.select_related("receiver").order_by("-pk")[:50]
        return Response(DeliveryRow(newest, many=True).data)


def _saved(receiver: Receiver, fields: dict[str, Any]) -> Receiver:
    """Check and store a receiver, new or changed."""
    agents = fields.pop("agents", None)
    for name, value in fields.items():
        setattr(receiver, name, value)
    if "address" in fields:
        receiver.failures, receiver.retry_at = 0, None
    try:
        receiver.full_clean()
    except Wrong as wrong:
        raise ValidationError(wrong.message_dict) from None
    with transaction.atomic():
        receiver.save()
        if agents is not None:
            receiver.agents.set(agents)
    return receiver
