"""What was measured: evaluation runs, their scores, and the baselines that are current."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from agents.models import Agent, Channel, Claimable, LLMCall, Message


class Dimension(models.TextChoices):
    """The five dimensions (specification 001); the id is the same everywhere, the label is for people."""

    ADHERENCE = "adherence", "Persona adherence"
    CONSISTENCY = "consistency", "Self-consistency"
    FLUENCY = "fluency", "Fluency"
    CONVERGENCE = "convergence", "Convergence (voice divergence)"
    IDEAS_QUANTITY = "ideas_quantity", "Ideas quantity"


def is_heuristic(judge: str) -> bool:
    """Whether a judge is an offline heuristic: shown as one, never averaged or compared with an LLM's scores."""
    return judge.startswith("offline:")


class EvaluationRun(Claimable):
    """One evaluation of exactly one target: an agent, or a channel. Its items are `EvaluationScore` rows."""

    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="evaluation_runs")
    channel = models.ForeignKey(
        Channel, null=True, blank=True, on_delete=models.CASCADE, related_name="evaluation_runs"
    )
    dimensions = models.JSONField(help_text="ids of the dimensions measured")
    is_baseline = models.BooleanField(default=False)
    judge = models.CharField(max_length=200, help_text="model that judged; offline judges are heuristic")
    window = models.CharField(max_length=32, default="all", help_text="all, last:N, or a duration such as 7d or 24h")
    window_start = models.DateTimeField(
        null=True, blank=True, help_text="earliest time in the window; empty = no limit"
    )
    window_end = models.DateTimeField(null=True, blank=True, help_text="latest time in the window; empty = no limit")
    where = models.JSONField(default=dict, blank=True, help_text="tags a message must have to be measured")
    samples = models.PositiveIntegerField(default=20, help_text="most messages sampled for adherence")
    sample_size = models.PositiveIntegerField(default=0, help_text="messages really sampled")
    seed = models.BigIntegerField(default=0, help_text="seed of the sampling")
    per_call = models.PositiveSmallIntegerField(default=10, help_text="most propositions asked in one call, 1 to 10")
    overall_score = models.FloatField(
        null=True, blank=True, help_text="mean of the dimensions' scores, 0 to 9; empty = nothing scored"
    )
    token_usage = models.PositiveBigIntegerField(
        default=0, help_text="tokens of all kinds, summed over the ledger when it ended"
    )
    persona_digest = models.CharField(max_length=64, blank=True, default="")
    proposition_digest = models.CharField(max_length=64, blank=True, default="")
    spec_digest = models.CharField(
        max_length=64, blank=True, default="", db_index=True, help_text="what was asked for; finds the run to resume"
    )

    class Meta:
        db_table = "evaluation_runs"
        ordering: ClassVar = ["-created_at", "-pk"]
        indexes: ClassVar = [
            models.Index(fields=["status", "created_at"], name="evaluation_run_status_created"),
            models.Index(fields=["agent", "-created_at"], name="evaluation_run_agent_created"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(agent__isnull=False, channel__isnull=True) | Q(agent__isnull=True, channel__isnull=False),
                name="evaluation_run_one_target",
                violation_error_message="An evaluation targets an agent or a channel, exactly one of them.",
            ),
            models.CheckConstraint(
                condition=Q(overall_score__isnull=True) | Q(overall_score__gte=0, overall_score__lte=9),
                name="evaluation_run_overall_range",
            ),
            models.CheckConstraint(
                condition=Q(per_call__gte=1, per_call__lte=10), name="evaluation_run_per_call_range"
            ),
        ]

    def __str__(self) -> str:
        return f"evaluation {self.pk} of {self.agent or self.channel}"

    @property
    def work_id(self) -> str:
        """The ledger's name for this run: every call it made carries it."""
        return f"evaluation_run:{self.pk}"

    @property
    def is_heuristic(self) -> bool:
        return is_heuristic(self.judge)


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
                fields=["evaluation_run", "dimension", "proposition_id", "message"],
                condition=Q(message__isnull=False),
                name="score_once_per_message",
            ),
            models.CheckConstraint(condition=Q(score__isnull=True) | Q(score__gte=0, score__lte=9), name="score_range"),
            models.CheckConstraint(
                condition=Q(raw_score__isnull=True) | Q(raw_score__gte=0, raw_score__lte=9), name="raw_score_range"
            ),
            models.CheckConstraint(
                condition=(
                    Q(status__in=["pending", "unscored"], score__isnull=True)
                    | Q(status="scored", score__isnull=False)
                    | Q(status="trivial", score=9)
                ),
                name="score_matches_status",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.proposition_id}: {self.score if self.score is not None else self.status}"


class Baseline(models.Model):
    """The current baseline of an agent for one judge and one dimension; replaced only by a capture that succeeded."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="baselines")
    judge = models.CharField(max_length=200)
    dimension = models.CharField(max_length=32, choices=Dimension.choices)
    evaluation_run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="baselines")
    score = models.FloatField(help_text="0 to 9")
    persona_digest = models.CharField(max_length=64, blank=True, default="", help_text="persona it was captured under")
    captured_at = models.DateTimeField()

    class Meta:
        db_table = "baselines"
        ordering: ClassVar = ["agent", "judge", "dimension"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent", "judge", "dimension"], name="baseline_one_current"),
            models.CheckConstraint(condition=Q(score__gte=0, score__lte=9), name="baseline_score_range"),
        ]

    def __str__(self) -> str:
        return f"{self.agent.slug} {self.dimension}: {self.score:.1f}"
