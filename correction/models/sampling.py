"""How many conversations of an agent were kept on a day, and at which rate: what machines that sample agree by."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.db import models
from django.db.models import Q

from agents.models import Agent


class SampledDay(models.Model):
    """A day (UTC) on which an agent's new conversations were sampled by quota. The first of them fixes the rate of the day."""

    LOOKED_AT: ClassVar = timedelta(days=7)  # the days before one whose conversations fix its rate

    agent = models.ForeignKey(
        Agent,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
        help_text="empty = of conversations in which no agent spoke yet, by the defaults",
    )
    day = models.DateField()
    rate = models.FloatField(help_text="chance with which the day's first conversation was kept, above 0 to 1")
    kept = models.PositiveBigIntegerField(default=0, help_text="conversations in which the agent began to speak")
    seen = models.FloatField(
        default=0.0,
        help_text="conversations there were, kept or not, begun or continued: each that is kept counts 1 ÷ its chance to be kept",
    )

    class Meta:
        db_table = "sampled_days"
        default_permissions = ()  # no page shows them
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["agent", "day"], condition=Q(agent__isnull=False), name="sampled_day_once_per_agent"
            ),
            models.UniqueConstraint(fields=["day"], condition=Q(agent__isnull=True), name="sampled_day_once"),
            models.CheckConstraint(condition=Q(rate__gt=0, rate__lte=1), name="sampled_day_rate"),
        ]

    def __str__(self) -> str:
        return f"{self.kept} conversations of agent {self.agent_id} on {self.day}"
