"""What is corrected, per agent: one row of defaults and one row per agent; an empty field inherits (AC-7.3.1, AC-7.3.2).

`SETTINGS` declares each setting once: its column, constraint, form field, API field, command and help follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass
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


def validate_names(value: object) -> None:
    """A list of up to 100 names of 1 to 150 characters without line breaks, none twice."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValidationError("A list of names; got %(value)r.", params={"value": value})
    if len(value) > MOST_NAMES or len(set(value)) != len(value):
        raise ValidationError(f"At most {MOST_NAMES} names, none twice.")
    for name in value:
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
            raise ValidationError(f"Name %(name)r: 1 to {LONGEST_NAME} printable characters.", params={"name": name})


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: a toggle, unless it has `choices`, `bounds` (a number; `places` 0 = a whole one) or a list as built-in value.

    Attributes:
        built_in: What holds where no row says anything; None = nothing, or it follows from others (`resolve.merge`).
        help: What it does.
    """

    built_in: Any
    help: str
    choices: type[models.TextChoices] | None = None
    bounds: tuple[str, str] | None = None
    digits: int = 3
    places: int = 1

    def column(self) -> models.Field[Any, Any]:
        common: dict[str, Any] = {"null": True, "blank": True, "help_text": self.help}
        if self.choices is not None:
            return models.CharField(max_length=8, choices=self.choices.choices, **common)
        if self.bounds is not None:
            low, high = map(Decimal if self.places else int, self.bounds)
            common["validators"] = [MinValueValidator(low), MaxValueValidator(high)]
            if self.places:
                return models.DecimalField(max_digits=self.digits, decimal_places=self.places, **common)
            return models.PositiveIntegerField(**common)
        if isinstance(self.built_in, list):
            return models.JSONField(validators=[validate_names], **common)
        return models.BooleanField(**common)

    def constraints(self, name: str) -> list[models.CheckConstraint]:
        """What the database itself checks."""
        inherits, message = Q(**{f"{name}__isnull": True}), None
        if self.choices is not None:
            allowed = Q(**{f"{name}__in": list(self.choices.values)})
        elif self.bounds is not None:
            low, high = self.bounds
            allowed = Q(**{f"{name}__gte": Decimal(low), f"{name}__lte": Decimal(high)})
            message = f"{name}: from {low} to {high}, or empty to inherit."
        else:
            return []
        constraint = models.CheckConstraint(
            condition=inherits | allowed, name=f"config_{name}", violation_error_message=message
        )
        return [constraint]


def _threshold() -> Setting:
    return Setting(Decimal("5.0"), "lowest score that passes, 0 to 9 (default 5)", bounds=("0", "9"))


# Every mechanism is off (AC-7.3.2), but requests to behave differently are read.
SETTINGS: dict[str, Setting] = {
    "gate_mode": Setting(
        None,
        "off, observe (judged after sending) or enforce (judged before); empty = inherit, and where nothing is set: enforce as soon "
        "as a check is enabled",
        choices=GateMode,
    ),
    "observe_sample_rate": Setting(
        Decimal("1.000"), "share of messages judged in observe mode, 0 to 1", bounds=("0", "1"), digits=4, places=3
    ),
    "gate_adherence_enabled": Setting(False, "check drafts for persona adherence"),
    "gate_adherence_threshold": _threshold(),
    "gate_adherence_hard": Setting(False, "judge adherence in hard mode: every flaw takes 20 % off (default off)"),
    "gate_consistency_enabled": Setting(False, "check drafts for self-consistency"),
    "gate_consistency_threshold": _threshold(),
    "gate_fluency_enabled": Setting(False, "check drafts for fluency"),
    "gate_fluency_threshold": _threshold(),
    "gate_rules_enabled": Setting(
        None,
        "check the agent's own rules (and, offline, cues) on the draft, free of cost; empty = wherever adherence is checked",
    ),
    "max_correction_attempts": Setting(
        2,
        "retries after the first draft, 0 to 10 (default 2); then the best attempt is sent",
        bounds=("0", "10"),
        places=0,
    ),
    "gate_deadline_seconds": Setting(
        Decimal("5.00"),
        "seconds for judging one dimension; what is late passes (default 5)",
        bounds=("0.1", "60"),
        digits=5,
        places=2,
    ),
    "gate_total_deadline_seconds": Setting(
        Decimal("12.00"),
        "seconds of judging for one message, retries included (default 12)",
        bounds=("0.1", "300"),
        digits=6,
        places=2,
    ),
    "anti_convergence_enabled": Setting(False, "nudge the agent when the channel agrees too much"),
    "convergence_threshold": Setting(
        Decimal("6.0"),
        "score of the claim that the last messages merely agree with each other, 0 to 9, from which on the agent is nudged (default 6); "
        "needs a model as judge",
        bounds=("0", "9"),
    ),
    "variety_intervention_enabled": Setting(False, "nudge the agent when it brings no new ideas"),
    "variety_message_threshold": Setting(
        7,
        "messages of the agent in the channel before it is looked at (default 7)",
        bounds=("1", "10000"),
        places=0,
    ),
    "repetition_suppression_enabled": Setting(False, "show the agent its own repeated phrases to avoid"),
    "repetition_threshold": Setting(
        Decimal("0.300"),
        "share of recurring 3-grams in its last 5 messages, 0 to 1, above which it is told (default 0.3)",
        bounds=("0", "1"),
        digits=4,
        places=3,
    ),
    "budget_enabled": Setting(False, "stop paid checks for the day when the budget is used up"),
    "daily_budget_usd": Setting(
        None, "US dollars a day (UTC) for checking this agent", bounds=("0", "100000"), digits=11, places=4
    ),
    "behavior_requests_enabled": Setting(
        True, "look for requests to behave differently in what people say to the agent (default on)"
    ),
    "behavior_auto_apply": Setting(
        "high",
        "least confidence from which a request is applied by itself: high, medium, low, or never (default high); the others wait "
        "for a person",
        choices=LeastConfidence,
    ),
    "behavior_requesters": Setting(
        "members",
        "whose requests count: anyone, members (users who are members of the channel where it was said; outsiders are not) or named "
        "(default members)",
        choices=Requesters,
    ),
    "behavior_named_requesters": Setting(
        [], "user names whose requests count where behavior_requesters is named; exact names"
    ),
    "behavior_protected_traits": Setting([], "traits that no message can change, whatever the case of their names"),
    "behavior_daily_limit": Setting(
        10,
        "requests applied by themselves per day (UTC), 0 to 1000 (default 10); further ones wait for a person",
        bounds=("0", "1000"),
        places=0,
    ),
}


class _Abstract:
    abstract = True


_Columns: Any = type(
    "_Columns",
    (models.Model,),
    {
        "__module__": __name__,
        "Meta": _Abstract,
        **{name: setting.column() for name, setting in SETTINGS.items()},
    },
)


class AgentEvaluationConfig(_Columns, models.Model):  # type: ignore[misc]  # columns by declaration
    """Correction settings of one agent, or the defaults. **Every field may be empty = inherited**; `resolve_config` merges."""

    agent = models.OneToOneField(
        Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="evaluation_config"
    )
    is_defaults = models.BooleanField(default=False, editable=False)
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
            *(constraint for name, setting in SETTINGS.items() for constraint in setting.constraints(name)),
        ]

    def __str__(self) -> str:
        return "defaults" if self.is_defaults else f"configuration of {self.agent}"
