"""What is corrected, per agent: one row of defaults and one row per agent; an empty field inherits (AC-7.3.1, AC-7.3.2)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from simple_history.models import HistoricalRecords

from agents.models import Agent

MOST_NAMES, LONGEST_NAME = 100, 150  # a user name has at most 150 characters, a trait's 120


class GateMode(models.TextChoices):
    OFF = "off", "off"
    OBSERVE = "observe", "observe (judge after sending, hold nothing back)"
    ENFORCE = "enforce", "enforce (judge before sending)"


class LeastConfidence(models.TextChoices):
    """From which confidence on a behaviour request is applied by itself."""

    NEVER = "never", "never (a person decides)"
    HIGH = "high", "high"
    MEDIUM = "medium", "medium or high"
    LOW = "low", "any"


class Requesters(models.TextChoices):
    """Whose behaviour requests count."""

    ANYONE = "anyone", "anyone, outsiders too"
    MEMBERS = "members", "users who are members of the channel"
    NAMED = "named", "the users named below"


def _toggle(help_text: str) -> Any:
    return models.BooleanField(null=True, blank=True, help_text=help_text)


def _choice(choices: type[models.TextChoices], help_text: str) -> Any:
    return models.CharField(max_length=8, choices=choices.choices, null=True, blank=True, help_text=help_text)


def _names(help_text: str) -> Any:
    return models.JSONField(null=True, blank=True, validators=[validate_names], help_text=help_text)


def _number(low: str, high: str, help_text: str, *, digits: int = 3, places: int = 1) -> Any:
    return models.DecimalField(
        max_digits=digits,
        decimal_places=places,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal(low)), MaxValueValidator(Decimal(high))],
        help_text=help_text,
    )


def validate_names(value: object) -> None:
    """A list of up to 100 names of 1 to 150 characters without line breaks, none twice."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValidationError("A list of names; got %(value)r.", params={"value": value})
    if len(value) > MOST_NAMES or len(set(value)) != len(value):
        raise ValidationError(f"At most {MOST_NAMES} names, none twice.")
    for name in value:
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
            raise ValidationError(f"Name %(name)r: 1 to {LONGEST_NAME} printable characters.", params={"name": name})


def _within(name: str, low: str, high: str) -> models.CheckConstraint:
    inside = Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__gte": Decimal(low), f"{name}__lte": Decimal(high)})
    return models.CheckConstraint(
        condition=inside,
        name=f"config_{name}",
        violation_error_message=f"{name}: from {low} to {high}, or empty to inherit.",
    )


def _among(name: str, choices: type[models.TextChoices]) -> models.CheckConstraint:
    return models.CheckConstraint(
        condition=Q(**{f"{name}__isnull": True}) | Q(**{f"{name}__in": list(choices.values)}), name=f"config_{name}"
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
        "0",
        "9",
        "score of the claim that the last messages merely agree with each other, 0 to 9, from which on the agent is nudged (default 6); "
        "needs a model as judge",
    )
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

    behavior_requests_enabled = _toggle(
        "look for requests to behave differently in what people say to the agent (default on)"
    )
    behavior_auto_apply = _choice(
        LeastConfidence,
        "least confidence from which a request is applied by itself: high, medium, low, or never (default high); the others wait "
        "for a person",
    )
    behavior_requesters = _choice(
        Requesters,
        "whose requests count: anyone, members (users who are members of the channel where it was said; outsiders are not) or named "
        "(default members)",
    )
    behavior_named_requesters = _names(
        "user names whose requests count where behavior_requesters is named; exact names"
    )
    behavior_protected_traits = _names("traits that no message can change, whatever the case of their names")
    behavior_daily_limit = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(1000)],
        help_text="requests applied by themselves per day (UTC), 0 to 1000 (default 10); further ones wait for a person",
    )
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
            _within("convergence_threshold", "0", "9"),
            _within("variety_message_threshold", "1", "10000"),
            _within("repetition_threshold", "0", "1"),
            _within("daily_budget_usd", "0", "100000"),
            _among("behavior_auto_apply", LeastConfidence),
            _among("behavior_requesters", Requesters),
            _within("behavior_daily_limit", "0", "1000"),
        ]

    def __str__(self) -> str:
        return "defaults" if self.is_defaults else f"configuration of {self.agent}"
