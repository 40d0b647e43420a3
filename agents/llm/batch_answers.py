"""Answers of batches, given to the question they belong to when it is asked the next time."""

from __future__ import annotations

import time
from collections import deque

from agents.llm import endpoints, ledger
from agents.llm.answers import Exchange, read_answer
from agents.llm.endpoints import Route
from agents.llm.messages import body_of
from agents.llm.requests import LLMRequest, Reply, Status
from agents.models import LLMBatch, LLMBatchRequest, LLMCall

Result = LLMBatchRequest.Result
NO_ANSWER = (
    Result.ERRORED,
    Result.EXPIRED,
)  # asked in vain; what was cancelled or lost is asked as if for the first time


def is_waiting(work_id: str) -> bool:
    """Whether a batch of this work is still open."""
    return LLMBatch.objects.filter(work_id=work_id, status__in=LLMBatch.OPEN).exists()


class Answers:
    """What came back for one piece of work; each answer is given once."""

    def __init__(self, work_id: str) -> None:
        self._rows: dict[str, deque[int]] = {}
        found = LLMBatchRequest.objects.filter(work_id=work_id, result__in=(Result.SUCCEEDED, *NO_ANSWER))
        for key, pk in found.order_by("pk").values_list("request_key", "pk"):
            self._rows.setdefault(key, deque()).append(pk)

    def take(self, key: str) -> LLMBatchRequest | None:
        """The next answer to this question, or what became of it; None when it was never asked."""
        waiting = self._rows.get(key)
        return LLMBatchRequest.objects.filter(pk=waiting.popleft()).first() if waiting else None


def reply_of(request: LLMRequest, row: LLMBatchRequest, way: Route) -> Reply:
    """Read an answer just as a live one is read. What the ledger could not know when it came in, it is told now."""
    found = read_answer(request, text=row.text, stop_reason=row.stop_reason)
    reply = Reply(
        status=found.status,
        value=found.value,
        error=found.error,
        text=row.text,
        stop_reason=row.stop_reason,
        provider=way.provider,
        endpoint=way.endpoint,
        model=way.model,
        served_model=row.served_model,
        request_digest=row.request_digest,
        call_id=row.call_id,
        batch=True,
    )
    if row.call_id is not None:
        body = body_of(request, model=way.model, structured=endpoints.ability(way).structured, example=False)
        ledger.keep_payload(row.call_id, request, Exchange(reply, time.time(), body))
        if found.status is Status.MALFORMED:
            LLMCall.objects.filter(pk=row.call_id, status=Status.OK.value).update(
                status=reply.status.value, error=reply.error[:500]
            )
    return reply


def forget_answers(work_id: str) -> None:
    """The work has ended: what was asked and answered is in its own tables and in the ledger."""
    LLMBatchRequest.objects.filter(work_id=work_id).exclude(result="").delete()
