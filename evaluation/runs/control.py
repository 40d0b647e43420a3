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
from agents.kit.work.batches import request_cancel
from agents.kit.work.queues import wake_workers
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore
from evaluation.runs.failures import CALL_FAILED, reopen_failed
from evaluation.runs.planning import RESUMABLE, PreparedRun, has_little_speech, prepare_run
from evaluation.runs.shares import NOTHING, Share, share_counts, total
from evaluation.runs.spec import RunSpec
from evaluation.runs.summary import waiting_words
from evaluation.simulation.conversations import why_not_simulated

LEXICAL_JUDGE = "offline:lexical-1"


MOST_OFFERED = 200  # models with a price among the judges that a form offers


def judges_offered() -> list[str]:
    """Return judges that may be chosen from outside of this machine, the configured one first: no file, and all of a known cost.

    Of many models with a price these are the first ones; `is_judge_allowed` knows all.
    """
    priced = ModelPrice.objects.order_by("model").values_list("model", flat=True).distinct()[:MOST_OFFERED]
    return list(dict.fromkeys([str(settings.JUDGE_MODEL), LEXICAL_JUDGE, *priced]))


def is_judge_allowed(name: str) -> bool:
    """Return whether a judge may be chosen from outside of this machine."""
    return name in (settings.JUDGE_MODEL, LEXICAL_JUDGE) or ModelPrice.objects.filter(model=name).exists()


@dataclass(frozen=True, slots=True)
class Progress:
    """Judgements of a run and its channels' runs: those settled, all, and the share scored; `waits_for`: for which batches it waits."""

    settled: int = 0
    total: int = 0
    waits_for: str = ""
    share: Share = NOTHING


def progress_of(runs: Sequence[EvaluationRun]) -> dict[int, Progress]:
    """Return the progress of each run with the runs of its channels, by primary key; all zeros where no judgement was planned.

    It takes three queries for any number of runs, two where none is judged in batches.
    """
    parts = _runs_with_channels([run.pk for run in runs])
    judgements = EvaluationScore.objects.filter(evaluation_run__in=set().union(*parts.values())).order_by()
    rows: Any = judgements.values("evaluation_run").annotate(
        settled=Count("pk", filter=~Q(status="pending")), total=Count("pk"), **share_counts()
    )
    progress_by_part: dict[int, Progress] = {}
    for row in rows:
        share = Share(row["scored_once"], row["asked"])
        progress_by_part[row["evaluation_run"]] = Progress(row["settled"], row["total"], share=share)
    batched = [run for run in runs if run.batch]
    waiting = waiting_words(batched) if batched else {}
    progress: dict[int, Progress] = {}
    for pk, keys in parts.items():
        of_parts = [progress_by_part[key] for key in keys if key in progress_by_part]
        progress[pk] = Progress(
            settled=sum(part.settled for part in of_parts),
            total=sum(part.total for part in of_parts),
            waits_for=waiting.get(pk, ""),
            share=total(part.share for part in of_parts),
        )
    return progress


def _runs_with_channels(keys: Sequence[int]) -> dict[int, set[int]]:
    """Return, by the primary key of each run, that key and those of the runs of its channels."""
    parts: dict[int, set[int]] = {pk: {pk} for pk in keys}
    links = ChannelShare.objects.filter(agent_run__in=keys).order_by().values_list("agent_run", "channel_run")
    for agent_run, channel_run in links:
        parts[agent_run].add(channel_run)
    return parts


Status = EvaluationRun.Status
CANCELLABLE = (Status.PENDING, Status.RUNNING, Status.PAUSED_BUDGET)
STOPPED = (*RESUMABLE, Status.CANCELLED)  # what can resume; stored judgements stay


class NotPossible(ValueError):
    """The evaluation is in no status for this; says in which it is."""


def queue_run(spec: RunSpec, *, simulate: bool = False) -> PreparedRun:
    """Have a worker (`manage.py work`) measure what the spec asks for. Nothing is judged here.

    Args:
        simulate: Simulate conversations first with an agent that has little speech (AC-6.5.2), unless its actor could say nothing.

    Returns:
        The run; it is resumed if it asked for the same within 24 hours (paused for a budget: 7 days) and had not ended.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    if simulate and spec.agent and has_little_speech(spec) and not why_not_simulated(spec.agent):
        spec = replace(spec, simulated=True)
    with transaction.atomic():  # no worker sees a part of it
        run, resumed = prepare_run(spec)
        waiting = [run.pk, *run.channel_runs.values_list("pk", flat=True)]
        EvaluationRun.objects.filter(pk__in=waiting, status__in=RESUMABLE).update(status=Status.PENDING)
        transaction.on_commit(wake_workers)
    run.refresh_from_db(fields=["status"])
    return PreparedRun(run, resumed)


def cancel_run(run: EvaluationRun) -> EvaluationRun:
    """Stop an evaluation until it is resumed, with those of its channels that no other evaluation waits for; what was judged stays.

    A worker that is at it notices within seconds and stores no more. Batches under way are cancelled by a worker. The tokens used so far
    are stored.

    Raises:
        NotPossible: It ended already.
    """
    with transaction.atomic():
        if not _cancel(EvaluationRun.objects.filter(pk=run.pk)):
            run.refresh_from_db()
            raise NotPossible(
                f"evaluation {run.pk} is {run.status}; only one that is {_either(CANCELLABLE)} can be cancelled"
            )
        other_links = ChannelShare.objects.filter(channel_run=OuterRef("pk")).exclude(agent_run=run)
        waited_for = other_links.exclude(agent_run__status__in=EvaluationRun.FINAL)
        own_channel_runs = list(run.channel_runs.filter(~Exists(waited_for)))
        _cancel(EvaluationRun.objects.filter(pk__in=[channel_run.pk for channel_run in own_channel_runs]))
        request_cancel(LLMBatch.objects.filter(work_id__in=[stopped.work_id for stopped in (run, *own_channel_runs)]))
    used = ledger.totals(work_id=run.work_id)
    tokens = used.input_tokens + used.output_tokens + used.cache_read_tokens + used.cache_write_tokens
    EvaluationRun.objects.filter(pk=run.pk).update(token_usage=tokens)
    run.refresh_from_db()
    return run


def resume_run(run: EvaluationRun) -> EvaluationRun:
    """Have a worker resume an evaluation that stopped, or ask again what its judge failed to answer; stored judgements stay.

    So do those of its channels. A completed one is pending again also where only a channel's is resumed: its numbers depend on it.

    Raises:
        NotPossible: It is waiting or running, or there is nothing left to ask.
    """
    with transaction.atomic():
        resumed_channels = [_make_pending(channel_run) for channel_run in run.channel_runs.all()]
        resumed = _make_pending(run)
        if not resumed and any(resumed_channels):  # it is complete, its channels were not
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
    """Return whether `resume_run` has something to do.

    It has where the evaluation stopped; and where it completed, but one of its channels' evaluations stopped, or a call of any of them
    failed.
    """
    if run.status != Status.COMPLETED:
        return run.status in STOPPED
    channel_runs = run.channel_runs.all()
    if channel_runs.filter(status__in=STOPPED).exists():
        return True
    keys = [run.pk, *channel_runs.values_list("pk", flat=True)]
    return EvaluationScore.objects.filter(CALL_FAILED, evaluation_run__in=keys).exists()


def _cancel(runs: models.QuerySet[EvaluationRun]) -> int:
    """Cancel those of these runs that have not ended; return how many."""
    return runs.filter(status__in=CANCELLABLE).update(
        status=Status.CANCELLED,
        error="cancelled on request",
        lease_owner="",
        lease_expires_at=None,
        finished_at=timezone.now(),
    )


def _make_pending(run: EvaluationRun) -> bool:
    """Make a stopped run pending, and one that completed if the judge failed to answer some of it; return whether it was made pending.

    What the judge failed to answer in a completed one is pending again at once; in a stopped one when a worker takes it.
    """
    stored = EvaluationRun.objects.filter(pk=run.pk)
    if stored.filter(status__in=STOPPED).update(status=Status.PENDING, finished_at=None, error=""):
        return True
    failed = EvaluationScore.objects.filter(CALL_FAILED, evaluation_run=OuterRef("pk"))
    if stored.filter(Exists(failed), status=Status.COMPLETED).update(status=Status.PENDING, finished_at=None):
        reopen_failed(run)
        return True
    return False


def _either(statuses: tuple[str, ...]) -> str:
    """Write a list such as ``pending, running or paused_budget``."""
    return ", ".join(map(str, statuses[:-1])) + f" or {statuses[-1]}"
