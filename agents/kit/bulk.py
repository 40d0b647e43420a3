"""Write many rows of a model in one statement, without an instance of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection, models, transaction

Rows = Sequence[models.Model]


def insert_values(like: models.Model, names: Sequence[str], values: Iterable[Sequence[Any]]) -> None:
    """Insert rows that are like a new one of their model but for some columns, without making an instance of each.

    The database makes their primary keys, which are not returned.

    Args:
        like: What all rows have in common; it is not stored itself.
        names: The columns in which they differ, by attribute (``message_id``).
        values: Per row the values of these.

    Raises:
        IntegrityError: A constraint does not let a row in; none is then inserted.
    """
    meta = like._meta
    fields_by_attribute = {field.attname: field for field in meta.concrete_fields}
    differing = [fields_by_attribute[name] for name in names]
    common = [field for field in meta.concrete_fields if not field.primary_key and field not in differing]
    common_values = _prepared(common, [getattr(like, field.attname) for field in common])
    rows = [[*common_values, *_prepared(differing, row)] for row in values]
    if not rows:
        return
    columns = ", ".join(_quoted(field.column) for field in (*common, *differing))
    placeholders = ", ".join(["%s"] * len(rows[0]))
    _execute(f"INSERT INTO {_quoted(meta.db_table)} ({columns}) VALUES ({placeholders})", rows)  # noqa: S608


def update_rows(rows: Rows, names: Sequence[str], *, where: str = "") -> int:
    """Write these fields of stored rows of one model.

    Args:
        where: A condition in SQL, without values, that a row must fulfil in the database to be written.

    Returns:
        How many of the rows were there and fulfilled the condition.

    Raises:
        IntegrityError: A constraint does not allow a value; nothing is then changed.
    """
    if not rows:
        return 0
    meta = rows[0]._meta
    key: Any = meta.pk
    written: list[Any] = [meta.get_field(name) for name in names]
    assignments = ", ".join(f"{_quoted(field.column)} = %s" for field in written)
    statement = f"UPDATE {_quoted(meta.db_table)} SET {assignments} WHERE {_quoted(key.column)} = %s"  # noqa: S608
    if where:
        statement += f" AND {where}"
    fields = [*written, key]
    values = [_prepared(fields, [getattr(row, field.attname) for field in fields]) for row in rows]
    return _execute(statement, values)


def _prepared(fields: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Return values as the database stores them in these fields."""
    return [field.get_db_prep_save(value, connection) for field, value in zip(fields, values, strict=True)]


def _execute(statement: str, values: Sequence[Sequence[Any]]) -> int:
    """Carry out a statement for each of these values, all or none; return how many rows it changed."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(statement, values)
        return int(cursor.rowcount)


def _quoted(name: Any) -> str:
    return str(connection.ops.quote_name(name))
