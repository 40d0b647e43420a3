"""Which evaluation says how an agent is now."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from agents.models import Agent
from evaluation.models.choices import Dimension
from evaluation.models.runs import EvaluationRun


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
            ),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation_run", "dimension"], name="evidence_once_per_dimension"),
        ]

    def __str__(self) -> str:
        return f"{self.dimension} in evaluation {self.evaluation_run_id}"
