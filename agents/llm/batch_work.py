"""Looking after batches: ask the server how far they are, store what it answered, find one whose name was lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Model
from django.utils import timezone

from agents.llm import batch_api, ledger
from agents.llm.answers import Exchange, read_answer
from agents.llm.batch_api import BatchProblem, Entry, Seen
from agents.llm.batch_submit import LEASE
from agents.llm.endpoints import Route, route_of
from agents.llm.requests import Label, LLMRequest, Reply, Role, Status
from agents.models import Agent, LLMBatch, LLMBatchRequest, Run
from agents.work.outages import outlasting
from agents.work.queues import wake_workers

LONGEST_PAUSE = 600.0  # seconds between two looks
SLOWER = 1.5  # each pause is so much longer than the one before
OVERDUE = timedelta(hours=2)  # past the server's own deadline
LIFETIME = timedelta(hours=24)  # of a batch whose deadline the server never said
SILENT = timedelta(days=2)  # past its deadline, without a word of the server about it: it is given up
CLOCKS_DIFFER = timedelta(minutes=10)
Result = LLMBatchRequest.Result

log = logging.getLogger(__name__)


def work_one(*, owner: str) -> bool:
    """Claim a batch whose next look is due, and look; whether there was one. What `manage.py work` calls."""
    batch = LLMBatch.acquire_next(owner=owner, lease=LEASE)
    if batch is None:
        return False
    try:
        _look(batch, owner)
    except BatchProblem as problem:
        _not_told(batch, owner, str(problem))
    except BaseException:
        _later(batch, owner, "the look at it was broken off")
        raise
    return True


def _look(batch: LLMBatch, owner: str) -> None:
    way = route_of(_role(batch), batch.model)
    if way.problem or way.base_url != batch.base_url:
        why = way.problem or f"{batch.role} calls go to {way.endpoint} now, but {batch.base_url} was given this batch"
        _not_told(batch, owner, why)
        return
    if not batch.batch_id:
        _find(batch, way, owner)
        return
    if batch.cancel_requested_at is not None and batch.provider_status == "in_progress" and not batch.presumed:
        _cancel(batch, way)
    try:
        seen = batch_api.look(way, batch.batch_id)
    except BatchProblem as problem:
        if problem.http_status != 404:
            raise
        _give_up(batch, owner, Result.ERRORED, f"the server knows no batch {batch.batch_id}")
        return
    LLMBatch.objects.filter(pk=batch.pk).update(
        provider_status=seen.status[:16], answered=seen.answered, expires_at=seen.expires_at or batch.expires_at
    )
    if seen.status == "ended":
        _collect(batch, way, seen, owner)
    elif batch.expires_at is not None and timezone.now() > batch.expires_at + OVERDUE:
        _give_up(batch, owner, Result.EXPIRED, "the server did not end it in time")
    else:
        _later(batch, owner, "")


def _cancel(batch: LLMBatch, way: Route) -> None:
    try:
        batch_api.cancel(way, batch.batch_id)
    except BatchProblem as problem:
        if not problem.is_refusal:  # it has ended
            raise


def _not_told(batch: LLMBatch, owner: str, why: str) -> None:
    """Nothing was learnt of it: asked again later, but not for ever, or what it serves would wait for ever."""
    ended = batch.expires_at or batch.created_at + LIFETIME
    patience = SILENT if batch.cancel_requested_at is None else timedelta(0)
    if timezone.now() > ended + patience:
        _give_up(batch, owner, Result.EXPIRED, f"the server told nothing of it: {why}")
    else:
        _later(batch, owner, why)


def _later(batch: LLMBatch, owner: str, error: str) -> None:
    pause = min(settings.LLM_BATCH_POLL_SECONDS * SLOWER ** min(batch.looks, 20), LONGEST_PAUSE)
    due = timezone.now() + timedelta(seconds=pause)
    batch.finish(owner=owner, status=LLMBatch.Status.PENDING, error=error, looks=F("looks") + 1, next_look_at=due)


def _find(batch: LLMBatch, way: Route, owner: str) -> None:
    """A batch whose name was never stored: the server's only unknown one of that time and size, or it never arrived.

    That it is ours is seen from the custom ids once there are results. Until then it is presumed, and left alone: it may be another
    installation's with the same key.
    """
    taken = set(LLMBatch.objects.exclude(batch_id="").values_list("batch_id", flat=True)) | set(batch.not_ours)
    made = batch_api.since(way, batch.created_at - CLOCKS_DIFFER)
    found = next((seen for seen in made if seen.requests == batch.requests and seen.id not in taken), None)
    if found is None:
        _give_up(batch, owner, Result.LOST, "it never reached the server")
        return
    log.warning("batch %s of %s is taken for %s, whose name was lost", batch.pk, batch.work_id, found.id)
    batch.finish(
        owner=owner,
        status=LLMBatch.Status.PENDING,
        batch_id=found.id,
        presumed=True,
        provider_status=found.status[:16],
        expires_at=found.expires_at,
        next_look_at=timezone.now(),
    )


def _collect(batch: LLMBatch, way: Route, seen: Seen, owner: str) -> None:
    if not seen.has_results:
        _give_up(batch, owner, Result.ERRORED, "the server no longer has the results")
        return
    for entries in batch_api.results(way, batch.batch_id):
        if not batch.extend_lease(owner=owner, lease=LEASE):
            return
        if not batch.rows.filter(custom_id__in=[entry.custom_id for entry in entries]).exists():
            _not_ours(batch, owner)
            return
        if batch.presumed:
            LLMBatch.objects.filter(pk=batch.pk).update(presumed=False)
            batch.presumed = False
        outlasting(lambda entries=entries: _store(batch, way, entries))  # type: ignore[misc]
    batch.rows.filter(result="").update(result=Result.ERRORED, error="the results hold nothing for it")
    batch.finish(owner=owner, status=LLMBatch.Status.COMPLETED, answered=batch.requests)
    wake_workers()


def _not_ours(batch: LLMBatch, owner: str) -> None:
    others = [*batch.not_ours, batch.batch_id]
    now = timezone.now()
    batch.finish(
        owner=owner,
        status=LLMBatch.Status.PENDING,
        batch_id="",
        presumed=False,
        provider_status="",
        not_ours=others,
        expires_at=None,
        next_look_at=now,
    )


def _give_up(batch: LLMBatch, owner: str, result: Result, why: str) -> None:
    batch.rows.filter(result="").update(result=result, error=why)
    batch.finish(owner=owner, status=LLMBatch.Status.FAILED, error=why)
    wake_workers()


def _store(batch: LLMBatch, way: Route, entries: Sequence[Entry]) -> None:
    """Answers and their ledger rows, together or not at all; those stored before stay as they are."""
    by_name = {entry.custom_id: entry for entry in entries}
    with transaction.atomic():
        rows = list(batch.rows.filter(custom_id__in=list(by_name), result="").select_for_update())
        _forget_the_deleted(rows)
        calls = [(row, _call(row, by_name[row.custom_id], batch, way)) for row in rows]
        asked = [(row, call) for row, call in calls if call is not None]
        ids = dict(zip((row.pk for row, _ in asked), ledger.record_all([call for _, call in asked]), strict=True))
        for row in rows:
            entry = by_name[row.custom_id]
            row.result, row.text, row.error = entry.result, entry.text, entry.error[:500]
            row.stop_reason, row.served_model = entry.stop_reason[:32], entry.served_model[:200]
            row.call_id = ids.get(row.pk)
        LLMBatchRequest.objects.bulk_update(
            rows, ["result", "text", "error", "stop_reason", "served_model", "call"], batch_size=200
        )


def _forget_the_deleted(rows: Sequence[LLMBatchRequest]) -> None:
    """An agent or turn may have been deleted while the batch was out: its calls were made, and are nobody's."""
    models: tuple[tuple[str, type[Model]], ...] = (("agent_id", Agent), ("run_id", Run))
    for name, model in models:
        named = {row.label.get(name) for row in rows} - {None}
        known = set(model._default_manager.filter(pk__in=named).values_list("pk", flat=True)) if named else set()
        for row in rows:
            if row.label.get(name) not in known:
                row.label = {**row.label, name: None}


def _call(row: LLMBatchRequest, entry: Entry, batch: LLMBatch, way: Route) -> tuple[LLMRequest, Exchange] | None:
    """The ledger's row: what nobody bills costs nothing. None for what the server never looked at."""
    if entry.result == Result.CANCELED:
        return None
    request = LLMRequest(role=_role(batch), task="", system=(), turns=(), label=Label(**row.label))
    fields: dict[str, Any] = {"status": Status.REJECTED, "error": entry.error, "attempts": 0}
    if entry.result == Result.EXPIRED:
        fields = {"status": Status.TIMEOUT, "error": "not answered before its batch expired", "attempts": 0}
    if entry.result == Result.SUCCEEDED:
        found = read_answer(request, text=entry.text, stop_reason=entry.stop_reason)
        fields = {"status": found.status, "error": found.error}
    reply = Reply(
        **fields,
        provider=way.provider,
        endpoint=way.endpoint,
        model=way.model,
        served_model=entry.served_model,
        stop_reason=entry.stop_reason,
        usage=entry.usage,
        request_id=batch.batch_id,
        request_digest=row.request_digest,
        batch=True,
    )
    return request, Exchange(reply, 0.0)


def _role(batch: LLMBatch) -> Role:
    return "judge" if batch.role == "judge" else "actor"
