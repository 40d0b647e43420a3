"""What an agent's evaluation and those of its channels owe each other when they end, in whatever order and process."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q

from evaluation.change import baselines
from evaluation.change.evidence import note_evidence
from evaluation.models import CHANNEL_DIMENSIONS, ChannelShare, EvaluationRun
from evaluation.scorers.base import Subject
from evaluation.summary import WITHOUT_SCORE, summarize
from evaluation.targets import subject_of

COMPLETED = EvaluationRun.Status.COMPLETED
SIMULATED_ALONE = "speech was simulated with one agent at a time: there is no conversation of agents to measure"


def follow(runs: Iterable[EvaluationRun]) -> None:
    """Bring the numbers of completed agents' runs up to date with those of their channels.

    Call it after runs of either kind ended: those of channels first, so that agents' runs whose channels are all among them are up to
    date already. It does the same however often it is called.
    """
    ended = [run.pk for run in runs]
    concerned = EvaluationRun.objects.filter(Q(pk__in=ended) | Q(channel_runs__in=ended), agent__isnull=False)
    concerned = concerned.filter(status=COMPLETED, channel_shares__isnull=False).select_related("agent").distinct()
    elsewhere = ChannelShare.objects.filter(agent_run__in=ended).exclude(channel_run__in=ended)
    for agent_run in concerned.exclude(Q(pk__in=ended) & ~Q(pk__in=elsewhere.values("agent_run"))):
        summary = summarize(agent_run)
        error = "" if summary.measured else agent_run.error  # of a completed run: why it has no number
        same = EvaluationRun.objects.filter(pk=agent_run.pk, status=COMPLETED)
        if not same.update(overall_score=summary.overall_score, error=error):
            continue
        if isinstance(subject := subject_of(agent_run), Subject):
            note_evidence(agent_run, subject.spoken())
        if agent_run.is_baseline:
            baselines.promote(agent_run, summary, only=CHANNEL_DIMENSIONS)


def why_nothing(run: EvaluationRun) -> str:
    """Why an agent's channels give it no number; empty when it asked for none, or when they do."""
    if run.agent_id is None or not set(run.dimensions) & set(CHANNEL_DIMENSIONS):
        return ""
    if run.simulated:
        return SIMULATED_ALONE
    channel_runs = list(run.channel_runs.select_related("channel"))
    if not channel_runs:
        return "no channel in which the agent spoke"
    for found in channel_runs:
        if found.status in WITHOUT_SCORE or found.error:
            return f"{found.channel}: {found.error or found.status}"
    return ""
