"""Message batches: questions are stored as rows, a worker asks the server how far each batch is and stores its answers, and the
work that handed them in reads each answer when it asks its question again."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Max, QuerySet
from django.utils import timezone

from agents.kit.llm import batch_api, endpoints, ledger
from agents.kit.llm.batch_api import BatchProblem
from agents.kit.llm.endpoints import route_of
from agents.kit.llm.providers import batch_problem
from agents.kit.llm.providers.base import BatchState, Entry, Route
from agents.kit.llm.requests import (
    Exchange,
    Label,
    LLMRequest,
    Reply,
    Role,
    read_answer,
    request_digest,
    with_example,
)
from agents.kit.llm.requests import Status as ReplyStatus
from agents.kit.models import LLMBatch, LLMBatchRequest, LLMCall
from agents.kit.running import retry_on_outage
from agents.kit.work.queues import wake_workers

MOST_REQUESTS = 2_000  # of the 100,000 that a batch may have: what is lost with one is little
MOST_BYTES = 20_000_000  # of the 256 MB
MOST_ROUNDS = 3  # what comes up after three batches is asked at once, at full price
LEASE = timedelta(minutes=5)
LONGEST_PAUSE = 600.0  # seconds between two looks
LOOKED_FOR_AFTER = timedelta(minutes=1)  # when it is unknown whether a batch arrived: by then the server lists it
SLOWER = 1.5  # factor by which each pause grows
OVERDUE = timedelta(hours=2)  # past the server's own deadline
LIFETIME = timedelta(hours=24)  # of a batch whose deadline is not known
SILENT = timedelta(days=2)  # past its deadline, without an answer of the server about it: it is given up
CLOCKS_DIFFER = timedelta(minutes=10)
Status = LLMBatch.Status
Result = LLMBatchRequest.Result
NO_ANSWER = (Result.ERRORED, Result.EXPIRED)  # asked without an answer; cancelled and lost questions count as not asked

log = logging.getLogger(__name__)


class BatchRefused(Exception):
    """Nothing was submitted; says why. `http_status` is 0 where no server was asked."""

    def __init__(self, why: str, http_status: int = 0) -> None:
        super().__init__(why)
        self.http_status = http_status


def why_no_batches() -> str:
    """Return why the judge's questions cannot go in batches (a provider without them, no key); empty where they can."""
    route = route_of("judge")
    return batch_problem(route.model) or route.problem


def request_key(request: LLMRequest, digest: str) -> str:
    """Return the key of a question. Equal questions for different items of the same work have different keys."""
    return hashlib.sha256(f"{request.label.item}\n{digest}".encode()).hexdigest()


def next_round(work_id: str) -> int:
    """Return the number of the next batch of this work; batches that never reached the server do not count."""
    reached = LLMBatch.objects.filter(work_id=work_id).exclude(batch_id="")
    return (reached.aggregate(last=Max("round"))["last"] or 0) + 1


def _never_in_batches(route: Route) -> set[str]:
    """Return what is left out of the bodies of a batch: a temperature, and what the endpoint is known to refuse."""
    return {"temperature", *endpoints.ability(route).forgone}


@dataclass(slots=True)
class Outgoing:
    """Questions that are to be submitted together: each with its request, key, digest and body, in this order.

    Attributes:
        work_id: The work that the batch serves. Answers belong to the work named in the label of their question; several may share it.
        round: Which submission of this work it is, from 1.
    """

    work_id: str
    route: Route
    round: int = 1
    questions: list[tuple[LLMRequest, str, str, dict[str, Any]]] = field(default_factory=list)
    bytes: int = 0

    def add(self, request: LLMRequest, digest: str) -> None:
        body = self.route.remote.body(request, self.route, without=_never_in_batches(self.route))
        self.questions.append((request, request_key(request, digest), digest, body))
        self.bytes += len(json.dumps(body))

    @property
    def is_full(self) -> bool:
        return len(self.questions) >= MOST_REQUESTS or self.bytes >= MOST_BYTES


def submit_batch(
    outgoing: Outgoing,
    *,
    owner: str,
    allowed: Callable[[], bool] = lambda: True,
    agent_id: int | None = None,
    planned: Decimal = Decimal(0),
    written: Callable[[LLMBatch], None] = lambda batch: None,
) -> LLMBatch | None:
    """Submit what is in `outgoing` and empty it, whatever becomes of the batch.

    The rows are committed before anything is sent. A process that is killed before the server's answer is stored leaves a batch without
    the server's id: the worker looks for it on the server, and only when it is not there the questions may be asked again.

    Args:
        allowed: Called just before it is sent: whether the work is still the caller's.
        planned: US dollars they are expected to cost; budgets count them while the batch is open.
        written: Called in the transaction that stores the rows, before anything is sent: to note which work waits for the batch. It raises
            IntegrityError where another process has that work.

    Returns:
        The batch, whether or not it is known to have arrived; None where another process has the work, or has asked these questions.

    Raises:
        BatchRefused: The server said no; the batch is stored as failed, its questions may be asked again.
    """
    questions = outgoing.questions
    token = secrets.token_hex(8)
    outgoing.questions = []
    outgoing.bytes = 0
    # The custom ids, by which the answers, and the batches, are distinguished.
    names = [f"pl-{token}-{number}" for number in range(1, len(questions) + 1)]
    if not allowed():
        return None
    try:
        with transaction.atomic():
            batch = _write_rows(outgoing, questions, names, owner=owner, agent_id=agent_id, planned_usd=planned)
            written(batch)
    except IntegrityError:  # another process has asked one of these questions, and waits for its answer
        return None
    try:
        state = batch_api.submit_batch(
            outgoing.route, [(name, body) for name, (_, _, _, body) in zip(names, questions, strict=True)]
        )
    except BatchProblem as problem:
        if not problem.is_refusal:
            _end_lease_until(batch, owner, f"unknown whether it arrived: {problem}", timezone.now() + LOOKED_FOR_AFTER)
            return batch
        batch.rows.update(result=Result.LOST)
        batch.finish(owner=owner, status=Status.FAILED, error=str(problem))
        if problem.http_status == 404:
            why = f"{outgoing.route.endpoint} has no Message Batches ({problem}): ask without batches"
            raise BatchRefused(why, problem.http_status) from None
        raise BatchRefused(f"the batch was refused: {problem}", problem.http_status) from None
    except BaseException:  # the work is to stop: the worker looks for the batch on the server
        batch.finish(owner=owner, status=Status.PENDING, error="unknown whether it arrived: broken off")
        raise
    due = timezone.now() + timedelta(seconds=settings.LLM_BATCH_POLL_SECONDS)
    _end_lease_until(
        batch, owner, "", due, batch_id=state.id, provider_status=state.status[:16], expires_at=state.expires_at
    )
    wake_workers()
    return batch


def _write_rows(
    outgoing: Outgoing,
    questions: list[tuple[LLMRequest, str, str, dict[str, Any]]],
    names: list[str],
    *,
    owner: str,
    **fields: Any,
) -> LLMBatch:
    """Store a batch, running and leased by `owner`, with one row for each question; `fields` are further columns of the batch.

    Should the process die now, the next look at it is after LOOKED_FOR_AFTER.

    Raises:
        IntegrityError: One of the questions of this work waits for its answer already.
    """
    now = timezone.now()
    batch: LLMBatch = LLMBatch.objects.create(
        status=Status.RUNNING,
        lease_owner=owner,
        lease_expires_at=now + LEASE,
        started_at=now,
        work_id=outgoing.work_id,
        round=outgoing.round,
        role=questions[0][0].role,
        model=outgoing.route.model,
        base_url=outgoing.route.base_url,
        requests=len(questions),
        next_look_at=now + LOOKED_FOR_AFTER,
        **fields,
    )
    LLMBatchRequest.objects.bulk_create(
        [
            LLMBatchRequest(
                batch=batch,
                custom_id=name,
                work_id=request.label.work_id,
                request_key=key,
                request_digest=digest,
                label=asdict(request.label),
            )
            for name, (request, key, digest, _) in zip(names, questions, strict=True)
        ],
        batch_size=500,
    )
    return batch


def _end_lease_until(batch: LLMBatch, owner: str, error: str, due: datetime, **fields: Any) -> None:
    """End the lease and let the batch wait for its next look, which is due at `due`; `fields` are further columns to store."""
    batch.finish(owner=owner, status=Status.PENDING, error=error, next_look_at=due, **fields)


def work_one(*, owner: str) -> bool:
    """Look at a batch whose next look is due; return whether there was one.

    Where the server does not answer, the batch is looked at again later or given up; an exception of any other kind is raised, after the
    next look was stored.
    """
    batch = LLMBatch.acquire_next(owner=owner, lease=LEASE)
    if batch is None:
        return False
    try:
        _check_batch(batch, owner)
    except BatchProblem as problem:
        _retry_later_or_fail(batch, owner, str(problem))
    except BaseException:
        _schedule_next_check(batch, owner, "the look at it was broken off")
        raise
    return True


def _check_batch(batch: LLMBatch, owner: str) -> None:
    """Ask the server how far a batch is, and store it: its results when it has ended.

    Nothing is asked where the settings no longer name the server that has the batch. One whose id is not known is looked for. A batch
    that a person cancelled is cancelled at the server first. One that the server does not know, or did not end in time, is given up.

    Raises:
        BatchProblem: The server did not say.
    """
    destination = route_of(_role(batch), batch.model)
    if destination.problem or destination.base_url != batch.base_url:
        moved = f"{batch.role} calls go to {destination.endpoint} now, but {batch.base_url} was given this batch"
        _retry_later_or_fail(batch, owner, destination.problem or moved)
        return
    if not batch.batch_id:
        _find_by_time_and_size(batch, destination, owner)
        return
    _cancel_if_requested(batch, destination)
    try:
        state = batch_api.check_batch(destination, batch.batch_id)
    except BatchProblem as problem:
        if problem.http_status != 404:
            raise
        _fail_batch(batch, owner, Result.ERRORED, f"the server knows no batch {batch.batch_id}")
        return
    LLMBatch.objects.filter(pk=batch.pk).update(
        provider_status=state.status[:16],
        answered=state.size - state.processing,
        expires_at=state.expires_at or batch.expires_at,
    )
    is_overdue = batch.expires_at is not None and timezone.now() > batch.expires_at + OVERDUE
    if state.has_ended:
        _store_results(batch, destination, state, owner)
    elif is_overdue:
        _fail_batch(batch, owner, Result.EXPIRED, "the server did not end it in time")
    else:
        _schedule_next_check(batch, owner, "")


def _cancel_if_requested(batch: LLMBatch, destination: Route) -> None:
    """Ask the server to stop a batch that a person cancelled. One that is only presumed ours is left alone."""
    if batch.cancel_requested_at is None or batch.presumed or batch.provider_status != "in_progress":
        return
    try:
        batch_api.cancel(destination, batch.batch_id)
    except BatchProblem as problem:
        if not problem.is_refusal:  # a refusal says that it has ended
            raise


def _retry_later_or_fail(batch: LLMBatch, owner: str, why: str) -> None:
    """Look again later, as the server did not say how far the batch is, until it is given up."""
    ended = batch.expires_at or batch.created_at + LIFETIME
    is_cancelled = batch.cancel_requested_at is not None
    patience = timedelta(0) if is_cancelled else SILENT  # nobody waits for the answers of one that a person cancelled
    if timezone.now() > ended + patience:
        _fail_batch(batch, owner, Result.EXPIRED, f"the server said nothing about it: {why}")
    else:
        _schedule_next_check(batch, owner, why)


def _schedule_next_check(batch: LLMBatch, owner: str, error: str) -> None:
    """Look again after a pause that grows with each look, up to LONGEST_PAUSE; `error` is empty where all is well."""
    pause = min(settings.LLM_BATCH_POLL_SECONDS * SLOWER ** min(batch.looks, 20), LONGEST_PAUSE)
    _end_lease_until(batch, owner, error, timezone.now() + timedelta(seconds=pause), looks=F("looks") + 1)


def _find_by_time_and_size(batch: LLMBatch, destination: Route, owner: str) -> None:
    """Find a batch whose id was never stored: the first of that time on the server that has its size and is not known, or it never arrived.

    That it is ours is seen from the custom ids once there are results. Until then it is presumed, and left alone: it may be another
    installation's with the same key.
    """
    known_ids = set(LLMBatch.objects.exclude(batch_id="").values_list("batch_id", flat=True)) | set(batch.not_ours)
    listed = batch_api.since(destination, batch.created_at - CLOCKS_DIFFER)
    # Batches of one size are not distinguished here: the custom ids of the results do that, see `_store_results`.
    ours = next((seen for seen in listed if seen.size == batch.requests and seen.id not in known_ids), None)
    if ours is None:
        _fail_batch(batch, owner, Result.LOST, "it never reached the server")
        return
    log.warning("batch %s of %s is presumed to be %s, whose name was lost", batch.pk, batch.work_id, ours.id)
    seen = {"provider_status": ours.status[:16], "expires_at": ours.expires_at}
    _end_lease_until(batch, owner, "", timezone.now(), batch_id=ours.id, presumed=True, **seen)


def _store_results(batch: LLMBatch, destination: Route, state: BatchState, owner: str) -> None:
    """Store the results of a batch that has ended, portion by portion, and complete it.

    A portion in which no custom id is ours belongs to another's batch: it was presumed wrongly, and ours is looked for again. Nothing
    more is stored once the lease is lost. A question without a result ends as errored.

    Raises:
        BatchProblem: The results stopped coming; those stored so far stay.
    """
    if not state.has_results:
        _fail_batch(batch, owner, Result.ERRORED, "the server no longer has the results")
        return
    for entries in batch_api.results(destination, batch.batch_id):
        if not batch.extend_lease(owner=owner, lease=LEASE):
            return
        if not batch.rows.filter(custom_id__in=[entry.custom_id for entry in entries]).exists():
            without_name = {"batch_id": "", "presumed": False, "provider_status": "", "expires_at": None}
            _end_lease_until(
                batch, owner, "", timezone.now(), not_ours=[*batch.not_ours, batch.batch_id], **without_name
            )
            return
        if batch.presumed:
            LLMBatch.objects.filter(pk=batch.pk).update(presumed=False)
            batch.presumed = False
        retry_on_outage(lambda entries=entries: _store_portion(batch, destination, entries))  # type: ignore[misc]
    batch.rows.filter(result="").update(result=Result.ERRORED, error="the results hold nothing for it")
    batch.finish(owner=owner, status=Status.COMPLETED, answered=batch.requests)
    wake_workers()


def _fail_batch(batch: LLMBatch, owner: str, result: Result, why: str) -> None:
    """End a batch as failed, and each of its questions that has no result yet with `result`; their work goes on."""
    batch.rows.filter(result="").update(result=result, error=why)
    batch.finish(owner=owner, status=Status.FAILED, error=why)
    wake_workers()


def _store_portion(batch: LLMBatch, destination: Route, entries: Sequence[Entry]) -> None:
    """Store answers and their ledger rows, together or not at all; those stored before stay as they are."""
    by_name = {entry.custom_id: entry for entry in entries}
    with transaction.atomic():
        rows = list(batch.rows.filter(custom_id__in=list(by_name), result="").select_for_update())
        _forget_deleted_agents_and_turns(rows)
        called_rows = []
        calls = []
        for row in rows:
            entry = by_name[row.custom_id]
            row.result = entry.result
            row.text = entry.text
            row.error = entry.error[:500]
            row.stop_reason = entry.stop_reason[:32]
            row.served_model = entry.served_model[:200]
            row.call_id = None
            call = _ledger_call(row, entry, batch, destination)
            if call is not None:
                called_rows.append(row)
                calls.append(call)
        for row, call_id in zip(called_rows, ledger.record_all(calls), strict=True):
            row.call_id = call_id
        LLMBatchRequest.objects.bulk_update(
            rows, ["result", "text", "error", "stop_reason", "served_model", "call"], batch_size=200
        )


def _forget_deleted_agents_and_turns(rows: Sequence[LLMBatchRequest]) -> None:
    """Empty `agent_id` or `run_id` in labels whose agent or turn was deleted while the batch was out: the ledger refuses unknown ones."""
    for key in (LLMCall.agent.field, LLMCall.run.field):
        name = key.attname
        mentioned = {row.label.get(name) for row in rows} - {None}
        rows_mentioned = key.remote_field.model._default_manager.filter(pk__in=mentioned)
        existing = set(rows_mentioned.values_list("pk", flat=True)) if mentioned else set()
        for row in rows:
            if row.label.get(name) not in existing:
                row.label = {**row.label, name: None}


def _ledger_call(
    row: LLMBatchRequest, entry: Entry, batch: LLMBatch, destination: Route
) -> tuple[LLMRequest, Exchange] | None:
    """Return the call for the ledger; None for a question that the server cancelled, which counts as not asked.

    Calls with 0 attempts (errored, expired) cost nothing: the server does not bill them. An answer is read here without its schema, which
    is not stored: `reply_of` corrects the status where it turns out malformed.
    """
    if entry.result == Result.CANCELED:
        return None
    request = LLMRequest(role=_role(batch), task="", system=(), turns=(), label=Label(**row.label))
    fields: dict[str, Any] = {"status": ReplyStatus.REJECTED, "error": entry.error, "attempts": 0}
    if entry.result == Result.EXPIRED:
        fields = {"status": ReplyStatus.TIMEOUT, "error": "not answered before its batch expired", "attempts": 0}
    if entry.result == Result.SUCCEEDED:
        answer = read_answer(request, text=entry.text, stop_reason=entry.stop_reason)
        fields = {"status": answer.status, "error": answer.error}
    reply = Reply(
        **fields,
        provider=destination.provider.name,
        endpoint=destination.endpoint,
        model=destination.model,
        served_model=entry.served_model,
        stop_reason=entry.stop_reason,
        usage=entry.usage,
        request_id=batch.batch_id,
        request_digest=row.request_digest,
        batch=True,
    )
    started_at = 0.0  # not known; the ledger row has the time at which it is written
    return request, Exchange(reply, started_at)


def _role(batch: LLMBatch) -> Role:
    return "judge" if batch.role == "judge" else "actor"


def is_waiting(work_id: str) -> bool:
    """Return whether a batch of this work is still open."""
    return LLMBatch.objects.filter(work_id=work_id, status__in=LLMBatch.OPEN).exists()


def request_cancel(batches: QuerySet[LLMBatch]) -> None:
    """Have a worker cancel those of these batches that are open; what was answered till then is paid for."""
    now = timezone.now()
    batches.filter(status__in=LLMBatch.OPEN).update(cancel_requested_at=now, next_look_at=now)


@dataclass(frozen=True, slots=True)
class InBatch:
    """A question that is to go in the next batch."""

    request: LLMRequest
    digest: str


class Answers:
    """What a model's batches answered for one piece of work; each answer is given once."""

    def __init__(self, work_id: str, route: Route) -> None:
        self._route = route
        self._rows: dict[str, deque[int]] = {}
        ended = LLMBatchRequest.objects.filter(
            work_id=work_id, batch__model=route.model, result__in=(Result.SUCCEEDED, *NO_ANSWER)
        )
        for key, pk in ended.order_by("pk").values_list("request_key", "pk"):
            self._rows.setdefault(key, deque()).append(pk)

    def take(self, key: str) -> LLMBatchRequest | None:
        """Return the next answer to this question, or what became of it; None when it was never asked or all its answers are taken."""
        waiting = self._rows.get(key)
        return LLMBatchRequest.objects.filter(pk=waiting.popleft()).first() if waiting else None

    def next_step(
        self, request: LLMRequest, *, may_wait: bool, first: Reply | None = None
    ) -> Reply | InBatch | LLMRequest:
        """Return the reply of an earlier batch, the question for the next one, or the request itself where it is to be asked at once.

        At once is asked what cannot wait, and what a batch brought no answer to. A malformed answer is asked for once more with an
        example, as for live calls.

        Args:
            may_wait: Whether what no batch was asked yet may go in the next one; False: it is asked at once.
            first: The malformed reply to the same request, when this is the second try with an example.
        """
        if request.tools or request.gate:  # these cannot wait for a batch
            return request
        digest = request_digest(request)
        row = self.take(request_key(request, digest))
        if row is None and may_wait:
            return InBatch(request, digest)
        if row is None or row.result in NO_ANSWER:
            return request
        reply = reply_of(request, row, self._route)
        if first is not None:
            return replace(reply, earlier=(first, *reply.earlier))  # the first try has a ledger row of its own
        can_ask_again = request.reask and request.schema is not None and request.example
        if reply.status is ReplyStatus.MALFORMED and can_ask_again:
            # The second try is the last one.
            return self.next_step(with_example(request), may_wait=may_wait, first=reply)
        return reply


def reply_of(request: LLMRequest, row: LLMBatchRequest, destination: Route) -> Reply:
    """Return an answer of a batch, read as a live one is, and add to its ledger row what was not known when it came in.

    The worker that stored the answer had neither the request's schema nor its text: only now its payload can be stored, and an answer
    found malformed. A row whose status is no longer ``ok`` stays as it is.
    """
    answer = read_answer(request, text=row.text, stop_reason=row.stop_reason)
    reply = Reply(
        status=answer.status,
        value=answer.value,
        error=answer.error,
        text=row.text,
        stop_reason=row.stop_reason,
        provider=destination.provider.name,
        endpoint=destination.endpoint,
        model=destination.model,
        served_model=row.served_model,
        request_digest=row.request_digest,
        call_id=row.call_id,
        batch=True,
    )
    if row.call_id is not None:
        # As `Outgoing.add` made it: no batch is sent with the example.
        body = destination.remote.body(request, destination, without=_never_in_batches(destination))
        exchange = Exchange(reply, time.time(), body)  # of the time nothing is stored
        ledger.store_payload_if_wanted(row.call_id, request, exchange)
        if answer.status is ReplyStatus.MALFORMED:  # refused and cut answers were known as such already
            LLMCall.objects.filter(pk=row.call_id, status=ReplyStatus.OK.value).update(
                status=reply.status.value, error=reply.error[:500]
            )
    return reply


def forget_answers(work_id: str) -> None:
    """Delete the questions of work that has ended: what was asked and answered is in its own tables and in the ledger."""
    LLMBatchRequest.objects.filter(work_id=work_id).exclude(result="").delete()
