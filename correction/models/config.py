"""What is corrected, per agent: one row of defaults and one row per agent; an empty field inherits (AC-7.3.1, AC-7.3.2)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from simple_history.models import HistoricalRecords

from agents.models import Agent


class GateMode(models.TextChoices):
    OFF = "off", "off"
    OBSERVE = "observe", "observe (judge after sending, hold nothing back)"
    ENFORCE = "enforce", "enforce (judge before sending)"


def _toggle(help_text: str) -> Any:
    return models.BooleanField(null=True, blank=True, help_text=help_text)


def _number(low: str, high: str, help_text: str, *, digits: int = 3, places: int = 1) -> Any:
    return models.DecimalField(
        max_digits=digits,
        decimal_places=places,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal(low)), MaxValueValidator(Decimal(high))],
        help_text=help_text,
    )


def _within(name: str, low: str, high: str) -> models.CheckConstraint:
    inside = Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__gte": Decimal(low), f"{name}__lte": Decimal(high)})
    return models.CheckConstraint(
        condition=inside,
        name=f"config_{name}",
        violation_error_message=f"{name}: from {low} to {high}, or empty to inherit.",
    )


class AgentEvaluationConfig(models.Model):
    """Correction settings of one agent, or the defaults. **Every field may be empty = inherited**; `resolve_config` merges."""

    agent = models.OneToOneField(
        Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="evaluation_config"
    )
    is_defaults = models.BooleanField(default=False, editable=False)

    gate_mode = models.CharField(  # noqa: DJ001 (null = inherit, as in every other field here)
        max_length=8,
        choices=GateMode.choices,
        null=True,
        blank=True,
        help_text="off, observe (judged after sending) or enforce (judged before); empty = inherit, and where nobody says "
        "anything: enforce as soon as a check is enabled",
    )
    observe_sample_rate = _number("0", "1", "share of messages judged in observe mode, 0 to 1", digits=4, places=3)
    gate_adherence_enabled = _toggle("check drafts for persona adherence")
    gate_adherence_threshold = _number("0", "9", "lowest score that passes, 0 to 9 (default 5)")
    gate_adherence_hard = _toggle("judge adherence in hard mode: every flaw takes 20 % off (default off)")
    gate_consistency_enabled = _toggle("check drafts for self-consistency")
    gate_consistency_threshold = _number("0", "9", "lowest score that passes, 0 to 9 (default 5)")
    gate_fluency_enabled = _toggle("check drafts for fluency")
    gate_fluency_threshold = _number("0", "9", "lowest score that passes, 0 to 9 (default 5)")
    gate_rules_enabled = _toggle(
        "check the agent's own rules (and, offline, cues) on the draft, free of cost; empty = wherever adherence is checked"
    )
    max_correction_attempts = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MaxValueValidator(10)],
        help_text="retries after the first draft, 0 to 10 (default 2); then the best attempt is sent",
    )
    gate_deadline_seconds = _number(
        "0.1", "60", "seconds for judging one dimension; what is late passes (default 5)", digits=5, places=2
    )
    gate_total_deadline_seconds = _number(
        "0.1", "300", "seconds of judging for one message, retries included (default 12)", digits=6, places=2
    )

    anti_convergence_enabled = _toggle("nudge the agent when the channel agrees too much")
    convergence_threshold = _number(
        "0", "1", "vocabulary similarity of the last messages from which agreement is looked at, 0 to 1 (default 0.6)",
        digits=4, places=3,
    )  # fmt: skip
    variety_intervention_enabled = _toggle("nudge the agent when it brings no new ideas")
    variety_message_threshold = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(10_000)],
        help_text="messages of the agent in the channel before it is looked at (default 7)",
    )
    repetition_suppression_enabled = _toggle("show the agent its own repeated phrases to avoid")
    repetition_threshold = _number(
        "0", "1", "share of recurring 3-grams in its last 5 messages, 0 to 1, above which it is told (default 0.3)",
        digits=4, places=3,
    )  # fmt: skip

    budget_enabled = _toggle("stop paid checks for the day when the budget is used up")
    daily_budget_usd = _number("0", "100000", "US dollars a day (UTC) for checking this agent", digits=11, places=4)
    updated_at = models.DateTimeField(auto_now=True)

    history = HistoricalRecords(table_name="agent_evaluation_config_history")

    class Meta:
        db_table = "agent_evaluation_config"
        ordering: ClassVar = ["-is_defaults", "agent__display_name"]
        verbose_name = "correction configuration"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(is_defaults=True, agent__isnull=True) | Q(is_defaults=False, agent__isnull=False),
                name="config_defaults_or_agent",
                violation_error_message="A configuration is that of one agent, or the defaults.",
            ),
            models.UniqueConstraint(
                fields=["is_defaults"], condition=Q(is_defaults=True), name="config_one_defaults_row"
            ),
            models.CheckConstraint(
                condition=Q(gate_mode__isnull=True) | Q(gate_mode__in=["off", "observe", "enforce"]),
                name="config_gate_mode",
            ),
            _within("observe_sample_rate", "0", "1"),
            _within("gate_adherence_threshold", "0", "9"),
            _within("gate_consistency_threshold", "0", "9"),
            _within("gate_fluency_threshold", "0", "9"),
            _within("max_correction_attempts", "0", "10"),
            _within("gate_deadline_seconds", "0.1", "60"),
            _within("gate_total_deadline_seconds", "0.1", "300"),
            _within("convergence_threshold", "0", "1"),
            _within("variety_message_threshold", "1", "10000"),
            _within("repetition_threshold", "0", "1"),
            _within("daily_budget_usd", "0", "100000"),
        ]

    def __str__(self) -> str:
        return "defaults" if self.is_defaults else f"configuration of {self.agent}"
