"""Saved views: a list of the console as a person filtered, searched and sorted it, under a name."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models


class SavedView(models.Model):
    """A view of a list. It stores what the list's address held, and nothing that the list shows."""

    table = models.CharField(max_length=80, help_text="whose list: label of the model, such as agents.agent")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2000, help_text="filters, search and order, as the list's address has them")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    is_shared = models.BooleanField(default=False, help_text="whether everyone sees it who may see the list")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "saved_views"
        ordering: ClassVar = ["-pk"]
        default_permissions = ()
        permissions: ClassVar = [("share_savedview", "Can share views of lists with everyone")]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["table", "owner", "name"], name="saved_view_once_per_name")
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.table})"
