"""What colleagues agree on about an item of the review queue: who looks at it, and that a failure needs nothing more."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models


class ReviewItem(models.Model):
    """An item that was assigned or dismissed. What it is about stays where it is: the queue reads it there."""

    kind = models.CharField(max_length=32, help_text="which part of the queue")
    key = models.CharField(max_length=300, help_text="the item within its part")
    assigned_to = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="review_items"
    )
    dismissed_at = models.DateTimeField(null=True, blank=True)
    dismissed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "review_items"
        ordering: ClassVar = ["-pk"]
        default_permissions = ("view", "change")
        constraints: ClassVar = [models.UniqueConstraint(fields=["kind", "key"], name="review_item_once")]
        indexes: ClassVar = [models.Index(fields=["created_at"], name="review_item_created")]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"
