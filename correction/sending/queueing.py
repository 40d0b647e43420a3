"""Queue what was just stored, for each receiver that is configured. Called in the transaction that stores it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from agents.kit.work.queues import wake_workers
from correction.models import CorrectionLog
from correction.sending.delivery import configured_destinations
from correction.sending.models import ScoreDelivery, ScoreReceiver
from evaluation.change.models import Change
from evaluation.models import EvaluationRun

Kind = ScoreDelivery.Kind


def queue_judgements(run: EvaluationRun) -> None:
    """Queue the judgements of a completed evaluation; of one that was completed before, those made since.

    Those that test a judge, or an experiment's agents, are no scores of an agent of the team's: they are not sent.
    """
    if not configured_destinations():
        return
    if run.swap_test or _is_synthetic(run):
        return
    _queue(Kind.EVALUATION, run.pk)


def queue_changes(changes: Sequence[Change]) -> None:
    """Queue changes that say something new, together for each evaluation that showed them."""
    if not configured_destinations():
        return
    by_evaluation: dict[int, list[int]] = {}
    for change in changes:
        if not change.agent.synthetic:
            by_evaluation.setdefault(change.evaluation_run_id, []).append(change.pk)
    for evaluation, parts in by_evaluation.items():
        _queue(Kind.CHANGES, evaluation, parts=parts)


def queue_attempt(log: CorrectionLog) -> None:
    """Queue the verdicts of an attempt, unless nothing was judged.

    Those on an experiment's agents, and those in simulations and demonstrations, are not sent.
    """
    if not configured_destinations():
        return
    session = log.session
    if not log.results:
        return
    if session.agent is not None and session.agent.synthetic:
        return
    if session.channel is not None and session.channel.synthetic:
        return
    _queue(Kind.ATTEMPT, log.pk)


def _is_synthetic(run: EvaluationRun) -> bool:
    target = run.agent or run.channel
    return target is not None and target.synthetic


def _queue(kind: Kind, object_id: int, *, parts: Sequence[int] = ()) -> None:
    """Write a delivery for each receiver that is configured; workers send it after the commit."""
    deliveries = []
    for name in configured_destinations():
        receiver, _ = ScoreReceiver.objects.get_or_create(name=name)
        since = _queued_before(receiver, object_id) if kind == Kind.EVALUATION else None
        deliveries.append(
            ScoreDelivery(receiver=receiver, kind=kind, object_id=object_id, parts=list(parts), since=since)
        )
    if deliveries:
        ScoreDelivery.objects.bulk_create(deliveries)
        transaction.on_commit(wake_workers)


def _queued_before(receiver: ScoreReceiver, evaluation: int) -> datetime | None:
    """Return when judgements of an evaluation were queued for a receiver last; None where they never were."""
    earlier = receiver.deliveries.filter(kind=Kind.EVALUATION, object_id=evaluation).order_by("-pk").first()
    return None if earlier is None else earlier.created_at
