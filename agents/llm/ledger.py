"""The ledger: one `LLMCall` row per call of a model. Every token count and cost shown anywhere is a sum over it."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from agents.llm import prices
from agents.llm.requests import Exchange, LLMRequest, Reply, Status, Usage, one_line, storable
from agents.models import LLMCall, LLMPayload
from agents.work.running import OUTAGE, is_outage, outlasting

ROWS_PER_STATEMENT = 30  # SQLite takes 999 values


def insert_calls(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Insert calls, all of them or none, and return their primary keys in their order.

    Raises:
        DatabaseError: A row does not fit; a transaction around this stays usable.
    """
    keys: list[int] = []
    one_statement = len(rows) <= ROWS_PER_STATEMENT
    with nullcontext() if one_statement and not connection.in_atomic_block else transaction.atomic():
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            keys += _insert_rows(rows[start : start + ROWS_PER_STATEMENT])
    return keys


def _insert_rows(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    statement, fields = _statement(connection.vendor, len(rows))
    values = [field.get_db_prep_save(row[field.attname], connection) for row in rows for field in fields]
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [key for (key,) in cursor.fetchall()]


@lru_cache(maxsize=2 * ROWS_PER_STATEMENT)
def _statement(vendor: str, number: int) -> tuple[str, list[Any]]:
    """The INSERT of so many rows, and the fields whose values it takes, row by row. Each vendor quotes names in its own way."""
    meta, quoted = LLMCall._meta, connection.ops.quote_name
    fields = [field for field in meta.concrete_fields if not field.primary_key]
    columns = ", ".join(quoted(str(field.column)) for field in fields)
    places = ", ".join(["(" + ", ".join(["%s"] * len(fields)) + ")"] * number)
    key = quoted(str(meta.pk.column))
    return f"INSERT INTO {quoted(meta.db_table)} ({columns}) VALUES {places} RETURNING {key}", fields  # noqa: S608


logger = logging.getLogger(__name__)

STORE_CHOICES = ("none", "judge", "all")


@dataclass(frozen=True, slots=True)
class _Row:
    """A call that is to be written, with the time that tells it from all others."""

    request: LLMRequest
    exchange: Exchange
    at: datetime

    @property
    def identity(self) -> tuple[datetime, str, str]:
        return self.at, self.exchange.reply.request_digest, self.request.label.work_id[:80]


def record_all(calls: Sequence[tuple[LLMRequest, Exchange]]) -> list[int | None]:
    """Write the rows of several calls by one insert, and their payloads by another; return the rows' primary keys.

    Where the insert fails, because an agent was deleted meanwhile or a value does not fit, each row is written alone,
    so that one cannot cost the others. A row that cannot be written even so is logged and its key is None: the caller
    must not lose the answer with it. A worker waits for a database that is away (`agents.work.running`). What an outage
    outlasts stays in memory, its key is None, and the next call that is written, or the end of the process, writes it.
    """
    if not calls:
        return []
    now = timezone.now()
    rows = [_Row(*call, now + timedelta(microseconds=number)) for number, call in enumerate(calls)]
    try:
        keys = _patiently(rows)
    except Exception as problem:  # noqa: BLE001 (what is wrong is said when the row is written alone)
        if isinstance(problem, OUTAGE) and not connection.in_atomic_block:
            _hold(rows)
            return [None] * len(rows)
        logger.info("%d ledger rows could not be written at once, now one by one: %r", len(calls), problem)
        return [_alone(row) for row in rows]
    write_late()
    return keys


def _patiently(rows: Sequence[_Row]) -> list[int | None]:
    """Write rows, waiting for a database that is away; those that it took just before it went are not written twice."""
    tries = itertools.count()
    return outlasting(lambda: _write(rows, again=next(tries) > 0))


def _alone(row: _Row) -> int | None:
    try:
        try:
            return _patiently([row])[0]
        except IntegrityError:
            if connection.in_atomic_block:
                raise
            return _patiently([_of_nobody(row)])[0]
    except Exception:
        purpose, status = row.request.label.purpose, row.exchange.reply.status
        logger.exception("the ledger row of a %s call (%s) could not be written", purpose, status)
        return None


def _of_nobody(row: _Row) -> _Row:
    """The row without its agent and run, which were deleted during the call: its cost must not be lost."""
    return replace(row, request=replace(row.request, label=replace(row.request.label, agent_id=None, run_id=None)))


def _write(rows: Sequence[_Row], *, again: bool = False) -> list[int | None]:
    known = _known(rows) if again else {}
    if len(known) == len(rows):  # the answer to the insert was what the outage took
        return [known[row.identity] for row in rows]
    keys = insert_calls([_columns(row) for row in rows])
    payloads = [
        _payload(key, row.exchange)
        for key, row in zip(keys, rows, strict=True)
        if _stores_payload(row.request, row.exchange)
    ]
    try:
        with transaction.atomic() if payloads else nullcontext():
            LLMPayload.objects.bulk_create(payloads)
    except Exception as problem:  # noqa: BLE001 (as above)
        logger.info("%d payloads could not be stored at once, now one by one: %r", len(payloads), problem)
        for payload in payloads:
            _insert_payload(payload)
    return [*keys]


def _known(rows: Sequence[_Row]) -> dict[tuple[datetime, str, str], int]:
    """The primary keys of those that are written already."""
    wanted = {row.identity for row in rows}
    calls = LLMCall.objects.filter(created_at__in=[row.at for row in rows]).order_by()
    identities = calls.values_list("created_at", "request_digest", "work_id", "pk")
    return {(at, digest, work): key for at, digest, work, key in identities if (at, digest, work) in wanted}


MOST_LATE = 1_000  # rows that wait in memory for the end of an outage
_late: deque[_Row] = deque()
_lost = 0
_lock, _writing = threading.Lock(), threading.Lock()


def _hold(rows: Sequence[_Row]) -> None:
    """Hold rows that could not be written in an outage; those beyond the bound are counted as lost, and logged."""
    global _lost
    with _lock:
        room = max(0, MOST_LATE - len(_late))
        _late.extend(map(_as_small, rows[:room]))
        left_out = len(rows) - min(room, len(rows))
        _lost += left_out
        waiting, lost = len(_late), _lost
    if left_out:
        logger.error("%d ledger rows are lost, %d in all: %d wait for the database already", left_out, lost, waiting)
    else:
        logger.warning("%d ledger rows wait for the database, and are written afterwards", waiting)


def _as_small(row: _Row) -> _Row:
    """The row without the texts that are not written."""
    request = replace(row.request, system=(), turns=(), facts={}, parse=None, span=None)
    if _stores_payload(row.request, row.exchange):
        return replace(row, request=request)
    reply = replace(row.exchange.reply, text="", value=None, tool_calls=(), earlier=())
    return replace(row, request=request, exchange=Exchange(reply, row.exchange.started_at))


def write_late() -> None:
    """Write the rows that an outage delayed, oldest first, each once and with its own time."""
    if not _late or connection.in_atomic_block or not _writing.acquire(blocking=False):
        return
    try:
        while rows := _first_late():
            _write_some(rows)
            with _lock:
                for _ in rows:
                    _late.popleft()
    except OUTAGE as problem:
        logger.info("the database is away again, %d ledger rows wait: %s", len(_late), problem)
    finally:
        _writing.release()


def _first_late() -> list[_Row]:
    with _lock:
        return list(itertools.islice(_late, ROWS_PER_STATEMENT))


def _write_some(rows: Sequence[_Row]) -> None:
    """Write late rows in one transaction, or one by one where that fails.

    Raises:
        OperationalError, InterfaceError: The database is away again; those that are written by now are not written again.
    """
    global _lost
    known = _known(rows)
    missing = [row for row in rows if row.identity not in known]
    try:
        with transaction.atomic():
            _write(missing)
        return
    except Exception as problem:
        if is_outage(problem):
            raise
    for row in missing:
        try:
            try:
                _write([row])
            except IntegrityError:
                _write([_of_nobody(row)])
        except Exception as problem:
            if is_outage(problem):
                raise
            with _lock:
                _lost += 1
            logger.exception("a ledger row of %s could not be written afterwards, %d are lost in all", row.at, _lost)


def _write_at_exit() -> None:
    if not _late:
        return
    write_late()
    if _late:
        logger.error("%d ledger rows are lost: the process ends and the database is still away", len(_late))


def forget_late() -> None:
    """Give up the rows that wait: a forked child must not write those of its parent."""
    global _late, _lost, _lock, _writing
    _late, _lost = deque(), 0
    _lock, _writing = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=forget_late)
atexit.register(_write_at_exit)


def store_payload(call_id: int, request: LLMRequest, exchange: Exchange) -> None:
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


def _columns(row: _Row) -> dict[str, Any]:
    label, reply = row.request.label, row.exchange.reply
    usage = reply.usage
    return {
        "created_at": row.at,
        "role": row.request.role,
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
        "cost_usd": _cost(reply, row.at),
        "latency_ms": reply.latency_ms,
        "attempts": reply.attempts,
        "batch": reply.batch,
        "temperature": row.request.temperature,
        "temperature_applied": None if row.request.temperature is None else reply.temperature_applied,
        "request_id": one_line(reply.request_id, 120),
        "request_digest": reply.request_digest,
    }


def _cost(reply: Reply, at: datetime) -> Decimal | None:
    turned_away = (
        reply.status in (Status.RATE_LIMITED, Status.REJECTED)
        or reply.error.startswith("HTTP 5")
        or "ConnectError" in reply.error
    )
    if reply.attempts == 0 or turned_away:  # nothing was sent, or an HTTP error came back, which is not billed
        return Decimal(0)
    day = at.astimezone(UTC).date()
    return prices.cost(reply.model, reply.usage, day=day, served_model=reply.served_model, batch=reply.batch)


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
