"""How far an evaluation is, for those who watch it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Count

from agents.events import Gone, State
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore

STATUSES = tuple(EvaluationScore.Status.values)
_SHOWN = ("status", "error", "overall_score", "dimensions")


class Watched(State):
    """An evaluation's status and, per dimension, its judgements by status, those of its channels included. Three queries a look."""

    def __init__(self, run: int) -> None:
        self.run = run

    def read(self) -> tuple[dict[str, Any], bool]:
        run = (
            EvaluationRun.objects.filter(pk=self.run).values(*_SHOWN).first()
        )  # first: scores are all there when it is final
        if run is None:
            raise Gone
        counts = _judgements(self.run, run.pop("dimensions"))
        total = sum(sum(found.values()) for found in counts.values())
        waiting = sum(found["pending"] for found in counts.values())
        state = {"id": self.run, **run, "settled": total - waiting, "total": total, "dimensions": counts}
        return state, run["status"] in EvaluationRun.FINAL


def _judgements(run: int, dimensions: Iterable[str]) -> dict[str, dict[str, int]]:
    linked = ChannelShare.objects.filter(agent_run=run).order_by().values_list("channel_run", flat=True)
    rows = EvaluationScore.objects.filter(evaluation_run__in={run, *linked}).order_by()
    counts = {dimension: dict.fromkeys(STATUSES, 0) for dimension in dimensions}
    for dimension, status, number in rows.values_list("dimension", "status").annotate(n=Count("pk")):
        counts.setdefault(dimension, dict.fromkeys(STATUSES, 0))[status] = number
    return counts
