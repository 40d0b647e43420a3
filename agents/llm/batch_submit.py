"""Handing questions in: first the rows, then the request, then the server's name for it."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from agents.llm import batch_api, endpoints
from agents.llm.batch_api import BatchProblem
from agents.llm.endpoints import Route
from agents.llm.messages import body_of
from agents.llm.requests import LLMRequest
from agents.models import LLMBatch, LLMBatchRequest
from agents.work.queues import wake_workers

MOST_REQUESTS = 2_000  # of the 100,000 that a batch may have: what is lost with one is little
MOST_BYTES = 20_000_000  # of the 256 MB
LEASE = timedelta(minutes=5)
LOOKED_FOR_AFTER = timedelta(minutes=1)  # when it is unknown whether a batch arrived: by then the server lists it
Result = LLMBatchRequest.Result


class NotHandedIn(Exception):
    """Nothing was handed in; says why."""


def request_key(request: LLMRequest, digest: str) -> str:
    """What a question is found by: equal ones for different items of the same work are different questions."""
    return hashlib.sha256(f"{request.label.item}\n{digest}".encode()).hexdigest()


def next_round(work_id: str) -> int:
    """Which time it is that this work hands something in; what never reached the server does not count."""
    reached = LLMBatch.objects.filter(work_id=work_id).exclude(batch_id="")
    return (reached.aggregate(last=Max("round"))["last"] or 0) + 1


@dataclass(slots=True)
class Outgoing:
    """Questions of one piece of work that are to be handed in together."""

    work_id: str
    way: Route
    round: int
    questions: list[tuple[LLMRequest, str, str, dict[str, Any]]] = field(default_factory=list)
    bytes: int = 0

    def add(self, request: LLMRequest, digest: str) -> None:
        structured = endpoints.ability(self.way).structured
        body = body_of(request, model=self.way.model, structured=structured, example=False)
        self.questions.append((request, request_key(request, digest), digest, body))
        self.bytes += len(json.dumps(body))

    @property
    def is_full(self) -> bool:
        return len(self.questions) >= MOST_REQUESTS or self.bytes >= MOST_BYTES


def hand_in(
    outgoing: Outgoing,
    *,
    owner: str,
    allowed: Callable[[], bool] = lambda: True,
    agent_id: int | None = None,
    planned: Decimal = Decimal(0),
) -> LLMBatch | None:
    """Hand in what is in `outgoing` and empty it.

    The rows are committed before anything is sent. A process that is killed before the server's answer is stored leaves a batch without
    a name: `batch_work` looks for it on the server, and only when it is not there the questions are free to be asked again.

    Args:
        outgoing: What to ask.
        owner: Who holds the batch meanwhile.
        allowed: Asked once more just before it is sent, whether the work is still the caller's.
        agent_id: Whom the questions are about; None = nobody.
        planned: US dollars they are expected to cost: budgets count them while the batch is open.

    Returns:
        The batch, whether or not it is known to have arrived; None where somebody else has these questions on their way, or the work.

    Raises:
        NotHandedIn: The server said no.
    """
    questions, token = outgoing.questions, secrets.token_hex(8)
    outgoing.questions, outgoing.bytes = [], 0
    names = [f"pl-{token}-{number}" for number in range(1, len(questions) + 1)]
    if not allowed():
        return None
    try:
        batch = _write_rows(outgoing, questions, names, owner=owner, agent_id=agent_id, planned_usd=planned)
    except IntegrityError:
        return None
    try:
        seen = batch_api.hand_in(
            outgoing.way, [(name, body) for name, (_, _, _, body) in zip(names, questions, strict=True)]
        )
    except BatchProblem as problem:
        if not problem.is_refusal:
            batch.finish(
                owner=owner,
                status=LLMBatch.Status.PENDING,
                error=f"unknown whether it arrived: {problem}",
                next_look_at=timezone.now() + LOOKED_FOR_AFTER,
            )
            return batch
        batch.rows.update(result=Result.LOST)
        batch.finish(owner=owner, status=LLMBatch.Status.FAILED, error=str(problem))
        raise NotHandedIn(_explained(problem, outgoing.way)) from None
    except BaseException:  # told to stop meanwhile
        batch.finish(owner=owner, status=LLMBatch.Status.PENDING, error="unknown whether it arrived: broken off")
        raise
    batch.finish(
        owner=owner,
        status=LLMBatch.Status.PENDING,
        batch_id=seen.id,
        provider_status=seen.status[:16],
        expires_at=seen.expires_at,
        next_look_at=timezone.now() + timedelta(seconds=settings.LLM_BATCH_POLL_SECONDS),
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
    now = timezone.now()
    with transaction.atomic():
        batch: LLMBatch = LLMBatch.objects.create(
            status=LLMBatch.Status.RUNNING,
            lease_owner=owner,
            lease_expires_at=now + LEASE,
            started_at=now,
            work_id=outgoing.work_id,
            round=outgoing.round,
            role=questions[0][0].role,
            model=outgoing.way.model,
            base_url=outgoing.way.base_url,
            requests=len(questions),
            next_look_at=now + LOOKED_FOR_AFTER,
            **fields,
        )
        LLMBatchRequest.objects.bulk_create(
            [
                LLMBatchRequest(
                    batch=batch,
                    custom_id=name,
                    work_id=outgoing.work_id,
                    request_key=key,
                    request_digest=digest,
                    label=asdict(request.label),
                )
                for name, (request, key, digest, _) in zip(names, questions, strict=True)
            ],
            batch_size=500,
        )
    return batch


def _explained(problem: BatchProblem, way: Route) -> str:
    if problem.http_status == 404:
        return f"{way.endpoint} has no Message Batches ({problem}): ask without batches"
    return f"the batch was not taken: {problem}"
