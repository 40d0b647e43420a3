"""Sums over what the gate did, by hour and day, so that statistics never scan its logs; they stay when logs are pruned."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from agents.models import Agent, Span


class _Sums(models.Model):
    span = models.PositiveSmallIntegerField(choices=Span.choices)
    start = models.DateTimeField()
    source = models.CharField(max_length=8)
    played = models.BooleanField(help_text="of synthetic channels, as they were when this was summed")

    class Meta:
        abstract = True


class AttemptSums(_Sums):
    """Logged attempts of one outcome."""

    outcome = models.CharField(max_length=20)
    attempts = models.BigIntegerField()
    firsts = models.BigIntegerField(help_text="of them first drafts")
    firsts_judged = models.BigIntegerField(help_text="of those, judged on at least one dimension")
    failed = models.BigIntegerField(help_text="attempts that failed at least one dimension")

    class Meta:
        abstract = True


class DimensionSums(_Sums):
    """Verdicts on one dimension, where this judge was asked. Means are sums divided by counts."""

    dimension = models.CharField(max_length=32)
    judge = models.CharField(max_length=200)
    checks = models.BigIntegerField()
    scored = models.BigIntegerField()
    failures = models.BigIntegerField()
    first_failures = models.BigIntegerField()
    score_sum = models.FloatField()
    first_scored = models.BigIntegerField()
    first_score_sum = models.FloatField()
    committed_scored = models.BigIntegerField()
    committed_score_sum = models.FloatField()
    were_timeout = models.BigIntegerField()
    were_overload = models.BigIntegerField()
    were_error = models.BigIntegerField()
    were_unscored = models.BigIntegerField()
    were_budget = models.BigIntegerField()

    class Meta:
        abstract = True


class AttemptSum(AttemptSums):
    """Attempts of one agent (or of none) in an hour or a day."""

    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False)

    class Meta:
        db_table = "correction_attempt_sums"
        indexes: ClassVar = [
            models.Index(fields=["span", "start"], name="attempt_sum_start"),
            models.Index(fields=["agent", "span", "start"], name="attempt_sum_agent"),
        ]

    def __str__(self) -> str:
        return f"{self.attempts} attempts of agent {self.agent_id} from {self.start} ({self.get_span_display()})"


class AttemptTotal(AttemptSums):
    """Attempts of everybody in an hour or a day."""

    class Meta:
        db_table = "correction_attempt_totals"
        indexes: ClassVar = [models.Index(fields=["span", "start"], name="attempt_total_start")]

    def __str__(self) -> str:
        return f"{self.attempts} attempts from {self.start} ({self.get_span_display()})"


class DimensionSum(DimensionSums):
    """Verdicts on one agent (or on none) in an hour or a day."""

    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False)

    class Meta:
        db_table = "correction_dimension_sums"
        indexes: ClassVar = [
            models.Index(fields=["span", "start"], name="dimension_sum_start"),
            models.Index(fields=["agent", "span", "start"], name="dimension_sum_agent"),
        ]

    def __str__(self) -> str:
        return f"{self.checks} checks of agent {self.agent_id} from {self.start} ({self.get_span_display()})"


class DimensionTotal(DimensionSums):
    """Verdicts on everybody in an hour or a day."""

    class Meta:
        db_table = "correction_dimension_totals"
        indexes: ClassVar = [models.Index(fields=["span", "start"], name="dimension_total_start")]

    def __str__(self) -> str:
        return f"{self.checks} checks from {self.start} ({self.get_span_display()})"
