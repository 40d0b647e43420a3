"""Sums over what the gate did by hour, so that statistics never scan its logs; they stay when logs are pruned (`agents.kit.ops.sums`)."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from agents.models import Agent


class _Hour(models.Model):
    hour = models.DateTimeField()
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False)
    source = models.CharField(max_length=8)
    synthetic = models.BooleanField(help_text="of synthetic channels, as they were when this was summed")

    class Meta:
        abstract = True


class AttemptHour(_Hour):
    """Logged attempts of one agent (or of none) with one outcome in an hour (UTC)."""

    outcome = models.CharField(max_length=20)
    attempts = models.BigIntegerField()
    firsts = models.BigIntegerField(help_text="of them first drafts")
    firsts_judged = models.BigIntegerField(help_text="of those, judged on at least one dimension")
    failed = models.BigIntegerField(help_text="attempts that failed at least one dimension")

    class Meta:
        db_table = "correction_attempt_hours"
        indexes: ClassVar = [
            models.Index(fields=["hour"], name="attempt_hour"),
            models.Index(fields=["agent", "hour"], name="attempt_hour_agent"),
        ]

    def __str__(self) -> str:
        return f"{self.attempts} attempts of agent {self.agent_id} from {self.hour}"


class DimensionHour(_Hour):
    """Verdicts of one judge on one agent (or on none) and dimension in an hour (UTC). Means are sums divided by weights."""

    dimension = models.CharField(max_length=32)
    judge = models.CharField(max_length=200)
    checks = models.BigIntegerField()
    scored = models.BigIntegerField()
    failures = models.BigIntegerField()
    first_failures = models.BigIntegerField()
    score_sum = models.FloatField(help_text="of score × weight, as the other two")
    score_weight = models.FloatField(
        help_text="of the weights of those scored: as many as `scored` where nothing is sampled"
    )
    first_scored = models.BigIntegerField()
    first_score_sum = models.FloatField()
    first_score_weight = models.FloatField()
    committed_scored = models.BigIntegerField()
    committed_score_sum = models.FloatField()
    committed_score_weight = models.FloatField()
    were_timeout = models.BigIntegerField()
    were_overload = models.BigIntegerField()
    were_error = models.BigIntegerField()
    were_unscored = models.BigIntegerField()
    were_budget = models.BigIntegerField()

    class Meta:
        db_table = "correction_dimension_hours"
        indexes: ClassVar = [
            models.Index(fields=["hour"], name="dimension_hour"),
            models.Index(fields=["agent", "hour"], name="dimension_hour_agent"),
        ]

    def __str__(self) -> str:
        return f"{self.checks} checks of agent {self.agent_id} from {self.hour}"
