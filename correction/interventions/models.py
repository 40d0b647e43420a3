"""Interventions an operator wrote, and the log of every one that was looked at (AC-7.1.13)."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from agents.models import Agent, Channel, Run


class Intervention(models.Model):
    """An intervention as a row: preconditions that must all hold, and the nudge that is then put into the prompt."""

    slug = models.SlugField(max_length=80, unique=True, help_text="its name in logs and costs")
    description = models.CharField(max_length=200, blank=True, default="")
    is_enabled = models.BooleanField(default=False)
    agents = models.ManyToManyField(Agent, blank=True, related_name="interventions", help_text="empty = every agent")
    dm_allowed = models.BooleanField(default=False, help_text="also in direct messages")
    window = models.PositiveSmallIntegerField(
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="last messages of the channel that are looked at, 1 to 100",
    )
    cooldown_messages = models.PositiveIntegerField(
        default=5, help_text="messages in the channel after it fired before it may fire again; 0 = none"
    )
    textual_claim = models.TextField(
        blank=True, default="", help_text="a claim about the conversation; fires when true"
    )
    function = models.CharField(max_length=64, blank=True, default="", help_text="name of a registered function")
    function_parameters = models.JSONField(default=dict, blank=True, help_text='e.g. {"at_least": 7}')
    proposition_claim = models.TextField(blank=True, default="", help_text="a claim that is scored 0 to 9")
    proposition_threshold = models.DecimalField(
        max_digits=3,
        decimal_places=1,
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(9)],
        help_text="fires when the score is below; empty = fires when the claim holds",
    )
    nudge_type = models.CharField(
        max_length=32, blank=True, default="", help_text="a kind from the nudge file, or empty"
    )
    nudge = models.TextField(blank=True, default="", help_text="the guidance itself; goes before the kind")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "interventions"
        ordering: ClassVar = ["slug"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(slug=""), name="intervention_slug_given"),
            models.CheckConstraint(
                condition=~Q(textual_claim="", function="", proposition_claim=""),
                name="intervention_has_precondition",
                violation_error_message="Give at least one precondition: textual claim, function or proposition.",
            ),
            models.CheckConstraint(
                condition=~Q(nudge="", nudge_type=""),
                name="intervention_has_nudge",
                violation_error_message="Give a nudge, or the kind of one.",
            ),
            models.CheckConstraint(
                condition=Q(proposition_threshold__isnull=True)
                | Q(proposition_threshold__gte=0, proposition_threshold__lte=9),
                name="intervention_threshold_range",
            ),
            models.CheckConstraint(condition=Q(window__gte=1, window__lte=100), name="intervention_window_range"),
        ]

    def __str__(self) -> str:
        return self.slug


class InterventionLog(models.Model):
    """One evaluation of one intervention for one agent and channel, whether it fired or not. Never edited."""

    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=80, help_text="anti_convergence, variety, or the slug of an operator's one")
    intervention = models.ForeignKey(
        Intervention, null=True, blank=True, on_delete=models.SET_NULL, related_name="logs"
    )
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="intervention_logs")
    channel = models.ForeignKey(
        Channel, null=True, blank=True, on_delete=models.SET_NULL, related_name="intervention_logs"
    )
    channel_position = models.PositiveBigIntegerField(
        default=0, help_text="last message of the channel then; for the cooldown"
    )
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="intervention_logs")
    fired = models.BooleanField()
    why = models.CharField(max_length=300, blank=True, default="", help_text="why it fired, or did not")
    preconditions = models.JSONField(
        default=list,
        help_text="each one's kind, what it said, whether it held (null = not asked or not judged), reasoning",
    )
    nudge_type = models.CharField(max_length=32, blank=True, default="")
    nudge = models.TextField(blank=True, default="", help_text="what the agent was shown")
    judge = models.CharField(max_length=200, blank=True, default="")
    duration_ms = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "intervention_logs"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(fields=["agent", "created_at"], name="intervention_agent_created"),
            models.Index(fields=["created_at"], name="intervention_created"),
            models.Index(fields=["name", "-id"], name="intervention_name"),
            models.Index(
                fields=["channel", "name", "-channel_position"], condition=~Q(judge=""), name="intervention_last_asked"
            ),
            models.Index(
                fields=["agent", "channel", "name", "-id"], condition=Q(fired=True), name="intervention_last_fired"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {'fired' if self.fired else 'did not fire'}"

    def blank_quotes(self) -> None:
        """Blank what may quote messages, to show the row to a user who may not read these; it must not be saved afterwards."""
        self.why = ""
        self.preconditions = []

    @property
    def work_id(self) -> str:
        """Return the ledger's name for this evaluation's calls."""
        return f"intervention:{self.key}"
