"""Remove the jobs of the examples; their evaluations go with their agents."""

from __future__ import annotations

from collections.abc import Sequence

from agents.models import Agent
from agents.seed.removing import delete_counted
from evaluation.models import Job


def remove_jobs(agents: Sequence[Agent]) -> dict[str, int]:
    """Remove the jobs that measured examples alone."""
    others = Agent.objects.exclude(pk__in=[agent.pk for agent in agents])
    jobs = Job.objects.filter(evaluations__agent__in=agents).exclude(evaluations__agent__in=others)
    return delete_counted(Job.objects.filter(pk__in=list(jobs.values_list("pk", flat=True))))
