"""Write many rows of a model in one statement, without an instance of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import connection, models, transaction

Rows = Sequence[models.Model]


def insert_values(like: models.Model, names: Sequence[str], values: Iterable[Sequence[Any]]) -> None:
    """Insert rows that are like a new one of their model but for some columns, without making an instance of each.

    Args:
        like: What all rows have in common; it is not stored itself.
        names: The columns in which they differ, by attribute (``message_id``).
        values: Per row the values of these.

    Raises:
        IntegrityError: A constraint does not let a row in; none is then inserted.
    """
    meta = like._meta
    differing = [next(field for field in meta.concrete_fields if field.attname == name) for name in names]
    common = [field for field in meta.concrete_fields if not field.primary_key and field not in differing]
    shared = [field.get_db_prep_save(getattr(like, field.attname), connection) for field in common]
    prepares = [_prepared(field) for field in differing]
    rows = [
        [*shared, *(prepare(value) if prepare else value for prepare, value in zip(prepares, row, strict=True))]
        for row in values
    ]
    if rows:
        columns = ", ".join(map(_column, [*common, *differing]))
        places = ", ".join(["%s"] * len(rows[0]))
        _execute(f"INSERT INTO {_table(meta)} ({columns}) VALUES ({places})", rows)  # noqa: S608


def update_rows(rows: Rows, names: Sequence[str], *, where: str = "") -> int:
    """Write these fields of stored rows of one model.

    Args:
        rows: The rows.
        names: Of the fields.
        where: A condition in SQL, without values, that a row must fulfil in the database to be written.

    Returns:
        How many of the rows were there.

    Raises:
        IntegrityError: A constraint does not allow a value; nothing is then changed.
    """
    if not rows:
        return 0
    statement, fields = _update(type(rows[0]), tuple(names), where, connection.vendor)
    return _many(statement, rows, fields)


@lru_cache(maxsize=64)  # by vendor: each quotes names in its own way
def _update(model: type[models.Model], names: tuple[str, ...], where: str, vendor: str) -> tuple[str, list[Any]]:
    """The statement, and the fields whose values it takes."""
    meta = model._meta
    fields: list[Any] = [meta.get_field(name) for name in names]
    values = ", ".join(f"{_column(field)} = %s" for field in fields)
    statement = f"UPDATE {_table(meta)} SET {values} WHERE {_column(meta.pk)} = %s"  # noqa: S608
    return statement + (f" AND {where}" if where else ""), [*fields, meta.pk]


def _many(statement: str, rows: Rows, fields: Sequence[Any]) -> int:
    getters = [(field.attname, _prepared(field)) for field in fields]
    values = [
        [prepare(getattr(row, name)) if prepare else getattr(row, name) for name, prepare in getters] for row in rows
    ]
    return _execute(statement, values)


def _execute(statement: str, values: Sequence[Sequence[Any]]) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(statement, values)
        return int(cursor.rowcount)


_AS_IT_IS = (models.CharField, models.TextField, models.IntegerField, models.FloatField, models.ForeignKey)


def _prepared(field: Any) -> Callable[[Any], Any] | None:
    """What makes a value of this field fit the database; None where it does as it is."""
    if isinstance(field, _AS_IT_IS):
        return None
    last: list[Any] = []  # rows of one answer have the same time, and mostly the same empty lists

    def prepare(value: Any) -> Any:
        if value and not isinstance(value, datetime):
            return field.get_db_prep_save(value, connection)
        if not last or type(last[0]) is not type(value) or last[0] != value:
            last[:] = [value, field.get_db_prep_save(value, connection)]
        return last[1]

    return prepare


def _table(meta: Any) -> str:
    return str(connection.ops.quote_name(meta.db_table))


def _column(field: Any) -> str:
    return str(connection.ops.quote_name(field.column))
