"""How far evaluations are: judgements settled and still to be made, their channels' included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q

from evaluation.batches import waiting_words
from evaluation.coverage import COVERABLE, NOTHING, Share
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore


@dataclass(frozen=True, slots=True)
class Progress:
    """Judgements of a run and of the runs of its channels: those settled (scored, trivial or unscored), all, and the share scored.

    `waits_for` says which batches of its own a run waits for, and how far they are; empty for most.
    """

    settled: int = 0
    total: int = 0
    waits_for: str = ""
    share: Share = NOTHING


def progress_of(runs: Sequence[EvaluationRun]) -> dict[int, Progress]:
    """The progress of each run, by primary key; three queries for any number of them, two where none is judged in batches."""
    own = [run.pk for run in runs]
    shares = ChannelShare.objects.filter(agent_run__in=own).order_by().values_list("agent_run", "channel_run")
    linked: dict[int, set[int]] = {}
    for agent_run, channel_run in shares:
        linked.setdefault(agent_run, set()).add(channel_run)
    every = {*own, *(pk for found in linked.values() for pk in found)}
    rows = EvaluationScore.objects.filter(evaluation_run__in=every).order_by().values("evaluation_run")
    counted = {
        row["evaluation_run"]: (row["settled"], row["total"], row["scored"], row["asked"])
        for row in rows.annotate(
            settled=Count("pk", filter=~Q(status="pending")),
            total=Count("pk"),
            scored=Count("pk", filter=Q(status="scored", repeat=1)),
            asked=Count("pk", filter=COVERABLE & Q(repeat=1)),
        )
    }
    batched = [run for run in runs if run.batch]
    waits = waiting_words(batched) if batched else {}

    def summed(pk: int, place: int) -> int:
        return sum(counted.get(part, (0, 0, 0, 0))[place] for part in {pk, *linked.get(pk, ())})

    return {
        pk: Progress(summed(pk, 0), summed(pk, 1), waits.get(pk, ""), Share(summed(pk, 2), summed(pk, 3))) for pk in own
    }
