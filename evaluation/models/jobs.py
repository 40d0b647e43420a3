"""Jobs: work that a page of the console asked for."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q

from agents.kit.models import Leasable
from evaluation.models.evaluations import EvaluationRun


class Job(Leasable):
    """Suggestions for propositions, or a check of a judge: what a command does, asked for in the console.

    A job whose evaluations are not at their end waits for them.
    """

    class Kind(models.TextChoices):
        SUGGESTIONS = "suggestions", "suggestions for propositions"
        JUDGE_CHECK = "judge_check", "check of a judge"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    options = models.JSONField(default=dict, help_text="what was chosen")
    done = models.PositiveIntegerField(default=0, help_text="agents asked")
    total = models.PositiveIntegerField(default=0, help_text="of so many; 0 = not known yet")
    result = models.JSONField(default=dict, blank=True, help_text="what was done, by agent or dimension")
    evaluations = models.ManyToManyField(EvaluationRun, blank=True, related_name="jobs")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        db_table = "evaluation_jobs"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(
                fields=["created_at", "id"], condition=Q(status__in=["pending", "running"]), name="evaluation_job_open"
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.pk}"

    @classmethod
    def leasable(cls) -> Q:
        """Return the filter of jobs that may be leased, except those waiting for their evaluations."""
        not_ended = (*EvaluationRun.OPEN, EvaluationRun.Status.PAUSED_BUDGET)
        waited_for = cls.evaluations.through.objects.filter(job=OuterRef("pk"), evaluationrun__status__in=not_ended)
        return super().leasable() & Q(~Exists(waited_for))
