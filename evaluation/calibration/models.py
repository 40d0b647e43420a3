"""What people say of the same things a judge scored (calibration)."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

LEAST_ITEMS = (
    20  # fewest labelled judgements whose kappa is shown beside scores: intervals of fewer are not to be trusted
)


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
        "evaluation.EvaluationScore", through="DrawnScore", related_name="label_sets", help_text="what was drawn"
    )

    class Meta:
        db_table = "label_sets"
        ordering: ClassVar = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return self.name


class DrawnScore(models.Model):
    """A judgement that was drawn. In the order of drawing, any first few are a random draw, too: it is labelled in that order."""

    label_set = models.ForeignKey(LabelSet, on_delete=models.CASCADE, related_name="drawn")
    evaluation_score = models.ForeignKey("evaluation.EvaluationScore", on_delete=models.CASCADE, related_name="drawn")
    place = models.PositiveIntegerField(help_text="from 1, in the order of drawing")

    class Meta:
        db_table = "label_set_scores"
        ordering: ClassVar = ["label_set", "place"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["label_set", "evaluation_score"], name="score_drawn_once")
        ]

    def __str__(self) -> str:
        return f"{self.place} of {self.label_set}"


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
        help_text="0 to 9 for the claim as written, as the judge's raw score; empty = cannot be scored from what is shown",
    )
    note = models.TextField(blank=True, default="")
    blind = models.BooleanField(
        default=True, help_text="given before the judge's score was shown; a label changed afterwards is in no figure"
    )
    withdrawn = models.BooleanField(
        default=False, help_text="taken back by its annotator, to be given again; counts as no label meanwhile"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "score_labels"
        ordering: ClassVar = ["evaluation_score", "annotator"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation_score", "annotator"], name="label_once_per_annotator"),
            models.CheckConstraint(condition=Q(value__isnull=True) | Q(value__gte=0, value__lte=9), name="label_range"),
            models.CheckConstraint(condition=Q(withdrawn=False) | Q(value__isnull=True), name="label_withdrawn_empty"),
        ]

    def __str__(self) -> str:
        return f"{self.annotator}: {'cannot tell' if self.value is None else self.value}"


class JudgeCalibration(models.Model):
    """The trust in a judge in one dimension, as it was last computed: what is shown beside the judge's scores.

    Its agreement with people, and its swap and order tests (`manage.py check_judge`), of which there may be one without the others. Each
    of them says who judged; only those by the newest model and prompt, `identity`, count.

    `changes` counts what happened to its labels; figures computed for an earlier count are stale, and a worker computes them again.
    """

    judge = models.CharField(max_length=200)
    procedure = models.CharField(max_length=64)
    dimension = models.CharField(max_length=32)
    kappa = models.FloatField(null=True, blank=True, help_text="quadratic-weighted kappa; empty = cannot be computed")
    kappa_low = models.FloatField(null=True, blank=True, help_text="lower end of its 95 % interval")
    kappa_high = models.FloatField(null=True, blank=True, help_text="upper end of its 95 % interval")
    labels = models.PositiveIntegerField(default=0, help_text="blind labels with a value")
    items = models.PositiveIntegerField(default=0, help_text="judgements that have such a label")
    annotators = models.PositiveIntegerField(default=0)
    figures = models.JSONField(default=dict, blank=True, help_text="all figures with their intervals")
    swap_test = models.JSONField(
        default=dict,
        blank=True,
        help_text="how well it distinguished agents' own words from those of others; empty = not checked",
    )
    order_test = models.JSONField(
        default=dict,
        blank=True,
        help_text="what the order of propositions in a call does to their scores; empty = not checked",
    )
    observed = models.JSONField(
        default=dict, blank=True, help_text="what its newest evaluations show: coverage, spread between repeats"
    )
    identity = models.JSONField(
        default=dict,
        blank=True,
        help_text="endpoint, served model and prompt digest of its newest scores; empty = not known",
    )
    # Release 1.0 writes it, and must run beside the next one. Drop it in the release after that.
    labels_digest = models.CharField(
        max_length=64, blank=True, default="", help_text="of the labels and scores the figures were computed from"
    )
    changes = models.PositiveBigIntegerField(default=0, help_text="how often its labels changed")
    computed_changes = models.PositiveBigIntegerField(
        default=0, help_text="how often they had changed when the figures were computed"
    )
    computed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "judge"
        db_table = "judge_calibrations"
        ordering: ClassVar = ["judge", "procedure", "dimension"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["judge", "procedure", "dimension"], name="judge_calibration_once")
        ]

    def __str__(self) -> str:
        return f"{self.judge} ({self.procedure}), {self.dimension}"

    @property
    def is_stale(self) -> bool:
        """Return whether labels changed since the figures were computed."""
        return self.changes != self.computed_changes
