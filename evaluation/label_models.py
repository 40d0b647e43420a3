"""What people say of the same things a judge scored (calibration). Read through `evaluation.models`."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q


class LabelSet(models.Model):
    """Judgements drawn at random for people to label: what the prediction-powered means rest on.

    The population is what was drawn from, so that the labels speak for it and for nothing else.
    """

    name = models.CharField(max_length=100, unique=True)
    judge = models.CharField(max_length=200)
    procedure = models.CharField(max_length=64)
    dimension = models.CharField(max_length=32)
    population = models.JSONField(default=dict, help_text="the runs drawn from and the filters")
    population_size = models.PositiveIntegerField()
    seed = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    scores: models.ManyToManyField[models.Model, models.Model] = models.ManyToManyField(
        "evaluation.EvaluationScore", related_name="label_sets", help_text="what was drawn"
    )

    class Meta:
        db_table = "label_sets"
        ordering: ClassVar = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return self.name


class ScoreLabel(models.Model):
    """One person's score of what a judge scored, given without seeing the judge's."""

    evaluation_score = models.ForeignKey("evaluation.EvaluationScore", on_delete=models.CASCADE, related_name="labels")
    annotator = models.CharField(max_length=150, help_text="username, or the name a file gives")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="score_labels"
    )
    value = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(9)],
        help_text="0 to 9 for the claim as written, as the judge's raw score; empty = cannot be told from what is shown",
    )
    note = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "score_labels"
        ordering: ClassVar = ["evaluation_score", "annotator"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation_score", "annotator"], name="label_once_per_annotator"),
            models.CheckConstraint(condition=Q(value__isnull=True) | Q(value__gte=0, value__lte=9), name="label_range"),
        ]

    def __str__(self) -> str:
        return f"{self.annotator}: {'cannot tell' if self.value is None else self.value}"
