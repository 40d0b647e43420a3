"""Voice line-ups that were asked for."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from agents.kit.models import Leasable
from agents.models import Channel


class LineUpRun(Leasable):
    """A voice line-up of a channel, made by a worker: it takes seconds, which no page should wait for."""

    WHOSE: ClassVar = F("channel_id") * -1

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="line_ups")
    window = models.CharField(max_length=32, default="all", help_text="all, last:N, or a duration such as 7d or 24h")
    where = models.JSONField(default=dict, blank=True, help_text="tags a message must have to be compared")
    options = models.JSONField(
        default=dict, blank=True, editable=False, help_text="everybody, min_lines, permutations, seed; empty = as usual"
    )
    result = models.JSONField(default=dict, blank=True, help_text="what `manage.py lineup --json` prints")
    last_position = models.PositiveBigIntegerField(
        default=0, help_text="the channel's newest message when it was measured"
    )

    class Meta:
        db_table = "evaluation_line_ups"
        verbose_name = "voice line-up"
        ordering: ClassVar = ["-created_at", "-pk"]
        indexes: ClassVar = [models.Index(fields=["channel", "-created_at"], name="line_up_channel_created")]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["channel"], condition=Q(status__in=["pending", "running"]), name="line_up_one_waiting"
            )
        ]

    def __str__(self) -> str:
        return f"voices in {self.channel}"
