"""Rows as CSV or as JSON lines, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

# A cell, a piece of it (some programs divide at ";" and tabs, too) or a line that begins as a formula does, full-width included. No
# separator among the spaces: each is a place of its own, and a run of them is read once.
_FORMULA = re.compile(r"(^|[;\t\r\n])(?=[^\S\t\r\n]*[=+\-@\uff1d\uff0b\uff0d\uff20])")


def spreadsheet_safe(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula, however it divides the line. Numbers stay numbers.

    An apostrophe is put before ``= + - @`` where they begin the cell, a line of it, or what follows a ``;`` or a tab, and before a cell
    that begins with a tab or a carriage return. It is for reading: unlike the CSV of transcripts, nothing takes it off again; JSON
    lines hold texts as they are.
    """
    if not isinstance(value, str):
        return value
    return ("'" if value.startswith(("\t", "\r")) else "") + _FORMULA.sub(r"\1'", value)


def csv_cell(value: Any) -> Any:
    """Return a value as one cell: lists and objects as JSON, times in ISO form, everything safe against formulas."""
    if isinstance(value, list | tuple | dict):
        return spreadsheet_safe(as_json(value))
    if isinstance(value, datetime | date):
        return value.isoformat()
    return spreadsheet_safe(value if value is None or isinstance(value, int | float | Decimal) else str(value))


def csv_lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Yield a header, then a line for each row, made as they are read."""
    writer = csv.writer(_Echo(), lineterminator="\r\n")  # with "\n" alone a lone CR inside a cell is not quoted
    yield writer.writerow(columns)
    for row in rows:
        yield writer.writerow([csv_cell(row[column]) for column in columns])


def json_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one JSON object a line. Amounts of money are strings, as everywhere in the API: a float would round them."""
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
