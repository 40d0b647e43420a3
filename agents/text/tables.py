"""Rows as CSV or as JSON lines, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def spreadsheet_safe(value: Any) -> Any:
    """A cell that no spreadsheet runs as a formula: dangerous starts get a leading apostrophe. Numbers stay numbers."""
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return "'" + value
    return value


def csv_cell(value: Any) -> Any:
    """A value as one cell: lists and objects as JSON, times in ISO form, everything safe against formulas."""
    if isinstance(value, list | tuple | dict):
        return spreadsheet_safe(as_json(value))
    if isinstance(value, datetime | date):
        return value.isoformat()
    return spreadsheet_safe(value if value is None or isinstance(value, int | float | Decimal) else str(value))


def csv_lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """A header, then a line for each row, made as they are read."""
    writer = csv.writer(_Echo(), lineterminator="\n")
    yield writer.writerow(columns)
    for row in rows:
        yield writer.writerow([csv_cell(row[column]) for column in columns])


def json_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One JSON object a line. Amounts of money are strings, as everywhere in the API: a float would round them."""
    for row in rows:
        yield as_json(row) + "\n"


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be exported; allowed: what JSON holds, times, amounts and UUIDs")


class _Echo:
    """A file that gives each line back instead of keeping it."""

    def write(self, line: str) -> str:
        return line
