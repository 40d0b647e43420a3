"""Queue evaluations for workers, cancel and resume them, and say how far they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.db.models import Count, Exists, OuterRef, Q
from django.utils import timezone

from agents.kit.llm import ledger
from agents.kit.models import LLMBatch, ModelPrice
from agents.kit.work.queues import wake_workers
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore
from evaluation.runs.planning import RESUMABLE, RunSpec, has_little_speech, prepare_run
from evaluation.runs.summary import CALL_FAILED, NOTHING, Share, reopen_failed, share_counts, waiting_words
from evaluation.simulation.conversations import why_not_simulated

LEXICAL_JUDGE = "offline:lexical-1"


def judges_offered() -> list[str]:
    """The judges that may be chosen from outside of this machine, the configured one first: no file, and all of a known cost."""
    priced = ModelPrice.objects.order_by("model").values_list("model", flat=True).distinct()
    return list(dict.fromkeys([str(settings.JUDGE_MODEL), LEXICAL_JUDGE, *priced]))


@dataclass(frozen=True, slots=True)
class Progress:
    """Judgements of a run and its channels' runs: those settled, all, and the share scored; `waits_for`: for which batches it waits."""

    settled: int = 0
    total: int = 0
    waits_for: str = ""
    share: Share = NOTHING


def progress_of(runs: Sequence[EvaluationRun]) -> dict[int, Progress]:
    """The progress of each run, by primary key; three queries for any number of them, two where none is judged in batches."""
    own = [run.pk for run in runs]
    parts: dict[int, set[int]] = {pk: {pk} for pk in own}
    links = ChannelShare.objects.filter(agent_run__in=own).order_by().values_list("agent_run", "channel_run")
    for agent_run, channel_run in links:
        parts[agent_run].add(channel_run)
    every = EvaluationScore.objects.filter(evaluation_run__in=set().union(*parts.values())).order_by()
    rows: Any = every.values("evaluation_run").annotate(
        settled=Count("pk", filter=~Q(status="pending")), total=Count("pk"), **share_counts()
    )
    by_run = {row["evaluation_run"]: row for row in rows}
    batched = [run for run in runs if run.batch]
    waits = waiting_words(batched) if batched else {}
    progress = {}
    for pk in own:
        there = [by_run[part] for part in parts[pk] if part in by_run]
        settled, total, scored, asked = (
            sum(row[n] for row in there) for n in ("settled", "total", "scored_once", "asked")
        )
        progress[pk] = Progress(settled, total, waits.get(pk, ""), Share(scored, asked))
    return progress


Status = EvaluationRun.Status
CANCELLABLE = (Status.PENDING, Status.RUNNING, Status.PAUSED_BUDGET)
STOPPED = (*RESUMABLE, Status.CANCELLED)  # what can resume; stored judgements stay


class NotPossible(ValueError):
    """The evaluation is in no status for this; says in which it is."""


def queue_run(spec: RunSpec, *, simulate: bool = False) -> tuple[EvaluationRun, bool]:
    """Have a worker (`manage.py work`) measure what the spec asks for. Nothing is judged here.

    Args:
        simulate: Simulate conversations first with an agent that has little speech (AC-6.5.2), unless its actor could say nothing.

    Returns:
        The run, and whether it is one that asked for the same within 24 hours and had not ended: that one goes on instead.
    """
    if simulate and spec.agent and has_little_speech(spec) and not why_not_simulated(spec.agent):
        spec = replace(spec, simulated=True)
    with transaction.atomic():  # no worker sees a part of it
        run, resumed = prepare_run(spec)
        waiting = [run.pk, *run.channel_runs.values_list("pk", flat=True)]
        EvaluationRun.objects.filter(pk__in=waiting, status__in=RESUMABLE).update(status=Status.PENDING)
        transaction.on_commit(wake_workers)
    run.refresh_from_db(fields=["status"])
    return run, resumed


def cancel_run(run: EvaluationRun) -> EvaluationRun:
    """Stop an evaluation until it is resumed, with those of its channels that no other evaluation waits for; what was judged stays.

    A worker that is at it notices within seconds and stores no more.

    Raises:
        NotPossible: It ended already.
    """
    with transaction.atomic():
        if not _cancel(EvaluationRun.objects.filter(pk=run.pk)):
            run.refresh_from_db()
            raise NotPossible(
                f"evaluation {run.pk} is {run.status}; only one that is {_either(CANCELLABLE)} can be cancelled"
            )
        others = ChannelShare.objects.filter(channel_run=OuterRef("pk")).exclude(agent_run=run)
        wanted = others.exclude(agent_run__status__in=EvaluationRun.FINAL)
        own = [channel_run.pk for channel_run in run.channel_runs.filter(~Exists(wanted))]
        _cancel(EvaluationRun.objects.filter(pk__in=own))
        now, work_ids = timezone.now(), [f"evaluation_run:{pk}" for pk in (run.pk, *own)]
        batches = LLMBatch.objects.filter(work_id__in=work_ids, status__in=LLMBatch.OPEN)
        batches.update(
            cancel_requested_at=now, next_look_at=now
        )  # a worker cancels them; what was answered is paid for
    used = ledger.totals(work_id=run.work_id)
    tokens = used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens
    EvaluationRun.objects.filter(pk=run.pk).update(token_usage=tokens)
    run.refresh_from_db()
    return run


def resume_run(run: EvaluationRun) -> EvaluationRun:
    """Have a worker go on with an evaluation that stopped, or ask again what its judge failed to answer; stored judgements stay.

    Raises:
        NotPossible: It is waiting or running, or there is nothing left to ask.
    """
    with transaction.atomic():
        channels = [_again(channel_run) for channel_run in run.channel_runs.all()]
        resumed = _again(run)
        if not resumed and any(channels):  # it is complete, its channels were not
            completed = EvaluationRun.objects.filter(pk=run.pk, status=Status.COMPLETED)
            resumed = bool(completed.update(status=Status.PENDING))
        if not resumed:
            run.refresh_from_db()
            left = " and no call of its judge failed" if run.status == Status.COMPLETED else ""
            raise NotPossible(
                f"evaluation {run.pk} is {run.status}{left}; only one that is {_either(STOPPED)}, or completed with calls that "
                "failed, can be resumed"
            )
        transaction.on_commit(wake_workers)
    run.refresh_from_db()
    return run


def can_resume(run: EvaluationRun) -> bool:
    """Whether there is something left to do of an evaluation that no worker does."""
    if run.status != Status.COMPLETED:
        return run.status in STOPPED
    channel_runs = run.channel_runs.all()
    every = [run.pk, *channel_runs.values_list("pk", flat=True)]
    failed = EvaluationScore.objects.filter(CALL_FAILED, evaluation_run__in=every)
    return channel_runs.filter(status__in=STOPPED).exists() or failed.exists()


def _cancel(runs: models.QuerySet[EvaluationRun]) -> int:
    return runs.filter(status__in=CANCELLABLE).update(
        status=Status.CANCELLED,
        error="cancelled on request",
        lease_owner="",
        lease_expires_at=None,
        finished_at=timezone.now(),
    )


def _again(run: EvaluationRun) -> bool:
    """Make a stopped run pending; one that completed only if the judge failed to answer some of it."""
    this = EvaluationRun.objects.filter(pk=run.pk)
    if this.filter(status__in=STOPPED).update(status=Status.PENDING, finished_at=None, error=""):
        return True
    failed = EvaluationScore.objects.filter(CALL_FAILED, evaluation_run=OuterRef("pk"))
    if this.filter(Exists(failed), status=Status.COMPLETED).update(status=Status.PENDING, finished_at=None):
        reopen_failed(run)
        return True
    return False


def _either(statuses: tuple[str, ...]) -> str:
    return ", ".join(map(str, statuses[:-1])) + f" or {statuses[-1]}"
