"""Pruning logs: rows that only say what happened go when they are old, a batch at a time; what was said and measured stays."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, QuerySet

from agents.kit.ops.sums import prunable_before
from agents.kit.registry import Prune

ALLOWED = "a number and d or w (days, weeks), from 1d to 3650d, e.g. 90d or 12w"
BATCH, LONGEST_BATCH = 1_000, 10_000  # rows one transaction deletes
SAMPLED = 200  # rows whose size is measured for an estimate
SHORTEST_PAUSE = 0.05  # seconds


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
    """Read an age such as ``90d`` or ``12w``, from 1 to 3650 days.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    match = re.fullmatch(r"(\d{1,5})([dw])", text.strip().lower())
    days = 0
    if match:
        days = int(match[1])
        if match[2] == "w":
            days *= 7
    if not 1 <= days <= 3650:
        raise ValueError(f"{text!r} is no age of logs; allowed: {ALLOWED}")
    return timedelta(days=days)


def prunable(rule: Prune, cutoff: datetime) -> Iterator[Prunable]:
    """Yield how many rows would be deleted from this table and from those that refer to it; changes nothing."""
    rows = rule.rows(cutoff)
    yield _measured(rows)
    for model, key in rule.children:
        yield _measured(model._default_manager.filter(**{f"{key}__in": rows.order_by().values("pk")}))


def prune(
    rule: Prune, cutoff: datetime, *, batch: int = BATCH, rest: Callable[[float], None] = time.sleep
) -> Generator[Pruned, None, None]:
    """Delete old rows, each batch in a transaction of its own, with a pause between two that is at least as long as the batch took.

    May be stopped at any time and begun again. Sums that are not made yet are made first. Rows made meanwhile stay. Yields after each
    batch; nothing where no row is old enough.

    Args:
        rule: Of the table.
        cutoff: Rows made before it go; those with sums, whole hours only.
        batch: Most rows one transaction deletes, children included, unless a single row has more.
        rest: Waits so many seconds.
    """
    if rule.sums is not None:
        if not rule.rows(cutoff).exists():
            return
        cutoff = prunable_before(rule.sums, cutoff) or cutoff  # rows that are not summed yet stay
    rows = rule.rows(cutoff)
    last = rows.order_by().aggregate(last=Max("pk"))["last"]
    after: int | None = None  # the last key that is gone; None before the first batch
    first: int | None = None  # the first key that went: progress is measured in keys from it to `last`
    while last is not None:
        ahead = rows.filter(pk__lte=last) if after is None else rows.filter(pk__gt=after, pk__lte=last)
        keys = _fitting(rule, list(ahead.order_by("pk").values_list("pk", flat=True)[:batch]), batch)
        if not keys:
            return
        first = keys[0] if first is None else first
        after = keys[-1]
        began = time.monotonic()
        with transaction.atomic():
            keys = _still_old(rows, keys)
            _, per_model = rows.model._default_manager.filter(pk__in=keys).delete()
        names = {model._meta.label: model._meta.db_table for model in (rows.model, *dict(rule.children))}
        # `delete` also counts rows of other tables that went with these: they are not reported.
        gone = {names[label]: number for label, number in per_model.items() if number and label in names}
        yield Pruned(gone, (after - first + 1) / (last - first + 1))
        rest(max(SHORTEST_PAUSE, time.monotonic() - began))


def _still_old(rows: QuerySet[Any], keys: list[int]) -> list[int]:
    """Lock the rows with these keys, and return those that may still go: others may have added to them since they were chosen."""
    list(rows.model._default_manager.filter(pk__in=keys).order_by("pk").select_for_update().values_list("pk"))
    return list(rows.filter(pk__in=keys).values_list("pk", flat=True))


def _fitting(rule: Prune, keys: list[int], batch: int) -> list[int]:
    """Return the first of these keys whose rows and children together are no more than `batch`; at least one, so that it goes on."""
    if not rule.children:
        return keys
    weights = dict.fromkeys(keys, 1)
    for model, key in rule.children:
        counted = model._default_manager.filter(**{f"{key}__in": keys}).order_by().values_list(key)
        for parent, number in counted.annotate(number=Count("pk")):
            weights[parent] += number
    totals = accumulate(weights[pk] for pk in keys)
    return [pk for n, (pk, total) in enumerate(zip(keys, totals, strict=True)) if not n or total <= batch]


def _measured(rows: QuerySet[Any]) -> Prunable:
    """Count rows and estimate their bytes from the first of them: the values' texts in UTF-8."""
    number = rows.order_by().count()
    sample = list(rows.order_by("pk").values_list()[:SAMPLED])
    table = rows.model._meta.db_table
    if not sample:
        return Prunable(table, number, 0)
    size_of_sample = sum(len(str(value).encode()) for row in sample for value in row)
    return Prunable(table, number, round(number * size_of_sample / len(sample)))
