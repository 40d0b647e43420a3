"""Tables of results in a terminal and as Markdown; rows as CSV or as JSON lines, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

if TYPE_CHECKING:
    from rich.console import Console

Emphasis = Literal["", "strong", "good", "better", "warning", "bad", "faint"]
Value = str | int | None  # None is shown as a dash
Cell = Value | tuple[Value, Emphasis]
_STYLES: dict[Emphasis, str] = {
    "strong": "bold",
    "good": "green",
    "better": "bold green",
    "warning": "yellow",
    "bad": "bold red",
    "faint": "dim",
}

# A cell, a piece of it (some programs divide at ";" and tabs, too) or a line that begins as a formula does, full-width included. No
# separator among the spaces: each is a place of its own, and a run of them is read once.
_FORMULA = re.compile(r"(^|[;\t\r\n])(?=[^\S\t\r\n]*[=+\-@\uff1d\uff0b\uff0d\uff20])")


def print_table(
    console: Console,
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    title: str = "",
    total: Sequence[Cell] = (),
    tight: bool = False,
    unwrapped: Collection[str] = (),
    wrapped: bool = False,
) -> None:
    """Print a table for people. Texts are data: no markup in them takes effect.

    Args:
        console: As `agents.commands.console_on` makes it.
        heads: Headings; one that begins with ``>`` is of numbers, which stand at the right and are not wrapped.
        rows: A cell per heading: a text, a whole number, or None (a dash); or such a value with its emphasis.
        title: Above the table.
        total: A last row, under a line.
        tight: Whether columns stand close together, for a table that would not fit otherwise.
        unwrapped: Headings of texts that are not wrapped.
        wrapped: Whether numbers may be wrapped, for a table that has little else.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=escape(title) or None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        padding=(0, 1, 0, 0) if tight else (0, 1),
    )
    for head in heads:
        number, name = head.startswith(">"), head.removeprefix(">")
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(
            escape(name), justify=justify, no_wrap=(number and not wrapped) or name in unwrapped, overflow="fold"
        )

    def shown(cell: Cell) -> str:
        value, emphasis = cell if isinstance(cell, tuple) else (cell, "")
        text = escape(cell_text(value))
        return f"[{_STYLES[emphasis]}]{text}[/]" if emphasis else text

    for row in rows:
        table.add_row(*map(shown, row))
    if total:
        table.add_section()
        table.add_row(*map(shown, total))
    console.print(table)


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """The lines of the same table as Markdown. Cells must be clean already; what is emphasized is bold."""

    def shown(cell: Cell) -> str:
        value, emphasis = cell if isinstance(cell, tuple) else (cell, "")
        return f"**{cell_text(value)}**" if emphasis else cell_text(value)

    lines = [[head.removeprefix(">") for head in heads], ["--:" if head.startswith(">") else "---" for head in heads]]
    return [f"| {' | '.join(cells)} |" for cells in (*lines, *(list(map(shown, row)) for row in rows))]


def cell_text(value: Value) -> str:
    """A value as it stands in a table: a dash for None, whole numbers with their thousands set apart."""
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else value


def spreadsheet_safe(value: Any) -> Any:
    """A cell that no spreadsheet runs as a formula, however it divides the line. Numbers stay numbers.

    An apostrophe is put before ``= + - @`` where they begin the cell, a line of it, or what follows a ``;`` or a tab, and before a cell
    that begins with a tab or a carriage return. It is for reading: unlike the CSV of transcripts, nothing takes it off again; JSON
    lines hold texts as they are.
    """
    if not isinstance(value, str):
        return value
    return ("'" if value.startswith(("\t", "\r")) else "") + _FORMULA.sub(r"\1'", value)


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
