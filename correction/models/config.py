"""What is corrected, per agent: one row of defaults and one row per agent; an empty field inherits (AC-7.3.1, AC-7.3.2)."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q
from simple_history.models import HistoricalRecords

from agents.models import Agent
from correction.config.fields import SETTINGS


class _Abstract:
    abstract = True


_Columns: Any = type(
    "_Columns",
    (models.Model,),
    {"__module__": __name__, "Meta": _Abstract, **{name: setting.column for name, setting in SETTINGS.items()}},
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
            *filter(None, (setting.constraint for setting in SETTINGS.values())),
        ]

    def __str__(self) -> str:
        return "defaults" if self.is_defaults else f"configuration of {self.agent}"
