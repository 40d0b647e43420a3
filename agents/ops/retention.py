"""Pruning logs: rows that only say what happened go when they are old, a batch at a time; what was said and measured stays."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Max, Model, Q, QuerySet
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.models import (
    IdempotentRequest,
    Import,
    ImportChunk,
    ImportFile,
    LLMBatch,
    LLMBatchRequest,
    LLMCall,
    LLMPayload,
    Run,
    RunMessage,
    RunStep,
)
from agents.ops.sums import LEDGER, Rolled, prunable_before

ALLOWED = "a number and d or w (days, weeks), from 1d to 3650d, e.g. 90d or 12w"
BATCH, LONGEST_BATCH = 1_000, 10_000  # rows one transaction deletes
SAMPLED = 200  # rows whose size is measured for an estimate
SHORTEST_PAUSE = 0.05  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A table whose old rows may go.

    Attributes:
        rows: The rows that may go, made before a moment.
        children: Models and their foreign keys whose rows go with one of these; they count as rows of the batch.
        rolled: The sums that must be made of them before, if there are any.
    """

    rows: Callable[[datetime], QuerySet[Any]]
    children: tuple[tuple[type[Model], str], ...] = ()
    rolled: Rolled | None = None

    @property
    def table(self) -> str:
        return str(self.rows(timezone.now()).model._meta.db_table)

    def tables(self) -> list[str]:
        return [self.table, *(model._meta.db_table for model, _ in self.children)]


@dataclass(frozen=True, slots=True)
class Prunable:
    """What of a table would go: rows and about how many bytes of values, without indexes."""

    table: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """A batch that is gone: rows per table, and how far it is, 0 to 1."""

    rows: dict[str, int]
    done: float


def parse_age(text: str) -> timedelta:
    """Read an age such as ``90d`` or ``12w``.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    match = re.fullmatch(r"(\d{1,5})([dw])", text.strip().lower())
    days = int(match[1]) * (7 if match[2] == "w" else 1) if match else 0
    if not 1 <= days <= 3650:
        raise ValueError(f"{text!r} is no age of logs; allowed: {ALLOWED}")
    return timedelta(days=days)


def logs() -> list[Log]:
    """Everything that may be pruned (the setting RETENTION), in the order in which it is."""
    return [log for path in settings.RETENTION for log in import_string(path)]


def prunable(log: Log, cutoff: datetime) -> Iterator[Prunable]:
    """What would go of this table and of those that hang on it; changes nothing."""
    rows = log.rows(cutoff)
    yield _measured(rows)
    for model, key in log.children:
        yield _measured(model._default_manager.filter(**{f"{key}__in": rows.order_by().values("pk")}))


def prune(
    log: Log, cutoff: datetime, *, batch: int = BATCH, rest: Callable[[float], None] = time.sleep
) -> Generator[Pruned, None, None]:
    """Delete old rows, each batch in a transaction of its own, with a pause between two that is at least as long as the batch took.

    May be stopped at any time and begun again. Sums that are not made yet are made first.

    Args:
        log: The table.
        cutoff: Rows made before it go; those with sums, whole hours only.
        batch: Most rows one transaction deletes, children included, unless a single row has more.
        rest: Waits so many seconds.
    """
    if log.rolled is not None:
        if not log.rows(cutoff).exists():
            return
        cutoff = prunable_before(log.rolled, cutoff) or cutoff
    rows = log.rows(cutoff)
    last = rows.order_by().aggregate(last=Max("pk"))["last"]
    after: int | None = None
    first: int | None = None
    while last is not None:
        ahead = rows.filter(pk__lte=last) if after is None else rows.filter(pk__gt=after, pk__lte=last)
        keys = _fitting(log, list(ahead.order_by("pk").values_list("pk", flat=True)[:batch]), batch)
        if not keys:
            return
        first, after = keys[0] if first is None else first, keys[-1]
        began = time.monotonic()
        with transaction.atomic():
            _, per_model = rows.model._default_manager.filter(pk__in=keys).delete()
        names = {
            model._meta.label: model._meta.db_table for model in (rows.model, *(child for child, _ in log.children))
        }
        gone = {names[label]: number for label, number in per_model.items() if number and label in names}
        yield Pruned(gone, (after - first + 1) / (last - first + 1))
        rest(max(SHORTEST_PAUSE, time.monotonic() - began))


def _fitting(log: Log, keys: list[int], batch: int) -> list[int]:
    """The first of these keys whose rows and children are no more than `batch`; at least one."""
    if not log.children:
        return keys
    weights = dict.fromkeys(keys, 1)
    for model, key in log.children:
        counted = model._default_manager.filter(**{f"{key}__in": keys}).order_by().values_list(key)
        for parent, number in counted.annotate(number=Count("pk")):
            weights[parent] += number
    totals = accumulate(weights[pk] for pk in keys)
    return [pk for place, (pk, total) in enumerate(zip(keys, totals, strict=True)) if not place or total <= batch]


def _measured(rows: QuerySet[Any]) -> Prunable:
    number = rows.order_by().count()
    sample = list(rows.order_by("pk").values_list()[:SAMPLED])
    each = sum(len(str(value).encode()) for row in sample for value in row) / len(sample) if sample else 0
    return Prunable(rows.model._meta.db_table, number, round(number * each))


def _of_ended_runs(model: type[Model]) -> Callable[[datetime], QuerySet[Any]]:
    return lambda before: model._default_manager.filter(run__status__in=Run.FINAL, run__finished_at__lt=before)


def _ended_batches(before: datetime) -> QuerySet[LLMBatch]:
    """Answered or not: what the work they served has not read by then, it never does."""
    return LLMBatch.objects.filter(status__in=LLMBatch.FINAL, finished_at__lt=before)


LOGS = (
    Log(rows=_of_ended_runs(RunMessage)),
    Log(rows=_of_ended_runs(RunStep)),
    Log(rows=lambda before: LLMBatchRequest.objects.filter(batch__in=_ended_batches(before))),
    Log(rows=_ended_batches),
    Log(
        rows=lambda before: LLMCall.objects.filter(created_at__lt=before),
        children=((LLMPayload, "call"),),
        rolled=LEDGER,
    ),
    Log(
        rows=lambda before: Import.objects.filter(
            Q(status__in=Import.FINAL, finished_at__lt=before) | Q(status=Import.WAITING, created_at__lt=before)
        ),
        children=((ImportFile, "of"), (ImportChunk, "file__of")),
    ),
    # Their answers are not sent any more, however long the other logs are kept.
    Log(rows=lambda _before: IdempotentRequest.objects.filter(created_at__lt=timezone.now() - IdempotentRequest.KEPT)),
)
