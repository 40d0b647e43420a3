"""Rolling evaluations and the alerts they raise."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from agents.models import Agent
from agents.models.conversations import validate_tags
from evaluation.models.evaluations import Dimension


class EvaluationSchedule(models.Model):
    """A measurement that is made again and again: whom, what, over which window, how often. The worker fires it when it is due."""

    name = models.CharField(
        max_length=100,
        unique=True,
        error_messages={"unique": "There is a schedule of this name; choose another, or change that one."},
    )
    agents = models.ManyToManyField(Agent, blank=True, related_name="schedules", help_text="empty = every active agent")
    dimensions = models.JSONField(default=list, blank=True, help_text="empty = every dimension with propositions")
    window = models.CharField(
        max_length=32,
        default="24h",
        help_text="a duration such as 24h or 7d, best no longer than the time between two measurements; all and last:N are "
        "measured, too, but not tested for drift",
    )
    where = models.JSONField(
        default=dict, blank=True, validators=[validate_tags], help_text="tags a message must have to be measured"
    )
    samples = models.PositiveIntegerField(
        default=20, validators=[MinValueValidator(1)], help_text="most messages sampled per agent, at least 1"
    )
    judge = models.CharField(max_length=200, blank=True, default="", help_text="empty = the configured judge")
    every_minutes = models.PositiveIntegerField(
        default=24 * 60, validators=[MinValueValidator(5)], help_text="minutes between two measurements, at least 5"
    )
    drift_limit = models.FloatField(
        default=0.8,
        validators=[MinValueValidator(0.1), MaxValueValidator(9)],
        help_text="alert when a score has fallen by at least this many points, 0.1 to 9",
    )
    batch = models.BooleanField(
        default=False, help_text="ask the judge in batches: half the price, an answer within a day"
    )
    is_active = models.BooleanField(default=True)
    next_at = models.DateTimeField(db_index=True, help_text="when it is due; moved on in the statement that fires it")
    last_fired_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_outcome = models.TextField(
        blank=True, default="", editable=False, help_text="what came of it when it was last due"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "evaluation_schedules"
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(every_minutes__gte=5), name="schedule_every_at_least_five_minutes"),
            models.CheckConstraint(condition=Q(drift_limit__gt=0, drift_limit__lte=9), name="schedule_limit_range"),
            models.CheckConstraint(condition=Q(samples__gte=1), name="schedule_samples_range"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def every(self) -> timedelta:
        return timedelta(minutes=self.every_minutes)

    def clean(self) -> None:
        """Refuse what the worker could not measure; names field, value and what is allowed."""
        from evaluation.scorers.windows import parse_window

        try:
            parse_window(self.window)
        except ValueError as error:
            raise ValidationError({"window": str(error)}) from None
        named = self.dimensions
        unknown = [d for d in named if d not in Dimension.values] if isinstance(named, list) else [named]
        if unknown:
            message = f"dimensions {', '.join(map(str, unknown))}: allowed: {', '.join(Dimension.values)}"
            raise ValidationError({"dimensions": message})


class DriftAlert(models.Model):
    """A lasting fall in a series of scores, found once. Series of other judges or procedures are other series."""

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
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        db_table = "drift_alerts"
        ordering: ClassVar = ["-created_at", "-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation_run", "agent", "dimension"], name="drift_alert_once_per_run"),
        ]

    def __str__(self) -> str:
        return f"{self.agent.slug} {self.dimension}: {self.before:.1f} → {self.after:.1f}"
