"""What removing the examples removes of interventions."""

from __future__ import annotations

from collections.abc import Sequence

from agents.models import Agent
from agents.seed.removing import delete_counted
from correction.interventions.models import InterventionLog


def remove_logs(agents: Sequence[Agent]) -> dict[str, int]:
    """Remove the examples' logs, which would stay without a name."""
    return delete_counted(InterventionLog.objects.filter(agent__in=agents))
