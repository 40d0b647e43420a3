"""Which measurements are compared, and the falls that were found."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from agents.models import Agent
from evaluation.models import Dimension, EvaluationRun, EvaluationSchedule, Method


class Baseline(models.Model):
    """The current baseline of an agent for one judge, procedure and dimension; replaced only by a capture that succeeded."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="baselines")
    judge = models.CharField(max_length=200)
    procedure = models.CharField(
        max_length=64, default=Method.PLUMBLINE.value, help_text="how it was judged, e.g. plumbline+hard"
    )
    dimension = models.CharField(max_length=32, choices=Dimension.choices)
    evaluation_run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="baselines")
    score = models.FloatField(
        null=True, blank=True, help_text="0 to 9; empty for a count, and where only a statistic compares"
    )
    count = models.PositiveIntegerField(null=True, blank=True, help_text="distinct ideas, for ideas quantity")
    persona_digest = models.CharField(max_length=64, blank=True, default="", help_text="persona it was captured under")
    captured_at = models.DateTimeField()

    class Meta:
        db_table = "baselines"
        ordering: ClassVar = ["agent", "judge", "dimension"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent", "judge", "procedure", "dimension"], name="baseline_one_current"),
            models.CheckConstraint(
                condition=Q(score__gte=0, score__lte=9, count__isnull=True) | Q(score__isnull=True),
                name="baseline_score_range",
            ),
        ]

    def __str__(self) -> str:
        number = self.count if self.score is None else round(self.score, 1)
        return f"{self.agent.slug} {self.dimension}: {'no score' if number is None else number}"


class Evidence(models.Model):
    """That a completed evaluation of an agent scored something in a dimension, and how new the messages were.

    Agent, judge and procedure are those of the evaluation, repeated here for the index.
    """

    evaluation_run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="evidence")
    dimension = models.CharField(max_length=32, choices=Dimension.choices)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    judge = models.CharField(max_length=200)
    procedure = models.CharField(max_length=64)
    newest_message_at = models.DateTimeField(
        help_text="when the newest message that was judged was said (stored, where it has no time)"
    )

    class Meta:
        db_table = "evaluation_evidence"
        ordering: ClassVar = ["-newest_message_at", "-evaluation_run_id"]
        indexes: ClassVar = [
            models.Index(
                fields=["agent", "judge", "procedure", "dimension", "-newest_message_at", "-evaluation_run"],
                name="evidence_newest",
            )
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation_run", "dimension"], name="evidence_once_per_dimension")
        ]

    def __str__(self) -> str:
        return f"{self.dimension} in evaluation {self.evaluation_run_id}"


class DriftAlert(models.Model):
    """A lasting fall in a series of scores, reported once. Series of other judges or procedures are other series."""

    schedule = models.ForeignKey(
        EvaluationSchedule, null=True, blank=True, on_delete=models.SET_NULL, related_name="alerts"
    )
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="drift_alerts")
    dimension = models.CharField(max_length=32)
    judge = models.CharField(max_length=200)
    procedure = models.CharField(max_length=64)
    evaluation_run = models.ForeignKey(
        "evaluation.EvaluationRun", on_delete=models.CASCADE, related_name="alerts", help_text="where it was noticed"
    )
    since = models.DateTimeField(help_text="when the fall began, as estimated by the test")
    before = models.FloatField(help_text="mean score before, 0 to 9")
    after = models.FloatField(help_text="mean score since, 0 to 9")
    created_at = models.DateTimeField(auto_now_add=True)
    alert_id = models.PositiveBigIntegerField(
        null=True, blank=True, db_index=True, help_text="of the alert that people were sent; empty = none was raised"
    )
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    note = models.CharField(max_length=500, blank=True, default="", help_text="of who acknowledged it")

    class Meta:
        db_table = "drift_alerts"
        ordering: ClassVar = ["-created_at", "-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation_run", "agent", "dimension"], name="drift_alert_once_per_run")
        ]

    def __str__(self) -> str:
        return f"{self.agent.slug} {self.dimension}: {self.before:.1f} → {self.after:.1f}"
