"""What the API remembers of requests that acted, so that one sent twice acts once."""

from __future__ import annotations

from datetime import timedelta

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
        default_permissions = ()  # answers to others; no page shows them
        constraints = (models.UniqueConstraint(fields=("user", "key"), name="idempotent_once_per_user"),)
        indexes = (models.Index(fields=("created_at",), name="idempotent_created"),)

    def __str__(self) -> str:
        return f"{self.method} {self.path} ({self.key})"
