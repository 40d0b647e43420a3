"""Evaluation runs: what was measured of whom, by which judge, over which messages."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Exists, F, OuterRef, Q, Value
from django.db.models.functions import Cast, Coalesce, Concat

from agents.models import Agent, Channel, Leasable, LLMBatch
from evaluation.models.choices import CHANNEL_DIMENSIONS, Method, is_heuristic, procedure_name


class EvaluationRun(Leasable):
    """One evaluation of exactly one target: an agent, or a channel. Its items are `EvaluationScore` rows."""

    WHOSE: ClassVar = Coalesce(F("agent_id"), F("channel_id") * -1)

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
    history = models.CharField(
        max_length=32, default="before", help_text="what self-consistency compares with: before the window, or a window"
    )
    history_start = models.DateTimeField(null=True, blank=True, help_text="earliest time in the history")
    history_end = models.DateTimeField(null=True, blank=True, help_text="latest time in the history")
    history_where = models.JSONField(default=dict, blank=True, help_text="tags a message of the history must have")
    repeats = models.PositiveSmallIntegerField(default=1, help_text="judgements per item, 1 to 20; their mean counts")
    hard = models.BooleanField(default=False, help_text="every claim that is no anti-pattern is judged in hard mode")
    double_check = models.BooleanField(default=False, help_text="the judge is asked a second time whether it is sure")
    method = models.CharField(max_length=16, choices=Method.choices, default=Method.PLUMBLINE)
    additional_context = models.JSONField(
        default=dict, blank=True, help_text="what preconditions and the judge are given beside the messages, as data"
    )
    simulated = models.BooleanField(
        default=False, help_text="what was judged was said in simulated conversations, marked synthetic"
    )
    actor_model = models.CharField(max_length=200, blank=True, default="", help_text="model that acted in a simulation")
    position_bins = models.JSONField(
        default=list,
        blank=True,
        help_text="sampled evenly by position: [first, last] each, last empty = no end; empty = sampled over all",
    )
    batch = models.BooleanField(
        default=False, help_text="the judge is asked in batches: half the price, an answer within a day"
    )
    schedule = models.ForeignKey(
        "evaluation.EvaluationSchedule", null=True, blank=True, on_delete=models.SET_NULL, related_name="runs"
    )
    series_points = models.JSONField(
        null=True,
        blank=True,
        editable=False,
        help_text="score and standard error per dimension, kept when a scheduled run was looked at for drift; empty = not yet",
    )
    figures = models.JSONField(
        default=dict, blank=True, help_text="what was measured beside the judgements, by dimension"
    )
    channel_runs = models.ManyToManyField(
        "self",
        symmetrical=False,
        blank=True,
        through="ChannelShare",
        through_fields=("agent_run", "channel_run"),
        related_name="agent_runs",
        help_text="evaluations of the channels the agent spoke in, for convergence and ideas",
    )
    overall_score = models.FloatField(
        null=True, blank=True, help_text="mean of the dimensions' scores, 0 to 9; empty = nothing scored"
    )
    token_usage = models.PositiveBigIntegerField(
        default=0, help_text="tokens of all kinds, summed over the ledger when it ended"
    )
    persona_digest = models.CharField(max_length=64, blank=True, default="")
    proposition_digest = models.CharField(max_length=64, blank=True, default="")
    proposition_digests = models.JSONField(
        default=dict, blank=True, help_text="of each proposition, by dimension and id: tells which changed since"
    )
    spec_digest = models.CharField(
        max_length=64, blank=True, default="", db_index=True, help_text="what was asked for; finds the run to resume"
    )

    class Meta:
        db_table = "evaluation_runs"
        ordering: ClassVar = ["-created_at", "-pk"]
        indexes: ClassVar = [
            models.Index(fields=["status", "created_at"], name="evaluation_run_status_created"),
            models.Index(fields=["agent", "-created_at"], name="evaluation_run_agent_created"),
            models.Index(fields=["agent", "judge", "-created_at"], name="evaluation_run_agent_judge"),
            models.Index(
                Coalesce(F("agent_id"), F("channel_id") * -1),
                F("created_at"),
                F("id"),
                condition=Q(status__in=["pending", "running"]),
                name="evaluation_run_open_of_whom",
            ),
            models.Index(
                fields=["status"],
                condition=Q(agent__isnull=False, schedule__isnull=False, series_points__isnull=True),
                name="evaluation_run_not_looked_at",
            ),
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
            models.CheckConstraint(condition=Q(repeats__gte=1, repeats__lte=20), name="evaluation_run_repeats_range"),
        ]

    def __str__(self) -> str:
        return f"evaluation {self.pk} of {self.agent or self.channel}"

    @classmethod
    def leasable(cls) -> Q:
        """As of all work, but for runs that wait for a batch."""
        served = Concat(Value("evaluation_run:"), Cast(OuterRef("pk"), models.CharField()))
        waits = Exists(LLMBatch.objects.filter(work_id=served, status__in=LLMBatch.OPEN))
        return super().leasable() & (Q(batch=False) | ~Q(waits))

    @property
    def work_id(self) -> str:
        """The ledger's name for this run: every call it made carries it."""
        return f"evaluation_run:{self.pk}"

    @property
    def is_heuristic(self) -> bool:
        return is_heuristic(self.judge)

    @property
    def procedure(self) -> str:
        """How it was judged, e.g. ``plumbline+hard``: scores compare only with scores of the same procedure."""
        return procedure_name(
            method=self.method, hard=self.hard, double_check=self.double_check, simulated=self.simulated
        )

    @property
    def own_dimensions(self) -> list[str]:
        """The dimensions judged in this run itself; those of channels are judged in the runs it links to."""
        return [d for d in self.dimensions if self.agent_id is None or d not in CHANNEL_DIMENSIONS]
