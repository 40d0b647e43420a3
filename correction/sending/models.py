"""Receivers of scores, and what happened to each delivery."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from agents.kit.models.deliveries import Deliverable, ReceiverState


class ScoreReceiver(ReceiverState):
    """Where scores are sent: one that the settings of the installation name. The row is made with its first delivery."""

    class Name(models.TextChoices):
        OTLP = "otlp", "OpenTelemetry"
        LANGFUSE = "langfuse", "Langfuse"

    name = models.CharField(max_length=16, unique=True, choices=Name.choices)
    salt = models.UUIDField(
        default=uuid.uuid4, editable=False, help_text="ids of records are made from it: two installations share none"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "receiver of scores"
        verbose_name_plural = "receivers of scores"
        db_table = "score_receivers"
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.get_name_display()


class ScoreDelivery(Deliverable):
    """Results on their way to a receiver: the judgements of an evaluation, the verdicts of an attempt, or changes.

    They are sent at least once: the id of each is the same at every try.
    """

    WHOSE: ClassVar = F("receiver_id")
    STATES: ClassVar = [
        ("pending", "waiting"),
        ("running", "being sent"),
        ("completed", "delivered"),
        ("failed", "given up"),
        ("errored", "given up after crashes"),
        ("cancelled", "not sent: the receiver is not configured any more"),
    ]

    class Kind(models.TextChoices):
        EVALUATION = "evaluation", "judgements of an evaluation"
        ATTEMPT = "attempt", "verdicts of an attempt at the gate"
        CHANGES = "changes", "changes that an evaluation showed"

    status = models.CharField(max_length=16, choices=STATES, default=Deliverable.Status.PENDING)
    receiver = models.ForeignKey(ScoreReceiver, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    # Not a foreign key: what was deleted before it was sent is not sent, and must not be kept from going.
    object_id = models.PositiveBigIntegerField(help_text="id of the evaluation or the attempt")
    parts = models.JSONField(default=list, blank=True, help_text="ids of the changes that are sent")
    since = models.DateTimeField(
        null=True, blank=True, help_text="only what was judged since is sent: the rest was queued before; empty = all"
    )
    sent_through = models.PositiveBigIntegerField(
        default=0, editable=False, help_text="id of the last result that was taken: a try continues after it"
    )
    sent = models.PositiveIntegerField(default=0, help_text="results that were taken")
    rejected = models.PositiveIntegerField(default=0, help_text="results that the receiver answered it does not take")

    class Meta:
        verbose_name_plural = "score deliveries"
        db_table = "score_deliveries"
        ordering: ClassVar = ["-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["receiver"], condition=Q(status="running"), name="score_delivery_one_at_a_time"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                F("receiver_id"),
                F("created_at"),
                F("id"),
                condition=Q(status__in=["pending", "running"]),
                name="score_delivery_open",
            ),
            models.Index(fields=["receiver", "-id"], name="score_delivery_of_receiver"),
            models.Index(fields=["kind", "object_id"], name="score_delivery_of_object"),
            models.Index(fields=["status", "finished_at"], name="score_delivery_status_finished"),
        ]

    def __str__(self) -> str:
        return f"score delivery {self.pk}"

    @classmethod
    def leasable(cls) -> Q:
        """Return the condition for deliveries that are due, of receivers that are not left alone for a while."""
        left_alone = ScoreReceiver.objects.filter(retry_at__gt=timezone.now())
        return cls.leasable_when_due() & ~Q(receiver__in=left_alone)
