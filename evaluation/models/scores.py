"""The judgements of an evaluation run."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from agents.models import LLMCall, Message
from evaluation.models.choices import Dimension
from evaluation.models.runs import EvaluationRun


class EvaluationScore(models.Model):
    """One judgement: a proposition on a message (or on the whole window). Made `pending`, judged once."""

    class Status(models.TextChoices):
        PENDING = "pending", "pending"
        SCORED = "scored", "scored"
        TRIVIAL = "trivial", "trivial"
        UNSCORED = "unscored", "unscored"

    evaluation_run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="scores")
    dimension = models.CharField(max_length=32, choices=Dimension.choices)
    proposition_id = models.CharField(max_length=120)
    message = models.ForeignKey(
        Message,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="evaluation_scores",
        help_text="empty = the whole window",
    )
    compared_with = models.ForeignKey(
        Message,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="compared_evaluation_scores",
        help_text="the earlier message of the pair (self-consistency)",
    )
    over_window = models.BooleanField(
        default=False, help_text="adherence of a whole window: it never was about one message, and none was deleted"
    )
    repeat = models.PositiveSmallIntegerField(default=1, help_text="which of the run's repeated judgements, from 1")
    claim = models.TextField(help_text="the claim as the judge read it")
    weight = models.FloatField(default=1.0)
    inverted = models.BooleanField(default=False)
    status = models.CharField(
        max_length=10,
        choices=Status.choices,
        default=Status.PENDING,
        help_text="trivial = could not be false here (stored as 9, not averaged); unscored = could not be judged, see reason",
    )
    score = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(9)],
        help_text="0 to 9, higher is better (inverted claims flipped, penalties applied)",
    )
    raw_score = models.PositiveSmallIntegerField(null=True, blank=True, help_text="0 to 9 as the judge gave it")
    first_score = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="the score before the judge was asked whether it is sure (double check)"
    )
    count = models.PositiveIntegerField(
        null=True, blank=True, help_text="how many distinct ideas; has no upper end and is in no mean"
    )
    flaws = models.JSONField(default=list, blank=True, help_text="flaws the judge listed (hard mode)")
    evidence = models.CharField(max_length=16, blank=True, default="", help_text="present or absent")
    reasoning = models.TextField(blank=True, default="")
    justification = models.TextField(blank=True, default="")
    confidence = models.FloatField(null=True, blank=True, help_text="0 to 1, the judge's own")
    recommendations = models.TextField(blank=True, default="")
    reason = models.CharField(max_length=300, blank=True, default="", help_text="why it is unscored or trivial")
    context_snippet = models.TextField(blank=True, default="", help_text="the start of what was judged")
    judge = models.CharField(max_length=200, blank=True, default="", help_text="rule, or the model that judged")
    served_model = models.CharField(max_length=200, blank=True, default="")
    call = models.ForeignKey(
        LLMCall, null=True, blank=True, on_delete=models.SET_NULL, related_name="evaluation_scores"
    )
    judged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "evaluation_scores"
        ordering: ClassVar = ["evaluation_run", "dimension", "proposition_id", "pk"]
        indexes: ClassVar = [models.Index(fields=["evaluation_run", "status"], name="score_run_status")]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["evaluation_run", "dimension", "proposition_id", "message", "repeat"],
                condition=Q(message__isnull=False),
                name="score_once_per_message",
            ),
            models.CheckConstraint(condition=Q(score__isnull=True) | Q(score__gte=0, score__lte=9), name="score_range"),
            models.CheckConstraint(
                condition=Q(raw_score__isnull=True) | Q(raw_score__gte=0, raw_score__lte=9), name="raw_score_range"
            ),
            models.CheckConstraint(
                condition=(
                    Q(status__in=["pending", "unscored"], score__isnull=True, count__isnull=True)
                    | Q(status="scored", score__isnull=False, count__isnull=True)
                    | Q(status="scored", score__isnull=True, count__isnull=False)
                    | Q(status="trivial", score=9, count__isnull=True)
                ),
                name="score_matches_status",
            ),
        ]

    def __str__(self) -> str:
        number = self.score if self.count is None else self.count
        return f"{self.proposition_id}: {self.status if number is None else number}"
