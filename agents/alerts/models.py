"""Alerts, the receivers that are sent them, and what happened to each delivery."""

from __future__ import annotations

import uuid
from typing import ClassVar
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from agents.alerts.addresses import AddressRefused, target_of
from agents.alerts.services import service_of
from agents.kit.alerting import AlertKind
from agents.kit.models.deliveries import Deliverable, ReceiverState
from agents.kit.models.lease import Leasable
from agents.models.conversations import Agent

LONGEST_BUILD = 300  # characters of a build as a tag


class Alert(models.Model):
    """Something that a person has to know of. Of one kind and object there is one until it is acknowledged and has ended."""

    Kind = AlertKind

    kind = models.CharField(max_length=20, choices=AlertKind.choices)
    about = models.CharField(max_length=300, help_text="the object; one of a kind and object is open at a time")
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="alerts")
    title = models.CharField(max_length=300)
    page = models.CharField(
        max_length=300, blank=True, default="", help_text="address that shows it, below the console's"
    )
    times = models.PositiveIntegerField(default=1, help_text="how often it was raised while it was open")
    created_at = models.DateTimeField(auto_now_add=True)
    last_at = models.DateTimeField(auto_now_add=True, help_text="when it was raised last")
    ended_at = models.DateTimeField(
        null=True, blank=True, help_text="when what it is about was over; at once for something that only happened"
    )
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    note = models.CharField(max_length=500, blank=True, default="", help_text="of who acknowledged it")
    build = models.CharField(
        max_length=LONGEST_BUILD,
        blank=True,
        default="",
        help_text="the build that it is of, a tag such as build=41; empty = not known, or it is of none",
    )
    resolved_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="when a person said that a build resolves it; empty = not, or it came back since",
    )
    resolved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    resolved_in = models.CharField(
        max_length=LONGEST_BUILD,
        blank=True,
        default="",
        help_text="the build that resolves it, such as build=42; empty = the next one",
    )
    resolved_after = models.CharField(
        max_length=LONGEST_BUILD, blank=True, default="", help_text="the newest build when it was resolved"
    )
    back_in = models.CharField(
        max_length=LONGEST_BUILD, blank=True, default="", help_text="the build in which it came back and was reopened"
    )

    class Meta:
        db_table = "alerts"
        ordering: ClassVar = ["-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["kind", "about"],
                condition=Q(acknowledged_at__isnull=True) | Q(ended_at__isnull=True),
                name="alert_open_once",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["-id"], condition=Q(acknowledged_at__isnull=True), name="alert_unacknowledged"),
            models.Index(fields=["agent", "-id"], name="alert_of_agent"),
            models.Index(fields=["kind", "-last_at"], name="alert_of_kind"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def url(self) -> str:
        """Return where the console shows it; only the end of the address where the setting CONSOLE_URL is empty."""
        if not settings.CONSOLE_URL:
            return self.page
        return f"{settings.CONSOLE_URL.rstrip('/')}/{self.page}"

    @classmethod
    def open(cls) -> Q:
        """Return the condition for alerts that are not acknowledged, or that last."""
        return Q(acknowledged_at__isnull=True) | Q(ended_at__isnull=True)


class Receiver(ReceiverState):
    """Whom alerts are sent to: by e-mail, to a webhook, or through a chat or paging service."""

    class Channel(models.TextChoices):
        EMAIL = "email", "e-mail"
        WEBHOOK = "webhook", "webhook"
        SERVICE = "service", "chat or paging service"

    name = models.CharField(max_length=80, unique=True, help_text="for your colleagues, such as: on call")
    channel = models.CharField(
        "sent by",
        max_length=8,
        choices=Channel.choices,
        default=Channel.EMAIL,
        help_text="a webhook is sent JSON; a service is Slack, Teams, PagerDuty and the like; e-mail needs the setting EMAIL_URL",
    )
    address = models.CharField(
        max_length=500,
        help_text="e-mail addresses separated by commas, the https address of the webhook, or the webhook address that the service shows",
    )
    kinds = models.JSONField(default=list, blank=True, help_text="kinds of alerts; empty = all")
    agents = models.ManyToManyField(
        Agent,
        blank=True,
        related_name="receivers",
        help_text="empty = all; alerts that are of no agent are always sent",
    )
    is_active = models.BooleanField("active", default=True, help_text="clear it to send nothing for now")
    salt = models.UUIDField(default=uuid.uuid4, editable=False, help_text="a new one makes a new signing secret")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "alert_receivers"
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def addresses(self) -> list[str]:
        """Return the e-mail addresses."""
        return [address.strip() for address in self.address.split(",") if address.strip()]

    @property
    def where(self) -> str:
        """Return the address without what may be secret in it: of a webhook only the host, of slack://… the word before the tokens."""
        if self.channel == self.Channel.EMAIL:
            return self.address
        parts = urlsplit(self.address)
        if parts.scheme in ("https", "http"):
            return parts.hostname or ""
        return parts.scheme

    def clean(self) -> None:
        """Refuse an address that could not be sent to; name field, value and what is allowed."""
        try:
            if self.channel == self.Channel.WEBHOOK:
                target_of(self.address)
            elif self.channel == self.Channel.SERVICE:
                service_of(self.address)
            elif not self.addresses:
                raise ValidationError("")  # gets its text below
            else:
                for address in self.addresses:
                    validate_email(address)
        except AddressRefused as refused:
            raise ValidationError({"address": str(refused)}) from None
        except ValidationError:
            allowed = "allowed: addresses such as ops@example.com, separated by commas"
            raise ValidationError({"address": f"address {self.address!r}: {allowed}"}) from None


class Delivery(Deliverable):
    """An alert on its way to a receiver. It is sent at least once: the id is the same at every try."""

    WHOSE: ClassVar = Coalesce(F("receiver_id"), Value(0))
    STATES: ClassVar = [
        ("pending", "waiting"),
        ("running", "being sent"),
        ("completed", "delivered"),
        ("failed", "given up"),
        ("errored", "given up after crashes"),
        ("cancelled", "not sent: the receiver was switched off or deleted"),
    ]

    status = models.CharField(max_length=16, choices=STATES, default=Leasable.Status.PENDING)
    alert = models.ForeignKey(
        Alert, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries", help_text="empty = a test"
    )
    receiver = models.ForeignKey(
        Receiver, null=True, on_delete=models.SET_NULL, related_name="deliveries", db_index=False
    )
    message_id = models.UUIDField(default=uuid.uuid4, help_text="in the header of every try")

    class Meta:
        db_table = "alert_deliveries"
        verbose_name_plural = "deliveries"
        ordering: ClassVar = ["-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["receiver"], condition=Q(status="running"), name="alert_delivery_one_at_a_time"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                Coalesce(F("receiver_id"), Value(0)),
                F("created_at"),
                F("id"),
                condition=Q(status__in=["pending", "running"]),
                name="alert_delivery_open",
            ),
            models.Index(fields=["receiver", "-id"], name="alert_delivery_of_receiver"),
            models.Index(fields=["status", "finished_at"], name="alert_delivery_status_finished"),
        ]

    def __str__(self) -> str:
        return f"delivery {self.pk}"

    @classmethod
    def leasable(cls) -> Q:
        """Return the condition for deliveries that are due, of receivers that are not left alone for a while."""
        left_alone = Receiver.objects.filter(retry_at__gt=timezone.now())
        return cls.leasable_when_due() & (Q(receiver=None) | ~Q(receiver__in=left_alone))
