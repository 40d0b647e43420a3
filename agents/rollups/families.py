"""What is summed up: raw rows, the columns that tell sums apart, what is added, and the tables the sums stand in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.db import connection
from django.db.models import F, Model, QuerySet, Sum
from django.db.models.functions import Coalesce

from agents.models import Span
from agents.rollups.spans import after

Expressions = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """One table of sums.

    Attributes:
        model: Has the columns `span` and `start`, the keys and the family's sums.
        keys: Columns by which its sums are told apart.
        spans: Lengths of time it has sums of, shortest first.
    """

    model: type[Model]
    keys: tuple[str, ...]
    spans: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Sums over one kind of raw rows.

    Attributes:
        raw: The rows, as a fresh queryset.
        time: The lookup of the moment that says to which hour a row belongs.
        keys: Per key column, its value on a raw row.
        sums: Per sum column, the aggregate over raw rows; never null.
        counted: The sum column that counts the raw rows.
        tables: The first one is made of raw rows and has all keys and hours; the others are made of it.
    """

    raw: Callable[[], QuerySet[Any]]
    time: str
    keys: Expressions
    sums: Expressions
    counted: str
    tables: tuple[Table, ...]

    def of_hour(self, hour: datetime) -> QuerySet[Any]:
        return self.raw().filter(**{f"{self.time}__gte": hour, f"{self.time}__lt": after(hour, Span.HOUR)})

    def is_whole(self, hour: datetime) -> bool:
        """Whether there are at least as many raw rows of this hour as were summed; else some were pruned."""
        return self.of_hour(hour).count() >= self.summed(hour)

    def summed(self, hour: datetime) -> int:
        """How many raw rows the sums of an hour were made of."""
        sums = self.tables[0].model._default_manager.filter(span=Span.HOUR, start=hour)
        return sums.aggregate(rows=Sum(self.counted))["rows"] or 0

    def added(self) -> Expressions:
        """Per sum column, its sum over rows of sums."""
        fields = {name: self.tables[0].model._meta.get_field(name) for name in self.sums}
        return {name: Coalesce(Sum(name), 0, output_field=cast(Any, field)) for name, field in fields.items()}

    def fill(self, span: int, start: datetime) -> None:
        """Make the sums of this span anew in every table that has such."""
        for table in self.tables:
            if span in table.spans:
                table.model._default_manager.filter(span=span, start=start).delete()
                _insert(table, span, start, self._parts(table, span, start))

    def _parts(self, table: Table, span: int, start: datetime) -> QuerySet[Any, Any]:
        first = self.tables[0]
        if table is first and span == Span.HOUR:
            return grouped(self.of_hour(start), self.keys, self.sums)
        shorter = [one for one in table.spans if one < span]
        source, finer = (table, max(shorter)) if shorter else (first, Span.HOUR)
        parts = source.model._default_manager.filter(span=finer, start__gte=start, start__lt=after(start, span))
        return grouped(parts, {key: F(key) for key in table.keys}, self.added())


def grouped(rows: QuerySet[Any], keys: Expressions, sums: Expressions, **more: Any) -> QuerySet[Any, Any]:
    """Sums over `rows` per combination of keys, as columns ``k_NAME`` and ``s_NAME``: a column may not be named as one of the model."""
    told_apart = {f"k_{name}": expression for name, expression in keys.items()}
    groups: QuerySet[Any, Any] = rows.order_by().values(**told_apart, **more)
    summed: QuerySet[Any, Any] = groups.annotate(**{f"s_{name}": total for name, total in sums.items()})
    return summed


def _insert(table: Table, span: int, start: datetime, parts: QuerySet[Any, Any]) -> None:
    """Insert what the query finds: by the database alone, for an hour of many agents has many thousand rows."""
    sql, params = parts.query.sql_with_params()
    fields = table.model._meta
    quote = connection.ops.quote_name
    sums = [name for name in parts.query.annotation_select if name.startswith("s_")]
    chosen = [*(f"k_{key}" for key in table.keys), *sums]
    columns = ["span", "start", *(cast(Any, fields.get_field(name[2:])).column for name in chosen)]
    into = f"INSERT INTO {quote(fields.db_table)} ({', '.join(map(quote, columns))})"
    select = f"SELECT %s, %s, {', '.join(map(quote, chosen))} FROM ({sql}) AS parts"  # noqa: S608 (names of our own columns)
    with connection.cursor() as cursor:
        cursor.execute(f"{into} {select}", [span, connection.ops.adapt_datetimefield_value(start), *params])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled:
    """A kind of raw rows that is summed up, under one name and one state.

    Attributes:
        model: The raw rows, with `created_at`.
        families: Everything that is summed: first the rows themselves, then what hangs on them.
    """

    name: str
    model: type[Model]
    families: Sequence[Family]

    def rows(self) -> QuerySet[Any]:
        return self.model._default_manager.all()

    def is_whole(self, hour: datetime) -> bool:
        """Whether nothing of this hour was pruned since it was summed up."""
        return all(family.is_whole(hour) for family in self.families)

    def summed(self, hour: datetime) -> list[int]:
        """How many raw rows of each family the sums of an hour were made of."""
        return [family.summed(hour) for family in self.families]

    def fill(self, span: int, start: datetime) -> None:
        for family in self.families:
            family.fill(span, start)
