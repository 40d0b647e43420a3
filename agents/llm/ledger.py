"""The ledger: one `LLMCall` row per call of a model. Every token count and cost shown anywhere is a sum over it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from agents.llm import prices
from agents.llm.answers import Exchange, one_line
from agents.llm.extraction import storable
from agents.llm.ledger_rows import insert_calls
from agents.llm.requests import LLMRequest, Reply, Status, Usage
from agents.models import LLMCall, LLMPayload
from agents.outages import outlasting

logger = logging.getLogger(__name__)

STORE_CHOICES = ("none", "judge", "all")


def record_all(calls: Sequence[tuple[LLMRequest, Exchange]]) -> list[int | None]:
    """Write the rows of several calls by one insert, and their payloads by another; return the rows' primary keys.

    Where the insert fails, because an agent was deleted meanwhile or a value does not fit, each row is written alone,
    so that one cannot cost the others. A row that cannot be written even so is logged and its key is None: the caller
    must not lose the answer with it. A worker waits for a database that is away (`agents.outages`).
    """
    if not calls:
        return []
    try:
        return outlasting(lambda: _record_together(calls))
    except Exception as problem:  # noqa: BLE001 (what is wrong is said when the row is written alone)
        logger.info("%d ledger rows could not be written at once, now one by one: %r", len(calls), problem)
    return [_record_or_log(request, exchange) for request, exchange in calls]


def record(request: LLMRequest, exchange: Exchange) -> int:
    """Write the row of one call, and its payload where `LLM_STORE_PAYLOADS` says so; return the row's primary key.

    Args:
        request: What was asked; its label gives the columns.
        exchange: What was sent over the network and how it ended.

    Raises:
        DatabaseError: The row could not be written. A payload that cannot be written is only logged.
    """
    call = _insert(_columns(request, exchange.reply))
    if _stores_payload(request, exchange):
        _insert_payload(_payload(call.pk, exchange))
    return call.pk


def _record_or_log(request: LLMRequest, exchange: Exchange) -> int | None:
    try:
        return outlasting(lambda: record(request, exchange))
    except Exception:
        purpose, status = request.label.purpose, exchange.reply.status
        logger.exception("the ledger row of a %s call (%s) could not be written", purpose, status)
        return None


def _record_together(calls: Sequence[tuple[LLMRequest, Exchange]]) -> list[int | None]:
    keys = insert_calls([_columns(request, exchange.reply) for request, exchange in calls])
    payloads = [
        _payload(key, exchange)
        for key, (request, exchange) in zip(keys, calls, strict=True)
        if _stores_payload(request, exchange)
    ]
    if not payloads:
        return [*keys]
    try:
        with transaction.atomic():
            LLMPayload.objects.bulk_create(payloads)
    except Exception as problem:  # noqa: BLE001 (as above)
        logger.info("%d payloads could not be stored at once, now one by one: %r", len(payloads), problem)
        for payload in payloads:
            _insert_payload(payload)
    return [*keys]


def keep_payload(call_id: int, request: LLMRequest, exchange: Exchange) -> None:
    """Store the payload of a call whose row is there already, once, where `LLM_STORE_PAYLOADS` says so."""
    if _stores_payload(request, exchange) and not LLMPayload.objects.filter(call=call_id).exists():
        _insert_payload(_payload(call_id, exchange))


def _stores_payload(request: LLMRequest, exchange: Exchange) -> bool:
    choice = settings.LLM_STORE_PAYLOADS
    return exchange.body is not None and (choice == "all" or (choice == "judge" and request.role == "judge"))


def _payload(call_id: int, exchange: Exchange) -> LLMPayload:
    return LLMPayload(
        call_id=call_id,
        request=storable(dict(exchange.body or {})),
        reply=storable(exchange.reply.text),
        tool_calls=list(exchange.tool_blocks),
    )


def _insert_payload(payload: LLMPayload) -> None:
    try:
        with transaction.atomic():
            payload.save(force_insert=True)
    except Exception:
        logger.exception("the payload of model call %s could not be stored", payload.call_id)


def _columns(request: LLMRequest, reply: Reply) -> dict[str, Any]:
    label, usage = request.label, reply.usage
    return {
        "role": request.role,
        "purpose": label.purpose[:64],
        "mechanism": label.mechanism[:64],
        "dimension": label.dimension[:32],
        "agent_id": label.agent_id,
        "run_id": label.run_id,
        "work_id": label.work_id[:80],
        "provider": reply.provider,
        "endpoint": one_line(reply.endpoint, 200),
        "model": one_line(reply.model, 200),
        "served_model": one_line(reply.served_model, 200),
        "status": reply.status.value,
        "error": one_line(reply.error),
        "stop_reason": one_line(reply.stop_reason, 32),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cost_usd": _cost(reply),
        "latency_ms": reply.latency_ms,
        "attempts": reply.attempts,
        "batch": reply.batch,
        "request_id": one_line(reply.request_id, 120),
        "request_digest": reply.request_digest,
    }


def _cost(reply: Reply) -> Decimal | None:
    turned_away = (
        reply.status in (Status.RATE_LIMITED, Status.REJECTED)
        or reply.error.startswith("HTTP 5")
        or "ConnectError" in reply.error
    )
    if reply.attempts == 0 or turned_away:  # nothing was sent, or an HTTP error came back, which nobody bills
        return Decimal(0)
    today = timezone.now().date()
    return prices.cost(reply.model, reply.usage, day=today, served_model=reply.served_model, batch=reply.batch)


def _insert(columns: dict[str, Any]) -> LLMCall:
    """Insert the row; without its agent and run if they were deleted during the call, for its cost must not be lost."""
    if connection.in_atomic_block:
        with transaction.atomic():  # a savepoint: a row that fails must not spoil the caller's transaction
            return LLMCall.objects.create(**columns)
    try:
        return LLMCall.objects.create(**columns)
    except IntegrityError:
        return LLMCall.objects.create(**{**columns, "agent_id": None, "run_id": None})


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over calls. `cost_usd` leaves out the `unpriced` calls, so it must be shown with their number."""

    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: Decimal
    unpriced: int


def totals(calls: QuerySet[LLMCall] | None = None, *, work_id: str | None = None) -> Totals:
    """Sum calls in one query.

    Args:
        calls: The calls to sum; all by default.
        work_id: Only those that served this work.
    """
    chosen = LLMCall.objects.all() if calls is None else calls
    if work_id is not None:
        chosen = chosen.filter(work_id=work_id)
    return _totals(chosen.order_by().aggregate(**_SUMS))


def totals_of_work(work_ids: Collection[str]) -> dict[str, Totals]:
    """Sum the calls of several pieces of work in one query; all of them are in the result, also those without calls."""
    grouped = LLMCall.objects.filter(work_id__in=work_ids).order_by().values("work_id").annotate(**_SUMS)
    found = {row["work_id"]: _totals(row) for row in grouped}
    return {work_id: found.get(work_id) or _totals({}) for work_id in work_ids}


_KINDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_SUMS: dict[str, Any] = {
    "calls": Count("pk"),
    "unpriced": Count("pk", filter=Q(cost_usd__isnull=True)),
    "cost": Sum("cost_usd"),
    **{f"sum_{kind}": Sum(kind) for kind in _KINDS},
}


def _totals(sums: Mapping[str, Any]) -> Totals:
    return Totals(
        calls=sums.get("calls", 0),
        unpriced=sums.get("unpriced", 0),
        cost_usd=sums.get("cost") or Decimal(0),
        **{kind: sums.get(f"sum_{kind}") or 0 for kind in _KINDS},
    )


def estimate_cost(
    model: str, input_tokens: int, output_tokens: int, *, day: date | None = None, batch: bool = False
) -> Decimal | None:
    """US dollars that so many uncached tokens of **one** call would cost on `day` (today); None for an unpriced model."""
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    return prices.cost(model, usage, day=day or timezone.now().date(), batch=batch)
