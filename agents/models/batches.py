"""Questions that were handed in together to be answered within a day at half the price (Message Batches)."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone

from agents.models.ledger import LLMCall
from agents.models.personas import Agent
from agents.work.lease import Leasable


class LLMBatch(Leasable):
    """One batch. Pending = to be looked at from `next_look_at` on; completed = its answers are stored; failed = it brought no answer.

    The row is there before anything is sent, and `batch_id` only once the server said it: a row without one is looked for.
    """

    work_id = models.CharField(max_length=80, help_text="the work it serves, e.g. evaluation_run:12")
    round = models.PositiveSmallIntegerField(
        default=1, help_text="the first, second … time this work handed something in"
    )
    role = models.CharField(max_length=12, help_text="judge or actor")
    model = models.CharField(max_length=200)
    base_url = models.CharField(max_length=200, help_text="who was given it")
    batch_id = models.CharField(
        max_length=120, blank=True, default="", help_text="the server's id; empty = not known (yet)"
    )
    presumed = models.BooleanField(
        default=False, help_text="found by its size after its name was lost: ours only once its results are seen"
    )
    not_ours = models.JSONField(
        default=list, blank=True, help_text="batches of the server that turned out to be others'"
    )
    provider_status = models.CharField(
        max_length=16, blank=True, default="", help_text="in_progress, canceling or ended, as the server says"
    )
    requests = models.PositiveIntegerField(default=0, help_text="how many were handed in")
    answered = models.PositiveIntegerField(default=0, help_text="how many were answered, when last looked at")
    agent = models.ForeignKey(
        Agent,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="the agent that is asked about; empty = none",
    )
    planned_usd = models.DecimalField(
        max_digits=14,
        decimal_places=8,
        default=Decimal(0),
        help_text="US dollars it is expected to cost: budgets count it while it is open",
    )
    looks = models.PositiveIntegerField(default=0)
    next_look_at = models.DateTimeField(help_text="when to ask the server again")
    expires_at = models.DateTimeField(null=True, blank=True, help_text="when the server gives up what is not answered")
    cancel_requested_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "llm_batches"
        ordering: ClassVar = ["-pk"]
        verbose_name = "LLM batch"
        verbose_name_plural = "LLM batches"
        indexes: ClassVar = [
            models.Index(fields=["status", "next_look_at"], name="llm_batch_due"),
            models.Index(fields=["work_id"], name="llm_batch_work"),
        ]

    def __str__(self) -> str:
        return f"batch {self.batch_id or self.pk} of {self.work_id}"

    @classmethod
    def leasable(cls) -> Q:
        """As of all work, once its next look is due."""
        return super().leasable() & Q(next_look_at__lte=timezone.now())

    def given_up(self, why: str) -> None:
        """Its questions are free to be asked again."""
        self.rows.filter(result="").update(result=LLMBatchRequest.Result.ERRORED, error=why[:500])


class LLMBatchRequest(models.Model):
    """A question of a batch, and its answer until the work it served has ended."""

    class Result(models.TextChoices):
        SUCCEEDED = "succeeded", "answered"
        ERRORED = "errored", "refused by the server"
        EXPIRED = "expired", "not answered within a day"
        CANCELED = "canceled", "cancelled before it was answered"
        LOST = "lost", "never reached the server"

    batch = models.ForeignKey(LLMBatch, on_delete=models.CASCADE, related_name="rows")
    custom_id = models.CharField(max_length=64, unique=True, help_text="our name for it")
    work_id = models.CharField(max_length=80)
    request_key = models.CharField(max_length=64, help_text="digest of the question and of what it is asked for")
    request_digest = models.CharField(max_length=64)
    label = models.JSONField(help_text="columns of its ledger row")
    result = models.CharField(max_length=12, choices=Result.choices, blank=True, default="")
    text = models.TextField(blank=True, default="", help_text="the answer; emptied when the work has ended")
    stop_reason = models.CharField(max_length=32, blank=True, default="")
    served_model = models.CharField(max_length=200, blank=True, default="")
    error = models.CharField(max_length=500, blank=True, default="")
    call = models.ForeignKey(LLMCall, null=True, blank=True, on_delete=models.SET_NULL, related_name="batch_requests")

    class Meta:
        db_table = "llm_batch_requests"
        ordering: ClassVar = ["pk"]
        indexes: ClassVar = [models.Index(fields=["work_id"], name="llm_batch_request_work")]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["work_id", "request_key"], condition=Q(result=""), name="llm_batch_request_once_at_a_time"
            )
        ]

    def __str__(self) -> str:
        return f"{self.custom_id}: {self.result or 'waiting'}"
