"""How far evaluations are: judgements settled and still to be made, their channels' included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q

from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore


@dataclass(frozen=True, slots=True)
class Progress:
    """Judgements of a run and of the runs of its channels: those settled (scored, trivial or unscored), and all."""

    settled: int = 0
    total: int = 0


def progress_of(runs: Sequence[EvaluationRun]) -> dict[int, Progress]:
    """The progress of each run, by primary key; two queries for any number of them."""
    own = [run.pk for run in runs]
    shares = ChannelShare.objects.filter(agent_run__in=own).order_by().values_list("agent_run", "channel_run")
    linked: dict[int, set[int]] = {}
    for agent_run, channel_run in shares:
        linked.setdefault(agent_run, set()).add(channel_run)
    every = {*own, *(pk for found in linked.values() for pk in found)}
    rows = EvaluationScore.objects.filter(evaluation_run__in=every).order_by().values("evaluation_run")
    counted = {
        row["evaluation_run"]: (row["settled"], row["total"])
        for row in rows.annotate(settled=Count("pk", filter=~Q(status="pending")), total=Count("pk"))
    }
    return {
        pk: Progress(*(sum(counted.get(part, (0, 0))[i] for part in {pk, *linked.get(pk, ())}) for i in (0, 1)))
        for pk in own
    }
