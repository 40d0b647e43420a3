"""Tokens of the API: what lets a program act as a user."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime
from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models
from django.utils import timezone


class ApiToken(models.Model):
    """A named key of a user. Only a digest of it is stored; it has 256 random bits, so that a plain hash is enough."""

    PREFIX: ClassVar = "pl_"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100, help_text="which program uses it")
    digest = models.CharField(max_length=64, unique=True, editable=False, help_text="SHA-256 of the key")
    hint = models.CharField("token", max_length=12, editable=False, help_text="its first and last characters")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="refused from then on; empty = never")

    class Meta:
        verbose_name = "API token"
        db_table = "api_tokens"
        ordering: ClassVar = ["-pk"]
        default_permissions = ("view", "add", "delete")

    def __str__(self) -> str:
        return f"token {self.name} of {self.user}"

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()

    @classmethod
    def make(cls, *, user: User, name: str, expires_at: datetime | None) -> tuple[ApiToken, str]:
        """Store a new token; return it and its key, which is nowhere else."""
        key = cls.PREFIX + secrets.token_urlsafe(32)
        hint = f"{key[:6]}…{key[-4:]}"
        return cls.objects.create(
            user=user, name=name, digest=cls.digest_of(key), hint=hint, expires_at=expires_at
        ), key

    @staticmethod
    def digest_of(key: str) -> str:
        return hashlib.sha256(key.encode()).hexdigest()
