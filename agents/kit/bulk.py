"""Write many rows of a model in one statement, without an instance of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    rows = [[*shared, *_prepared(differing, row)] for row in values]
    if rows:
        columns = ", ".join(_quoted(field.column) for field in (*common, *differing))
        places = ", ".join(["%s"] * len(rows[0]))
        _execute(f"INSERT INTO {_quoted(meta.db_table)} ({columns}) VALUES ({places})", rows)  # noqa: S608


def update_rows(rows: Rows, names: Sequence[str], *, where: str = "") -> int:
    """Write these fields of stored rows of one model.

    Args:
        where: A condition in SQL, without values, that a row must fulfil in the database to be written.

    Returns:
        How many of the rows were there.

    Raises:
        IntegrityError: A constraint does not allow a value; nothing is then changed.
    """
    if not rows:
        return 0
    meta = rows[0]._meta
    fields: list[Any] = [*(meta.get_field(name) for name in names), meta.pk]
    sets = ", ".join(f"{_quoted(field.column)} = %s" for field in fields[:-1])
    statement = f"UPDATE {_quoted(meta.db_table)} SET {sets} WHERE {_quoted(fields[-1].column)} = %s"  # noqa: S608
    values = [_prepared(fields, [getattr(row, field.attname) for field in fields]) for row in rows]
    return _execute(statement + (f" AND {where}" if where else ""), values)


def _prepared(fields: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    return [field.get_db_prep_save(value, connection) for field, value in zip(fields, values, strict=True)]


def _execute(statement: str, values: Sequence[Sequence[Any]]) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(statement, values)
        return int(cursor.rowcount)


def _quoted(name: Any) -> str:
    return str(connection.ops.quote_name(name))
