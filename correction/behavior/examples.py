"""Remove the examples' requests to behave differently."""

from __future__ import annotations

from collections.abc import Sequence

from agents.models import Agent
from agents.seed.removing import delete_counted
from correction.behavior.models import BehaviorRequest


def remove_requests(agents: Sequence[Agent]) -> dict[str, int]:
    """Remove the requests to the examples, which would stay without a name."""
    return delete_counted(BehaviorRequest.objects.filter(agent__in=agents))
