"""The ledger: one `LLMCall` row per call of a model. Every token count and cost shown anywhere is a sum over it."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, IntegrityError, connection, transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.sql import InsertQuery
from django.utils import timezone

from agents.kit.llm import prices
from agents.kit.llm.requests import Exchange, LLMRequest, Status, Usage, short_line
from agents.kit.models import LLMCall, LLMPayload
from agents.kit.running import OUTAGE, retry_on_outage
from agents.kit.text.storable import storable

logger = logging.getLogger(__name__)

STORE_CHOICES = ("none", "judge", "all")
MOST_LATE = 1_000  # rows that wait in memory for the end of an outage


@dataclass(frozen=True, slots=True)
class _Row:
    """A call that is to be written: its columns without the cost, and the payload that is stored with it."""

    columns: dict[str, Any]
    payload: dict[str, Any] | None

    @property
    def identity(self) -> tuple[datetime, str, str]:
        """Return what tells the call from all others: each has a time of its own."""
        return self.columns["created_at"], self.columns["request_digest"], self.columns["work_id"]


def record_all(calls: Sequence[tuple[LLMRequest, Exchange]]) -> list[int | None]:
    """Write the rows of several calls by one insert, and their payloads by another; return the rows' primary keys.

    Where the insert fails, because an agent was deleted meanwhile or a value does not fit, each row is written alone,
    so that one cannot cost the others. A row that cannot be written even so is logged and its key is None: the caller
    must not lose the answer with it. A worker waits for a database that is away (`agents.kit.running`). What an outage
    outlasts stays in memory, its key is None, and the next call that is written, or the end of the process, writes it.
    """
    if not calls:
        return []
    now = timezone.now()
    rows = [
        _Row(_columns(request, exchange, now + timedelta(microseconds=number)), _payload(request, exchange))
        for number, (request, exchange) in enumerate(calls)
    ]
    try:
        try:
            keys = _write_patiently(rows)
        except OUTAGE:
            raise
        except Exception as problem:  # noqa: BLE001 (what is wrong is said when the row is written alone)
            logger.info("%d ledger rows could not be written at once, now one by one: %r", len(calls), problem)
            keys = [_write_alone(row) for row in rows]
    except OUTAGE:
        room = max(0, MOST_LATE - len(_delayed_rows))
        _delayed_rows.extend(rows[:room])
        logger.warning("%d ledger rows wait for the database, and are written afterwards", len(_delayed_rows))
        if lost := rows[room:]:
            logger.error("%d ledger rows are lost: %d wait for the database already", len(lost), len(_delayed_rows))
        return [None] * len(rows)
    write_delayed_rows()
    return keys


def _write_patiently(rows: Sequence[_Row], *, again: bool = False) -> list[int | None]:
    """Write rows, waiting for a database that is away; those that it took just before it went are not written twice.

    Args:
        again: Whether they may have been written before.
    """
    tries = itertools.count(int(again))
    return retry_on_outage(lambda: _write(rows, again=next(tries) > 0))


def _write_alone(row: _Row, *, again: bool = False) -> int | None:
    """Write one row; without its agent and run where these were deleted meanwhile, for its cost must not be lost.

    Returns:
        Its primary key; None where it cannot be written for another reason, which is logged.

    Raises:
        Exception: The database is away, one of OUTAGE.
    """
    try:
        try:
            return _write_patiently([row], again=again)[0]
        except IntegrityError:
            return _write_patiently([replace(row, columns=row.columns | {"agent_id": None, "run_id": None})])[0]
    except OUTAGE:
        raise
    except Exception:
        purpose, status = row.columns["purpose"], row.columns["status"]
        logger.exception("the ledger row of a %s call (%s) could not be written", purpose, status)
        return None


def _write(rows: Sequence[_Row], *, again: bool) -> list[int | None]:
    """Insert rows with their costs and payloads, and return their primary keys; with `again`, only if they are not there yet.

    One insert writes all or none, so they are there together or not at all. Payloads that cannot be stored are only logged.
    """
    key_by_identity = _keys_of_written(rows) if again else {}
    if len(key_by_identity) == len(rows):  # the insert had worked, and the outage only took the answer to it
        return [key_by_identity[row.identity] for row in rows]
    # Not `bulk_create`: it would store the time of writing for that of the call.
    query = InsertQuery(LLMCall)
    fields = [field for field in LLMCall._meta.concrete_fields if not field.primary_key]
    query.insert_values(fields, [LLMCall(**row.columns, cost_usd=_cost(row.columns)) for row in rows], raw=True)
    # A savepoint inside a transaction, so that a failed insert does not break the caller's.
    with transaction.atomic() if connection.in_atomic_block else nullcontext():
        inserted = query.get_compiler(using=DEFAULT_DB_ALIAS).execute_sql([LLMCall._meta.pk])
    keys = [key for (key,) in inserted]
    _store_payloads(
        [LLMPayload(call_id=key, **row.payload) for key, row in zip(keys, rows, strict=True) if row.payload]
    )
    return keys


def _keys_of_written(rows: Sequence[_Row]) -> dict[tuple[datetime, str, str], int]:
    """Return the primary keys of those rows that are written already, by `_Row.identity`."""
    written = {row.identity for row in rows}
    calls = LLMCall.objects.filter(created_at__in=[at for at, _, _ in written]).order_by()
    identities = calls.values_list("created_at", "request_digest", "work_id", "pk")
    return {(at, digest, work): key for at, digest, work, key in identities if (at, digest, work) in written}


_delayed_rows: deque[_Row] = deque()
_writing = threading.Lock()


def write_delayed_rows() -> None:
    """Write the rows that an outage delayed, oldest first, each once and with its own time; what the next outage stops waits on.

    Nothing is done inside a transaction, which may be rolled back with the rows, or while another thread writes them.
    """
    if not _delayed_rows or connection.in_atomic_block or not _writing.acquire(blocking=False):
        return
    try:
        while _delayed_rows:
            _write_alone(_delayed_rows[0], again=True)
            _delayed_rows.popleft()
    except OUTAGE as problem:
        logger.info("the database is away again, %d ledger rows wait: %s", len(_delayed_rows), problem)
    finally:
        _writing.release()


def _write_at_exit() -> None:
    write_delayed_rows()
    if _delayed_rows:
        logger.error("%d ledger rows are lost: the process ends and the database is still away", len(_delayed_rows))


def forget_late() -> None:
    """Give up the rows that wait: a forked child must not write those of its parent."""
    global _delayed_rows, _writing
    _delayed_rows = deque()
    _writing = threading.Lock()


os.register_at_fork(after_in_child=forget_late)
atexit.register(_write_at_exit)


def store_payload_if_wanted(call_id: int, request: LLMRequest, exchange: Exchange) -> None:
    """Store the payload of a call whose row is there already, once, where `LLM_STORE_PAYLOADS` says so."""
    if (payload := _payload(request, exchange)) and not LLMPayload.objects.filter(call=call_id).exists():
        _store_payloads([LLMPayload(call_id=call_id, **payload)])


def _payload(request: LLMRequest, exchange: Exchange) -> dict[str, Any] | None:
    """Return what `LLMPayload` holds of a call; None where nothing was sent, or LLM_STORE_PAYLOADS leaves out calls of this role."""
    choice = settings.LLM_STORE_PAYLOADS
    if exchange.body is None or not (choice == "all" or (choice == "judge" and request.role == "judge")):
        return None
    return {
        "request": storable(dict(exchange.body)),
        "reply": storable(exchange.reply.text),
        "tool_calls": list(exchange.tool_blocks),
    }


def _store_payloads(payloads: Sequence[LLMPayload]) -> None:
    """Insert payloads; those that cannot be stored are only logged, as the calls' rows stand without them."""
    if payloads:
        try:
            with transaction.atomic():
                LLMPayload.objects.bulk_create(payloads)
        except Exception:
            keys = ", ".join(str(payload.call_id) for payload in payloads)
            logger.exception("the payloads of model calls %s could not be stored", keys)


def _columns(request: LLMRequest, exchange: Exchange, at: datetime) -> dict[str, Any]:
    """Return a call's columns of `LLMCall` but for its cost, cut to the length of the columns."""
    label = request.label
    reply = exchange.reply
    usage = reply.usage
    return {
        "created_at": at,
        "role": request.role,
        "purpose": label.purpose[:64],
        "mechanism": label.mechanism[:64],
        "dimension": label.dimension[:32],
        "agent_id": label.agent_id,
        "run_id": label.run_id,
        "work_id": label.work_id[:80],
        "provider": reply.provider,
        "endpoint": short_line(reply.endpoint, 200),
        "model": short_line(reply.model, 200),
        "served_model": short_line(reply.served_model, 200),
        "status": reply.status.value,
        "error": short_line(reply.error),
        "stop_reason": short_line(reply.stop_reason, 32),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "latency_ms": reply.latency_ms,
        "attempts": reply.attempts,
        "batch": reply.batch,
        "temperature": request.temperature,
        "temperature_applied": None if request.temperature is None else reply.temperature_applied,
        "request_id": short_line(reply.request_id, 120),
        "request_digest": reply.request_digest,
    }


def _cost(call: Mapping[str, Any]) -> Decimal | None:
    """Return the cost of a call with these columns in US dollars: 0 where nothing is billed, None where price or tokens are unknown.

    Not billed are calls that were not sent or not connected, that the server rejected or limited, and its errors from HTTP 500 on. A
    time-out may be billed, and its tokens are unknown.
    Reads prices from the database.
    """
    turned_away = (
        call["status"] in (Status.RATE_LIMITED, Status.REJECTED)
        or call["error"].startswith("HTTP 5")
        or "ConnectError" in call["error"]
    )
    was_sent = call["attempts"] > 0
    if not was_sent or turned_away:
        return Decimal(0)
    usage = Usage(**{kind: call[kind] for kind in _KINDS})
    day = call["created_at"].astimezone(UTC).date()
    return prices.cost(call["model"], usage, day=day, served_model=call["served_model"], batch=call["batch"])


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
    by_work = totals_by(LLMCall.objects.filter(work_id__in=work_ids), "work_id")
    return {work_id: by_work.get(work_id) or _totals({}) for work_id in work_ids}


def totals_by(calls: QuerySet[LLMCall], column: str) -> dict[Any, Totals]:
    """Sum calls in one query, by the values of a column such as ``run``."""
    return {row[column]: _totals(row) for row in calls.order_by().values(column).annotate(**_SUMS)}


_KINDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_SUMS: dict[str, Any] = {
    "calls": Count("pk"),
    "unpriced": Count("pk", filter=Q(cost_usd__isnull=True)),
    "cost": Sum("cost_usd"),
    **{f"sum_{kind}": Sum(kind) for kind in _KINDS},
}


def _totals(sums: Mapping[str, Any]) -> Totals:
    """Return a row of `_SUMS` as totals; a sum over no call, which the database gives as NULL, is 0."""
    return Totals(
        calls=sums.get("calls", 0),
        unpriced=sums.get("unpriced", 0),
        cost_usd=sums.get("cost") or Decimal(0),
        **{kind: sums.get(f"sum_{kind}") or 0 for kind in _KINDS},
    )


def estimate_cost(
    model: str, input_tokens: int, output_tokens: int, *, day: date | None = None, batch: bool = False
) -> Decimal | None:
    """Return what so many uncached tokens of **one** call would cost on `day` (None: today) in US dollars; None for an unpriced model."""
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    return prices.cost(model, usage, day=day or timezone.now().date(), batch=batch)


def sum_if_all_priced(costs: Iterable[Decimal | None]) -> Decimal | None:
    """Return the sum of the costs; None when one of them is unpriced."""
    total = Decimal(0)
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total
