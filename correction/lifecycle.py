"""What seeding does and undoes in the tables of correction; settings name these."""

from __future__ import annotations

from collections.abc import Sequence

from agents.models import Agent
from agents.seed import Demo
from correction.behavior.models import BehaviorRequest
from correction.config.configure import ensure_rows
from correction.interventions.models import Intervention, InterventionLog
from correction.models import CorrectionLog
from evaluation.calibration.models import LabelSet
from evaluation.experiments.models import Experiment
from evaluation.models import EvaluationSchedule, Job


def seed_configs(agents: Sequence[Agent]) -> str:
    """The defaults row and a row per example agent, all empty: every mechanism is off (AC-7.3.2, AC-7.3.9)."""
    made = ensure_rows(agents=agents, reason="example data")
    return f"Correction: {made} configurations added, {len(agents) + 1 - made} there already."


def remove_logs(agents: Sequence[Agent]) -> dict[str, int]:
    """Remove the logs and requests of the examples, which would stay without a name, and what the demonstration named."""
    removed = {}
    others = Agent.objects.exclude(pk__in=[agent.pk for agent in agents])
    for rows in (
        EvaluationSchedule.objects.filter(name=Demo.SCHEDULE).exclude(agents__in=others),
        Intervention.objects.filter(slug=Demo.INTERVENTION).exclude(agents__in=others),
        LabelSet.objects.filter(name=Demo.LABEL_SET),
        Experiment.objects.filter(name=Demo.EXPERIMENT),
        Job.objects.filter(evaluations__agent__in=agents).exclude(evaluations__agent__in=others).distinct(),
    ):
        removed[str(rows.model._meta.verbose_name_plural)] = len(rows)
        rows.model._default_manager.filter(pk__in=[row.pk for row in rows]).delete()  # joined rows cannot be deleted
    for model in (CorrectionLog, InterventionLog, BehaviorRequest):
        rows = model._default_manager.filter(agent__in=agents)
        removed[str(model._meta.verbose_name_plural)] = rows.count()
        rows.delete()
    return removed
