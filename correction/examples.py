"""Add the examples to the tables of correction when they are seeded, and remove them with the examples."""

from __future__ import annotations

from collections.abc import Sequence

from agents.models import Agent
from agents.seed.removing import delete_counted
from correction.config.configure import ensure_rows
from correction.models import GateSession


def seed_configs(agents: Sequence[Agent]) -> str:
    """Add the defaults row and a row per example agent, all empty: every mechanism is off (AC-7.3.2, AC-7.3.9)."""
    made = ensure_rows(agents=agents, reason="example data")
    return f"Correction: {made} configurations added, {len(agents) + 1 - made} there already."


def remove_logs(agents: Sequence[Agent]) -> dict[str, int]:
    """Remove the examples' attempts at the gate, which would stay without a name."""
    return delete_counted(GateSession.objects.filter(agent__in=agents))
