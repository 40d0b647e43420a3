"""Experiments: what is played in which arms, each environment in which agents talk, and which evaluations measure it."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q

from agents.kit.models import Leasable
from agents.models import Channel
from evaluation.models import EvaluationRun


class Experiment(Leasable):
    """The same conversations played in two or more arms, which differ in their overrides, and measured.

    It is leased while the personas of its people are written; once that is `completed`, its environments can be leased.
    """

    TAG: ClassVar = "experiment"  # of every message; its value is the key of the experiment

    name = models.SlugField(max_length=64, help_text="of its scenario")
    scenario = models.JSONField(
        default=dict, help_text="as it was read and scaled; see evaluation.experiments.scenario"
    )
    seed = models.BigIntegerField(default=0, help_text="of population, assignment and the order of speaking")
    judge = models.CharField(max_length=200, help_text="model that judges; offline judges are heuristic")
    actor_model = models.CharField(
        max_length=200, blank=True, default="", help_text="acts as all agents; empty = each agent's own model"
    )
    measured_at = models.DateTimeField(
        null=True, blank=True, help_text="when all was played and its evaluations were queued; empty = not yet"
    )
    cancelled_at = models.DateTimeField(null=True, blank=True, help_text="empty = it was not")
    paused = models.TextField(
        blank=True,
        default="",
        help_text="why it does not go on by itself: a budget is used up, or a conversation crashed",
    )
    report = models.JSONField(default=dict, blank=True, help_text="stored when everything was judged")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        db_table = "experiments"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(
                fields=["created_at", "id"], condition=Q(status__in=["pending", "running"]), name="experiment_open"
            ),
            models.Index(fields=["status", "created_at"], name="experiment_status_created"),
        ]

    def __str__(self) -> str:
        return f"experiment {self.pk}: {self.name}"

    @property
    def state(self) -> str:
        """Return how far it is: playing, judging, paused, reported, or cancelled."""
        if self.report:
            return "reported"
        if self.cancelled_at:
            return "cancelled"
        if self.paused:
            return "paused"
        return "judging" if self.measured_at else "playing"


class ExperimentEnvironment(Leasable):
    """One conversation of an arm: its agents, and how far it was played. Environments of one number have the same agents in all arms."""

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="environments", db_index=False)
    arm = models.SlugField(max_length=64)
    repeat = models.PositiveSmallIntegerField(default=1, help_text="from 1")
    number = models.PositiveSmallIntegerField(help_text="from 1, within arm and repeat")
    channel = models.OneToOneField(Channel, on_delete=models.CASCADE, related_name="experiment_environment")
    agents = models.JSONField(default=list, help_text="keys of its agents")
    steps = models.PositiveSmallIntegerField(default=0, help_text="that were played to their end")
    counters = models.JSONField(
        default=dict, blank=True, help_text="what the stages of its turns did: stage and counter to a number"
    )
    figures = models.JSONField(
        default=dict,
        blank=True,
        help_text="what is counted without a judge, e.g. messages, silence, repetition, seconds, tokens",
    )
    missing = models.JSONField(default=list, blank=True, help_text="turns that failed: step, agent, why")
    answers = models.JSONField(
        default=list,
        blank=True,
        help_text="of a laboratory: what was found in the answers to each control question, in the order of asking",
    )

    class Meta:
        db_table = "experiment_environments"
        ordering: ClassVar = ["experiment", "repeat", "number", "arm"]
        indexes: ClassVar = [
            models.Index(
                fields=["created_at", "id"],
                condition=Q(status__in=["pending", "running"]),
                name="environment_open",
            )
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["experiment", "arm", "repeat", "number"], name="environment_place_unique")
        ]

    def __str__(self) -> str:
        return f"environment {self.number} of {self.arm} in experiment {self.experiment_id}"

    @classmethod
    def leasable(cls) -> Q:
        """Return environments that may be leased: of experiments whose people have their personas."""
        ready = Experiment.objects.filter(pk=OuterRef("experiment"), status=Leasable.Status.COMPLETED)
        return super().leasable() & Q(Exists(ready))


class EnvironmentEvaluation(models.Model):
    """Which environment an evaluation measures; stored together with the evaluation."""

    environment = models.ForeignKey(ExperimentEnvironment, on_delete=models.CASCADE, related_name="evaluation_links")
    evaluation_run = models.OneToOneField(EvaluationRun, on_delete=models.CASCADE, related_name="environment_link")

    class Meta:
        verbose_name = "link to an evaluation"
        verbose_name_plural = "links to evaluations"
        db_table = "experiment_evaluations"
        default_permissions = ()  # who may view experiments and evaluations sees them there

    def __str__(self) -> str:
        return f"evaluation {self.evaluation_run_id} of {self.environment}"
