"""Baselines: the scores an agent is compared with later. One current per agent, judge and dimension (AC-6.5.3, AC-6.5.7)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from django.db import transaction
from django.utils import timezone

from agents.models import Agent
from agents.persona import changes_since, current_digest
from evaluation.models import Baseline, EvaluationRun, Method
from evaluation.runs.summary import RunSummary


def promote(run: EvaluationRun, summary: RunSummary, *, only: Collection[str] | None = None) -> list[Baseline]:
    """Make a completed run the baseline of the dimensions it has a number for; the others keep the baseline they have.

    Under each judge and procedure (hard, double check, method) there is a baseline of its own: they do not compare. A run that was
    asked for before the one a baseline stands on, and ended after it, does not take its place.

    Args:
        run: A completed run of an agent.
        summary: Its numbers.
        only: The dimensions to promote; default all.

    Raises:
        ValueError: The run targets a channel.
    """
    if run.agent is None:
        raise ValueError(f"evaluation run {run.pk} targets a channel; baselines are of agents")
    now = timezone.now()
    with transaction.atomic():
        # Of two runs that end at once each must see what the other promoted.
        Agent.objects.select_for_update(no_key=True).get(pk=run.agent.pk)
        there = get_baseline(agent=run.agent, judge=run.judge, procedure=run.procedure)
        promoted = [
            Baseline(
                agent=run.agent,
                judge=run.judge,
                procedure=run.procedure,
                dimension=name,
                evaluation_run=run,
                score=dimension.score if dimension.count is None else None,
                count=dimension.count,
                persona_digest=run.persona_digest,
                captured_at=now,
            )
            for name, dimension in summary.dimensions.items()
            if dimension.measured
            and (only is None or name in only)
            and (name not in there or there[name].evaluation_run_id <= run.pk)
        ]
        return Baseline.objects.bulk_create(
            promoted,
            update_conflicts=True,
            unique_fields=["agent", "judge", "procedure", "dimension"],
            update_fields=["evaluation_run", "score", "count", "persona_digest", "captured_at"],
        )


def get_baseline(*, agent: Agent, judge: str, procedure: str = Method.PLUMBLINE.value) -> dict[str, Baseline]:
    """The current baselines of an agent under one judge and procedure (`EvaluationRun.procedure`), by dimension."""
    baselines = Baseline.objects.filter(agent=agent, judge=judge, procedure=procedure)
    return {b.dimension: b for b in baselines.select_related("evaluation_run")}


def is_stale(baseline: Baseline) -> bool:
    """Whether the persona changed since the baseline was captured: it then describes another one."""
    return baseline.persona_digest != current_digest(baseline.agent)


UNKNOWN_CHANGE = "the persona changed since it was captured; no version tells what changed"


def stale_reasons(baselines: Iterable[Baseline]) -> dict[int, str]:
    """Why baselines are stale, by primary key: which versions of the persona came since, and what made them; only of those that are.

    For many in as many queries as for one, apart from `is_stale`, which reads an agent's traits.
    """
    stale = [baseline for baseline in baselines if is_stale(baseline)]
    if not stale:
        return {}
    changes = changes_since((b.agent_id, b.persona_digest) for b in stale)
    return {b.pk: "; ".join(map(str, changes.get((b.agent_id, b.persona_digest), ()))) or UNKNOWN_CHANGE for b in stale}
