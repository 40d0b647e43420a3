"""Baselines: the scores an agent is compared with later. One current per agent, judge and dimension (AC-6.5.3, AC-6.5.7)."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from agents.models import Agent
from agents.persona import current_digest
from evaluation.models import Baseline, EvaluationRun
from evaluation.summary import RunSummary


def promote(run: EvaluationRun, summary: RunSummary) -> list[Baseline]:
    """Make a completed run the baseline of the dimensions it scored; those without a score keep the baseline they have.

    Raises:
        ValueError: The run targets a channel.
    """
    if run.agent is None:
        raise ValueError(f"evaluation run {run.pk} targets a channel; baselines are of agents")
    promoted = []
    with transaction.atomic():
        for name, dimension in summary.dimensions.items():
            if dimension.score is None:
                continue
            baseline, _ = Baseline.objects.update_or_create(
                agent=run.agent,
                judge=run.judge,
                dimension=name,
                defaults={
                    "evaluation_run": run,
                    "score": dimension.score,
                    "persona_digest": run.persona_digest,
                    "captured_at": timezone.now(),
                },
            )
            promoted.append(baseline)
    return promoted


def get_baseline(*, agent: Agent, judge: str) -> dict[str, Baseline]:
    """The current baselines of an agent under one judge, by dimension."""
    return {b.dimension: b for b in Baseline.objects.filter(agent=agent, judge=judge).select_related("evaluation_run")}


def is_stale(baseline: Baseline) -> bool:
    """Whether the persona changed since the baseline was captured: it then speaks of somebody else."""
    return baseline.persona_digest != current_digest(baseline.agent)
