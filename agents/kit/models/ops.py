"""What keeps an installation running: workers that live, chores, and requests of the API that must act once."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils import timezone


class IdempotentRequest(models.Model):
    """A POST with an ``Idempotency-Key``: leased before it acts, answered afterwards.

    `status` is null while it runs. The lease is the insert: the unique constraint lets one of two at once through.
    """

    KEPT = timedelta(hours=24)

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=255)
    method = models.CharField(max_length=8)
    path = models.TextField(help_text="with the query")
    body_digest = models.CharField(max_length=64, help_text="SHA-256 of the body as JSON with sorted keys")
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="of the answer; null = still running")
    answer = models.TextField(blank=True, default="", help_text="the answer's JSON")
    headers = models.JSONField(blank=True, default=dict, help_text="of the answer, such as Location")
    lease_owner = models.CharField(max_length=200, blank=True, default="", help_text="host:pid:token of who runs it")
    leased_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "idempotent_requests"
        default_permissions = ()  # answers to others; no page shows them
        constraints = (models.UniqueConstraint(fields=("user", "key"), name="idempotent_once_per_user"),)
        indexes = (models.Index(fields=("created_at",), name="idempotent_created"),)

    def __str__(self) -> str:
        return f"{self.method} {self.path} ({self.key})"


class TraceSpan(models.Model):
    """A span of OpenTelemetry that came in: a child is sent before the span around it, which names the agent."""

    KEPT = timedelta(days=7)

    trace = models.CharField(max_length=64)
    span = models.CharField(max_length=64)
    around = models.CharField(max_length=64, blank=True, default="", help_text="the span around it")
    agent = models.CharField(max_length=200, blank=True, default="", help_text="as the span names it")
    conversation = models.CharField(max_length=120, help_text="slug of the channel its messages are in")
    stored_as = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="name of the agent its messages are stored under; empty = none yet",
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "trace_spans"
        default_permissions = ()  # no page shows them
        constraints = (models.UniqueConstraint(fields=("trace", "span"), name="tracespan_once"),)
        indexes = (
            models.Index(fields=("created_at",), name="tracespan_created"),
            models.Index(fields=("conversation", "span"), name="tracespan_of_message"),
        )

    def __str__(self) -> str:
        return f"{self.trace}/{self.span}"


class WorkerHeartbeat(models.Model):
    """A process that does queued work, and when it was last heard of. Rows of processes that ended stay for a day."""

    class Kind(models.TextChoices):
        WORK = "work", "manage.py work"
        CELERY = "celery", "Celery worker"

    name = models.CharField(max_length=200, unique=True, help_text="host:pid:token")
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    kind = models.CharField(max_length=8, choices=Kind.choices)
    queues = models.CharField(max_length=500, blank=True, default="", help_text="what it works on")
    doing = models.CharField(max_length=80, blank=True, default="", help_text="the queue of what it has in hand")
    done = models.PositiveBigIntegerField(default=0, help_text="pieces of work since it started")
    slots_in_use = models.PositiveIntegerField(default=0, help_text="model calls in flight")
    slots = models.PositiveIntegerField(default=0, help_text="model calls that may be in flight")
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)
    stopped_at = models.DateTimeField(null=True, blank=True, help_text="when it said that it stops")

    class Meta:
        db_table = "worker_heartbeats"
        verbose_name = "worker"
        ordering: ClassVar = ["-seen_at", "-pk"]

    def __str__(self) -> str:
        return f"worker {self.name}"


class Chore(models.Model):
    """Something that is to be done every so often, by one worker at a time (`chores` of an app)."""

    path = models.CharField(max_length=200, unique=True, help_text="dotted path of the callable")
    next_at = models.DateTimeField()
    last_at = models.DateTimeField(null=True, blank=True)
    last_outcome = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        db_table = "work_chores"
        ordering: ClassVar = ["path"]

    def __str__(self) -> str:
        return self.path
