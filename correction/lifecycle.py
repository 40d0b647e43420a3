"""What seeding does and undoes in the tables of correction; settings name these."""

from __future__ import annotations

from collections.abc import Sequence

from agents.models import Agent
from correction.config.configure import ensure_rows
from correction.models import BehaviorRequest, CorrectionLog, InterventionLog


def seed_configs(agents: Sequence[Agent]) -> str:
    """The defaults row and a row per example agent, all empty: every mechanism is off (AC-7.3.2, AC-7.3.9)."""
    made = ensure_rows(agents=agents, reason="example data")
    return f"Correction: {made} configurations added, {len(agents) + 1 - made} there already."


def remove_logs(agents: Sequence[Agent]) -> dict[str, int]:
    """The gate sessions, interventions and behaviour requests of the examples, which would stay without a name."""
    removed = {}
    for model in (CorrectionLog, InterventionLog, BehaviorRequest):
        rows = model._default_manager.filter(agent__in=agents)
        removed[str(model._meta.verbose_name_plural)] = rows.count()
        rows.delete()
    return removed
