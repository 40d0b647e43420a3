"""Inserting rows of the ledger with a fraction of the ORM's computing: every call of a model pays for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

from django.db import connection, transaction

from agents.models import LLMCall

ROWS_PER_STATEMENT = 30  # SQLite takes 999 values


def insert_calls(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Insert calls, all of them or none, and return their primary keys in their order.

    Args:
        rows: Per call the value of every column but the primary key.

    Raises:
        DatabaseError: A row does not fit; a transaction around this stays usable.
    """
    found: list[int] = []
    one_statement = len(rows) <= ROWS_PER_STATEMENT
    with nullcontext() if one_statement and not connection.in_atomic_block else transaction.atomic():
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            found += _insert(rows[start : start + ROWS_PER_STATEMENT])
    return found


def _insert(rows: Sequence[Mapping[str, Any]]) -> list[int]:
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
