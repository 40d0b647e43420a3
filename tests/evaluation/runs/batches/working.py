"""Short ways to have runs judged in batches."""

from __future__ import annotations

from typing import Any

from agents.kit.models import LLMBatch
from agents.kit.work import batches
from agents.models import Agent
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.control import queue_run
from evaluation.runs.execute import work_one
from evaluation.runs.spec import RunSpec

OWNER = "test"


def queued(agent: Agent, **fields: Any) -> EvaluationRun:
    """A baseline of adherence that is to be judged in batches."""
    spec = {"dimensions": ("adherence",), "is_baseline": True, "batch": True, **fields}
    return queue_run(RunSpec(agent=agent, **spec))[0]


def handed_in(agent: Agent, **fields: Any) -> EvaluationRun:
    """The same, once a worker has handed it in."""
    run = queued(agent, **fields)
    assert work_one(owner=OWNER)
    run.refresh_from_db()
    return run


def check_batches() -> None:
    """Have a worker look at the batches whose turn it is."""
    assert batches.work_one(owner=OWNER)


def work(run: EvaluationRun) -> EvaluationRun:
    """Have a worker go on with whatever can be gone on with, once."""
    work_one(owner=OWNER)
    run.refresh_from_db()
    return run


def scores(run: EvaluationRun) -> list[tuple[str, int | None, str, int | None, int | None]]:
    rows = EvaluationScore.objects.filter(evaluation_run=run).order_by("message__position", "proposition_id", "repeat")
    return [(r.proposition_id, r.message_id, r.status, r.score, r.raw_score) for r in rows]


def only_batch() -> LLMBatch:
    found: LLMBatch = LLMBatch.objects.get()
    return found
