"""Reading sums: whole spans from the tables of sums, edges and open hours from raw rows, in one statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.core.cache import cache
from django.db import connection
from django.db.models import CharField, DateTimeField, F, Model, Q, QuerySet, Value
from django.db.models.functions import Cast

from agents.models import Rollup
from agents.rollups.families import Expressions, Family, grouped
from agents.rollups.spans import Cover, RawPiece, cover

KNOWN_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be summed.

    Attributes:
        name: The state of which `Rolled`.
        family: Its raw rows and what is added.
        start, end: The window; both belong to it, None is without end.
        tables: Per span, the table of sums to read; hours among them.
        raw_where, where: Conditions on raw rows, and on rows of sums.
        raw_keys, keys: What tells the answer's rows apart, on raw rows and on rows of sums, under the same names.
    """

    name: str
    family: Family
    start: datetime | None
    end: datetime | None
    tables: Mapping[int, type[Model]]
    raw_where: Q
    where: Q
    raw_keys: Expressions
    keys: Expressions


def read(question: Question) -> list[dict[str, Any]]:
    """Sums per combination of keys, columns ``k_NAME`` and ``s_NAME``; a combination may stand in several rows, to be added up
    (on SQLite it does).

    One statement sees sums, raw rows and how far the sums reach in one state of the database. It is built from how far they
    reached when this process last looked, and asked again in the rare case that they reach farther now.
    """
    key = f"rollup:{question.name}"
    known: datetime | None = cache.get(key)
    while True:
        rows = _answer(question, _query(question, known))
        reached = next((row["closed"] for row in rows if row["closed"] is not None), None)
        if reached == known:
            return [row for row in rows if row["closed"] is None]
        known = reached
        cache.set(key, known, KNOWN_SECONDS)


def _answer(question: Question, query: QuerySet[Any, Any]) -> list[dict[str, Any]]:
    """The rows; on PostgreSQL those of one combination are added up there: of many agents that are thousands fewer to fetch."""
    if (
        connection.vendor != "postgresql"
    ):  # SQLite would lose the types of what a statement around the statement returns
        return list(query)
    sql, params = query.query.sql_with_params()
    keys = ", ".join([*(f"k_{name}" for name in question.keys), "closed"])
    meta = question.family.tables[0].model._meta
    types = {name: cast(Any, meta.get_field(name)).db_type(connection) for name in question.family.sums}
    sums = ", ".join(f"SUM(s_{name})::{kind} AS s_{name}" for name, kind in types.items())
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {keys}, {sums} FROM ({sql}) AS parts GROUP BY {keys}", params)  # noqa: S608 (our own names)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _query(question: Question, closed_before: datetime | None) -> QuerySet[Any, Any]:
    first, *others = _parts(
        question, cover(question.start, question.end, closed_before=closed_before, spans=[*question.tables])
    )
    nothing = Value(None, output_field=CharField())  # without a type of its own in SQL
    state = (
        Rollup.objects.filter(name=question.name, closed_before__isnull=False)
        .order_by()
        .values(**{f"k_{name}": nothing for name in question.keys}, closed=F("closed_before"))
        .annotate(**{f"s_{name}": nothing for name in question.family.sums})
    )
    return first.union(*others, state, all=True)


def _parts(question: Question, made_of: Cover) -> list[QuerySet[Any, Any]]:
    family = question.family
    nothing = Cast(Value(None), DateTimeField())
    parts = [grouped(_raw(question, piece), question.raw_keys, family.sums, closed=nothing) for piece in made_of.raw]
    for piece in made_of.summed:
        rows = question.tables[piece.span]._default_manager.filter(question.where, span=piece.span, start__lt=piece.end)
        if piece.start is not None:
            rows = rows.filter(start__gte=piece.start)
        parts.append(grouped(rows, question.keys, family.added(), closed=nothing))
    return parts


def _raw(question: Question, piece: RawPiece) -> QuerySet[Any]:
    time, rows = question.family.time, question.family.raw().filter(question.raw_where)
    bounds = {"gte": piece.start, "lt": piece.before, "lte": piece.until}
    return rows.filter(**{f"{time}__{how}": moment for how, moment in bounds.items() if moment is not None})
