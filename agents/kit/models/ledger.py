"""What model calls used and cost, and batches of calls at half price. Every token count and cost shown is a sum over `llm_calls`."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone

from agents.kit.models.lease import Leasable
from agents.kit.text.wording import day_text


class LLMCall(models.Model):
    """One call of a model, also when it failed. Token counts are null when the server did not say them."""

    class Status(models.TextChoices):
        OK = "ok", "ok"
        REFUSED = "refused", "refused"
        TRUNCATED = "truncated", "truncated"
        MALFORMED = "malformed", "malformed"
        TIMEOUT = "timeout", "timeout"
        RATE_LIMITED = "rate_limited", "rate limited"
        UNAVAILABLE = "unavailable", "unavailable"
        REJECTED = "rejected", "rejected"

    created_at = models.DateTimeField(auto_now_add=True, db_index=True)
    role = models.CharField(max_length=12, help_text="judge or actor")
    purpose = models.CharField(max_length=64, help_text="what it was for, e.g. evaluation, gate")
    mechanism = models.CharField(max_length=64, blank=True, default="", help_text="which mechanism asked")
    dimension = models.CharField(max_length=32, blank=True, default="")
    agent = models.ForeignKey(
        "agents.Agent", null=True, blank=True, on_delete=models.SET_NULL, related_name="llm_calls", db_index=False
    )
    run = models.ForeignKey("agents.Run", null=True, blank=True, on_delete=models.SET_NULL, related_name="llm_calls")
    work_id = models.CharField(
        max_length=80, blank=True, default="", help_text="the work it served, e.g. evaluation_run:12"
    )
    provider = models.CharField(max_length=16)
    endpoint = models.CharField(max_length=200, blank=True, default="", help_text="base URL without credentials")
    model = models.CharField(max_length=200, help_text="model asked for")
    served_model = models.CharField(max_length=200, blank=True, default="", help_text="model the server says it used")
    status = models.CharField(max_length=12, choices=Status.choices)
    error = models.CharField(max_length=500, blank=True, default="")
    stop_reason = models.CharField(max_length=32, blank=True, default="")
    input_tokens = models.PositiveIntegerField(null=True, blank=True, help_text="uncached input tokens")
    output_tokens = models.PositiveIntegerField(null=True, blank=True)
    cache_read_tokens = models.PositiveIntegerField(null=True, blank=True)
    cache_write_tokens = models.PositiveIntegerField(null=True, blank=True)
    cost_usd = models.DecimalField(
        max_digits=14, decimal_places=8, null=True, blank=True, help_text="US dollars; empty = unpriced"
    )
    latency_ms = models.PositiveIntegerField(default=0)
    attempts = models.PositiveIntegerField(default=1, help_text="HTTP requests made, retries included")
    batch = models.BooleanField(default=False, help_text="answered in a batch, at the batch price")
    temperature = models.FloatField(null=True, blank=True, help_text="wished for; empty = the server's own")
    temperature_applied = models.BooleanField(
        null=True, blank=True, help_text="whether it was sent: not every server takes one"
    )
    request_id = models.CharField(max_length=120, blank=True, default="")
    request_digest = models.CharField(max_length=64, blank=True, default="", help_text="key for replay")

    class Meta:
        db_table = "llm_calls"
        ordering: ClassVar = ["-pk"]
        verbose_name = "LLM call"
        # Not by `db_index`: on PostgreSQL that makes a second index of a text, for LIKE, and these were more than the rows themselves.
        indexes: ClassVar = [
            models.Index(fields=["agent", "created_at"], name="llm_call_agent_created"),
            models.Index(fields=["work_id"], name="llm_call_work"),
            models.Index(fields=["request_digest"], name="llm_call_digest"),
        ]

    def __str__(self) -> str:
        return f"{self.purpose} call {self.pk} ({self.status})"


class LLMPayload(models.Model):
    """The exact prompt and raw reply of a call, stored only when LLM_STORE_PAYLOADS says so."""

    call = models.OneToOneField(LLMCall, on_delete=models.CASCADE, related_name="payload")
    request = models.JSONField()
    reply = models.TextField(blank=True)
    tool_calls = models.JSONField(default=list, blank=True, help_text="tools the model wanted to use, as it sent them")

    class Meta:
        db_table = "llm_payloads"
        verbose_name = "LLM payload"

    def __str__(self) -> str:
        return f"payload of call {self.call_id}"


class ModelPrice(models.Model):
    """US dollars per million tokens of a model from a day on. A model without a row is *unpriced*, never free."""

    model = models.CharField(max_length=200)
    effective_from = models.DateField()
    input_usd = models.DecimalField(max_digits=10, decimal_places=4, help_text="USD per million uncached input tokens")
    output_usd = models.DecimalField(max_digits=10, decimal_places=4, help_text="USD per million output tokens")
    cache_write_usd = models.DecimalField(
        max_digits=10, decimal_places=4, help_text="USD per million tokens written to the cache (5 min)"
    )
    cache_read_usd = models.DecimalField(
        max_digits=10, decimal_places=4, help_text="USD per million tokens read from the cache"
    )
    long_prompt_tokens = models.PositiveIntegerField(
        null=True, blank=True, help_text="a prompt of more tokens costs the long prompt factor times as much"
    )
    long_prompt_factor = models.DecimalField(max_digits=6, decimal_places=2, default=1)
    batch_factor = models.DecimalField(
        max_digits=4,
        decimal_places=2,
        default=Decimal("0.5"),
        help_text="what a call in a batch costs, as a share of the above",
    )
    source = models.CharField(max_length=200, blank=True, default="", help_text="where the figures were read, and when")

    class Meta:
        db_table = "model_prices"
        ordering: ClassVar = ["model", "-effective_from"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["model", "effective_from"], name="model_price_day_unique")
        ]

    def __str__(self) -> str:
        return f"{self.model} from {day_text(self.effective_from)}"


class LedgerHour(models.Model):
    """The calls of one agent (or of none) in an hour (UTC), for each purpose, model and so on. They stay when calls are pruned.

    Means are sums divided by `calls`; percentiles cannot be added up.
    """

    hour = models.DateTimeField()
    agent = models.ForeignKey(
        "agents.Agent", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    purpose = models.CharField(max_length=64)
    mechanism = models.CharField(max_length=64)
    dimension = models.CharField(max_length=32)
    model = models.CharField(max_length=200)
    role = models.CharField(max_length=12)
    provider = models.CharField(max_length=16)
    status = models.CharField(max_length=12)
    calls = models.BigIntegerField()
    unpriced = models.BigIntegerField(help_text="calls without a price, not in cost_usd")
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    cache_read_tokens = models.BigIntegerField()
    cache_write_tokens = models.BigIntegerField()
    cost_usd = models.DecimalField(max_digits=20, decimal_places=8)
    latency_ms = models.BigIntegerField()

    class Meta:
        db_table = "ledger_hours"
        indexes: ClassVar = [
            models.Index(fields=["hour"], name="ledger_hour"),
            models.Index(fields=["agent", "hour"], name="ledger_hour_agent"),
        ]

    def __str__(self) -> str:
        return f"{self.calls} calls of agent {self.agent_id} from {self.hour}"


class Rollup(models.Model):
    """How far a kind of rows is summed by hour (`agents.kit.ops.sums`)."""

    name = models.CharField(max_length=32, unique=True, help_text="what is summed: ledger, or gate")
    closed_before = models.DateTimeField(
        null=True, blank=True, help_text="whole hours before this are summed up; later rows are read themselves"
    )

    class Meta:
        db_table = "rollups"
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return f"sums of the {self.name}"


class LLMBatch(Leasable):
    """One batch. Pending = to be looked at from `next_look_at` on; completed = its answers are stored; failed = it brought no answer.

    The row is there before anything is sent, and `batch_id` only once the server said it: a row without one is looked for.
    """

    work_id = models.CharField(max_length=80, help_text="the work it serves, e.g. evaluation_run:12")
    round = models.PositiveSmallIntegerField(default=1, help_text="which submission of this work it is, from 1")
    role = models.CharField(max_length=12, help_text="judge or actor")
    model = models.CharField(max_length=200)
    base_url = models.CharField(max_length=200, help_text="who was given it")
    batch_id = models.CharField(
        max_length=120, blank=True, default="", help_text="the server's id; empty = not known (yet)"
    )
    presumed = models.BooleanField(
        default=False, help_text="matched by its size after its name was lost: ours only once its results are seen"
    )
    not_ours = models.JSONField(
        default=list, blank=True, help_text="batches of the server that turned out to be others'"
    )
    provider_status = models.CharField(
        max_length=16, blank=True, default="", help_text="in_progress, canceling or ended, as the server says"
    )
    requests = models.PositiveIntegerField(default=0, help_text="questions that were submitted")
    answered = models.PositiveIntegerField(default=0, help_text="how many were answered, when last looked at")
    agent = models.ForeignKey(
        "agents.Agent",
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
        """Return the condition of all work, for batches whose next look is due."""
        return super().leasable() & Q(next_look_at__lte=timezone.now())

    def given_up(self, why: str) -> None:
        """Free its questions, so that they are asked again."""
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
