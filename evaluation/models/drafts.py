"""Proposition drafts as the console knows them: they live in files, so there is no table, only the rights to see and to decide."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class _NoRows(models.Manager["PropositionDraft"]):
    def get_queryset(self) -> models.QuerySet[PropositionDraft]:
        return super().get_queryset().none()  # so that nothing that goes through all models asks for the table


class PropositionDraft(models.Model):
    """A proposition that waits for a person (`active: false` in its file). Carries permissions and log entries, never rows."""

    objects: ClassVar[_NoRows] = _NoRows()

    class Meta:
        managed = False
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return "proposition draft"
