"""Remove the rows that the demonstration named, with the examples."""

from __future__ import annotations

from collections.abc import Sequence

from django.apps import apps

from agents.models import Agent
from agents.seed import Demo
from agents.seed.removing import delete_counted
from correction.demo import EXPERIMENT, LABEL_SET
from correction.interventions.models import Intervention
from evaluation.calibration.models import LabelSet
from evaluation.models import EvaluationSchedule


def remove_named(agents: Sequence[Agent]) -> dict[str, int]:
    """Remove what the demonstration named: schedule, intervention, labels, experiment; return how many rows, by what they are.

    Schedule and intervention stay where they are meant for other agents than these, too.
    """
    others = Agent.objects.exclude(pk__in=[agent.pk for agent in agents])
    removed = {
        **delete_counted(EvaluationSchedule.objects.filter(name=Demo.SCHEDULE).exclude(agents__in=others)),
        **delete_counted(Intervention.objects.filter(slug=Demo.INTERVENTION).exclude(agents__in=others)),
        **delete_counted(LabelSet.objects.filter(name=LABEL_SET)),
    }
    if apps.is_installed("evaluation.experiments"):
        from evaluation.experiments.models import Experiment

        removed |= delete_counted(Experiment.objects.filter(name=EXPERIMENT))
    return removed
