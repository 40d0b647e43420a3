"""Hourly sums of the ledger and of the gate's logs, so that no page scans raw rows; they stay when the rows are pruned.

An hour is summed `ROLLUP_LAG_MINUTES` after its end and again each time one of the next two hours is, because rows may be committed or
change late. A sum over any window adds whole hours from the tables of sums and reads raw rows only at the window's edges.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import (
    Case,
    Count,
    DateTimeField,
    DecimalField,
    F,
    Model,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.expressions import BaseExpression
from django.db.models.functions import Coalesce, Greatest, Least
from django.db.models.lookups import IsNull
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.kit.capability import declared_list
from agents.kit.models import LedgerHour, LLMCall, Rollup

HOUR = timedelta(hours=1)
SUMMED_AGAIN = 2 * HOUR
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")

Expressions = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlySums:
    """One table of sums: a row per hour and combination of keys.

    Attributes:
        table: Has the columns `hour`, the keys and the sums.
        raw: The rows that are summed, as a fresh queryset.
        time: The lookup of the moment that says to which hour a raw row belongs.
        keys: Per key column, its value on a raw row.
        sums: Per sum column, the aggregate over raw rows; never null.
        counted: The sum column that counts the raw rows.
    """

    table: type[Model]
    raw: Callable[[], QuerySet[Any]]
    time: str
    keys: Expressions
    sums: Expressions
    counted: str

    def of_hour(self, hour: datetime) -> QuerySet[Any]:
        return self.raw().filter(**{f"{self.time}__gte": hour, f"{self.time}__lt": hour + HOUR})

    def is_whole(self, hour: datetime) -> bool:
        """Return whether there are at least as many raw rows of this hour as were summed; else some were pruned."""
        summed = self.table._default_manager.filter(hour=hour).aggregate(rows=Sum(self.counted))["rows"] or 0
        return summed == 0 or self.of_hour(hour).count() >= summed

    def sum_hour(self, hour: datetime) -> None:
        """Replace the sums of an hour. Not an upsert: a row that changed its group would stay counted in the old one."""
        rows = self.table._default_manager
        rows.filter(hour=hour).delete()
        # The table's columns by those of the groups; a key that is a foreign key is stored by its id.
        names = {f"k_{name}": self.table._meta.get_field(name).attname for name in self.keys}  # type: ignore[union-attr]
        names |= {f"s_{name}": name for name in self.sums}
        groups = _grouped(self.of_hour(hour), self.keys, self.sums)
        rows.bulk_create(
            (self.table(hour=hour, **{names[key]: value for key, value in group.items()}) for group in groups),
            batch_size=1000,
        )

    def added(self, columns: Collection[str]) -> dict[str, Any]:
        """Return the sum over rows of the table for each of these columns."""
        fields: dict[str, Any] = {name: self.table._meta.get_field(name) for name in columns}
        return {name: Coalesce(Sum(name), 0, output_field=field) for name, field in fields.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedRows:
    """A kind of raw rows that is summed under one name, with everything that hangs on them.

    Attributes:
        model: The raw rows, with `created_at`.
    """

    name: str
    model: type[Model]
    tables: tuple[HourlySums, ...]

    def closed_before(self) -> datetime | None:
        """Return the end of the whole hours that are summed; None where none is."""
        return Rollup.objects.filter(name=self.name).values_list("closed_before", flat=True).first()

    def is_whole(self, hour: datetime) -> bool:
        """Return whether no raw row of this hour was pruned since it was summed."""
        return all(sums.is_whole(hour) for sums in self.tables)

    def next_hour(self, after: datetime | None, before: datetime) -> datetime | None:
        """Return the first hour with raw rows of at least `after` (None: of any time) and before `before`; None where there is none."""
        rows = self.model._default_manager.filter(created_at__lt=before).order_by("created_at")
        if after is not None:
            rows = rows.filter(created_at__gte=after)
        first: datetime | None = rows.values_list("created_at", flat=True).first()
        return None if first is None else floor(first)


LEDGER = SummedRows(
    name="ledger",
    model=LLMCall,
    tables=(
        HourlySums(
            table=LedgerHour,
            raw=lambda: LLMCall.objects.all(),
            time="created_at",
            keys={
                name: F(name)
                for name in ("agent", "purpose", "mechanism", "dimension", "model", "role", "provider", "status")
            },
            sums={
                "calls": Count("pk"),
                "unpriced": Count("pk", filter=Q(cost_usd__isnull=True)),
                **{kind: Coalesce(Sum(kind), 0) for kind in TOKENS},
                "cost_usd": Coalesce(
                    Sum("cost_usd"), Decimal(0), output_field=DecimalField(max_digits=20, decimal_places=8)
                ),
                "latency_ms": Coalesce(Sum("latency_ms"), 0),
            },
            counted="calls",
        ),
    ),
)


def rollups() -> list[SummedRows]:
    """Return everything that is summed by hour (`rollups` of the apps)."""
    return [import_string(path) for path in declared_list("rollups")]


def sum_up() -> int:
    """Sum all hours that are over; returns how many were. A chore."""
    return sum(roll_up(summed_rows) for summed_rows in rollups())


def floor(moment: datetime) -> datetime:
    """Return the beginning of the hour (UTC) that `moment` is in."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def roll_up(
    summed_rows: SummedRows,
    *,
    now: datetime | None = None,
    since: datetime | None = None,
) -> int:
    """Sum the hours that are over, and the two before them again; return how many hours were summed.

    An hour is over ROLLUP_LAG_MINUTES after its end. Nothing is done, the state included, while none is over that was not summed.

    Safe to call from several processes: each hour is one transaction that holds the lock of its state. Hours of which raw rows were pruned
    keep their sums.

    Args:
        now: The present; for tests.
        since: Sum all hours from here on again, also when no new one is over.
    """
    target = floor((now or _present()) - timedelta(minutes=settings.ROLLUP_LAG_MINUTES))
    closed = summed_rows.closed_before()
    if since is None and closed is not None and closed >= target:
        return 0
    after = since if since is not None else closed and closed - SUMMED_AGAIN
    hour = summed_rows.next_hour(after and floor(after), target)
    if closed is None and hour is None:
        return 0
    Rollup.objects.get_or_create(name=summed_rows.name)
    done = 0
    while hour is not None:
        with transaction.atomic():
            _lock_and_store_reach(summed_rows, hour + HOUR)
            if summed_rows.is_whole(hour):
                for sums in summed_rows.tables:
                    sums.sum_hour(hour)
                done += 1
        hour = summed_rows.next_hour(hour + HOUR, target)
    with transaction.atomic():
        _lock_and_store_reach(summed_rows, target)
    return done


def _present() -> datetime:
    """Return the earlier of our clock and the database's: one that is ahead must not close hours that are still to come."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("select current_timestamp")
        now: datetime = cursor.fetchone()[0]
    return min(timezone.now(), now)


def _lock_and_store_reach(summed_rows: SummedRows, end: datetime) -> None:
    """Store that sums reach to `end`, never less far than before. The update locks the state for the rest of the transaction."""
    nothing = Value(_BEGINNING, output_field=DateTimeField())
    reached = Greatest(Coalesce(F("closed_before"), nothing), Value(end, output_field=DateTimeField()))
    Rollup.objects.filter(name=summed_rows.name).update(closed_before=reached)


def prunable_before(summed_rows: SummedRows, cutoff: datetime) -> datetime | None:
    """Sum what is not summed yet, and return how far raw rows may be deleted: to the end of the last whole hour before `cutoff` that is
    summed; None where none is."""
    roll_up(summed_rows)
    closed = summed_rows.closed_before()
    return closed and min(floor(cutoff), closed)


def read(
    summed_rows: SummedRows,
    sums: HourlySums,
    *,
    start: datetime | None,
    end: datetime | None = None,
    raw_keys: Expressions,
    keys: Expressions,
    columns: Collection[str] = (),
    raw_where: Q = Q(),  # noqa: B008 (never changed)
    where: Q = Q(),  # noqa: B008
) -> list[dict[str, Any]]:
    """Sum a window in one statement, which reads sums, raw rows and how far the sums reach in one state of the database.

    Args:
        sums: One of the tables of `summed_rows`.
        start, end: The window; both belong to it, None is without end. Of a pruned hour that an edge cuts nothing is counted.
        raw_keys, keys: What tells the groups apart, on raw rows and on rows of sums, under the same names.
        columns: Names of the sum columns that are wanted; none named = all.
        raw_where, where: Conditions on raw rows and on rows of sums.

    Returns:
        Rows with ``k_NAME`` and ``s_NAME``; a group may stand in several rows, to be added up.
    """
    sum_by_name = {name: sums.sums[name] for name in columns or sums.sums}
    raw = sums.raw().filter(raw_where)
    if start is not None:
        raw = raw.filter(**{f"{sums.time}__gte": start})
    if end is not None:
        raw = raw.filter(**{f"{sums.time}__lte": end})
    if start is not None and start > timezone.now():  # no sum reaches into the future
        return list(_grouped(raw, raw_keys, sum_by_name))
    # Rows of sums serve the whole hours inside the window, raw rows what lies before and after these.
    closed = Rollup.objects.filter(name=summed_rows.name).values("closed_before")[:1]
    whole_hours_end: Any = Coalesce(Subquery(closed), Value(_BEGINNING, output_field=DateTimeField()))
    if end is not None:
        whole_hours_end = Least(whole_hours_end, Value(floor(end), output_field=DateTimeField()))
    summed = sums.table._default_manager.filter(where, hour__lt=whole_hours_end)
    after = raw.filter(**{f"{sums.time}__gte": whole_hours_end})
    parts = [_grouped(after, raw_keys, sum_by_name)]
    if start is not None:
        whole_hours_start = floor(start)
        if whole_hours_start != start:
            whole_hours_start += HOUR
            before_hour = Least(Value(whole_hours_start, output_field=DateTimeField()), whole_hours_end)
            before = raw.filter(**{f"{sums.time}__lt": before_hour})
            parts.append(_grouped(before, raw_keys, sum_by_name))
        summed = summed.filter(hour__gte=whole_hours_start)
    return list(_grouped(summed, keys, sums.added(sum_by_name)).union(*parts, all=True))


MOST_RAW = 50_000  # rows that a page sums while a person waits for it


def end_for_page(summed_rows: SummedRows) -> BaseExpression:
    """Return, as an expression, where the sums of a page end: null for now; how far hours are summed where more than `MOST_RAW` rows wait.

    So a page never sums many raw rows while a person waits. The beginning of time where none is summed: there is nothing to show, and
    the page has to say so.
    """
    state = Rollup.objects.filter(name=summed_rows.name).values("closed_before")[:1]
    closed = Coalesce(Subquery(state), Value(_BEGINNING, output_field=DateTimeField()))
    waiting = summed_rows.model._default_manager.filter(created_at__gte=closed).order_by("created_at")
    first_too_many = Subquery(waiting.values("pk")[MOST_RAW : MOST_RAW + 1])
    return Case(When(IsNull(first_too_many, False), then=closed), default=None, output_field=DateTimeField())


def says_end(end: datetime | None) -> str:
    """Return what a page says of sums that `end_for_page` ends; empty for those up to now."""
    if end is None:
        return ""
    if end == _BEGINNING:
        return "Not summed up yet: a worker does it (manage.py work)."
    return f"Up to {timezone.localtime(end):%H:%M}; newer ones are not summed up yet."


def _grouped(rows: QuerySet[Any], keys: Expressions, sums: Expressions) -> QuerySet[Any, Any]:
    """Return sums over `rows` per combination of keys, as columns ``k_NAME`` and ``s_NAME``: names that no model's column has."""
    groups: QuerySet[Any, Any] = rows.order_by().values(
        **{f"k_{name}": expression for name, expression in keys.items()}
    )
    summed: QuerySet[Any, Any] = groups.annotate(**{f"s_{name}": total for name, total in sums.items()})
    return summed
