"""What management commands share: exit codes (docs/how-to/fail-a-build.md), and the terminal they write to."""

from __future__ import annotations

import io
import os
import sys
from argparse import ArgumentParser
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from django.core import management
from django.core.management.base import CommandError, CommandParser, OutputWrapper, SystemCheckError

from agents.text.fences import neutral

if TYPE_CHECKING:
    from rich.console import Console

REGRESSION = 1  # or a score below its threshold
NOT_ENOUGH = 2  # could be judged; also a program that broke off
WRONG_USAGE = 3  # the command line, a file, the settings, or a judge that refuses what it is asked with
STOPPED = 130


class BaseCommand(management.BaseCommand):
    """A command that starts quickly: Plumbline's own system checks run before it, not those of Django, which import every route.

    `manage.py check`, `migrate` and the tests run all of them.
    """

    requires_system_checks: tuple[str, ...] = ("plumbline",)


class CodedCommand(BaseCommand):
    """A command whose exit codes are those above, whatever ends it.

    A command line that makes no sense and settings that Django's system checks refuse end with 3. A reader that leaves early (`| head`)
    changes nothing: the rest of the output is dropped, and the command ends with its own code.
    """

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        exit_3_on_wrong_usage(parser)
        return parser

    def check(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().check(*args, **kwargs)
        except SystemCheckError as error:
            error.returncode = WRONG_USAGE
            raise

    def run_from_argv(self, argv: list[str]) -> None:
        sys.stdout = _Output(sys.stdout)
        self.stdout = OutputWrapper(sys.stdout)
        super().run_from_argv(argv)


class _Output(io.TextIOWrapper):
    """Standard output that goes on to nowhere once its reader has closed the pipe."""

    def __init__(self, out: Any) -> None:
        super().__init__(out.buffer, encoding=out.encoding, errors=out.errors, line_buffering=out.line_buffering)

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def exit_3_on_wrong_usage(parser: ArgumentParser) -> None:
    """Have `parser` end with exit code 3, instead of argparse's 2, when the command line makes no sense."""

    def wrong_usage(message: str) -> NoReturn:
        if isinstance(parser, CommandParser) and not parser.called_from_command_line:
            raise CommandError(f"Error: {message}", returncode=WRONG_USAGE)
        parser.print_usage(sys.stderr)
        parser.exit(WRONG_USAGE, f"{parser.prog}: error: {message}\n")

    parser.error = wrong_usage  # type: ignore[method-assign]


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
LONGEST = 20_000  # characters
WIDTH_WHEN_PIPED = 120  # columns


def console_on(out: Any, *, markup: bool = True) -> Console:
    """A rich console on a command's stdout: as wide as `COLUMNS` says, or the terminal; 120 where it is neither.

    Args:
        out: The command's ``self.stdout``. Where it is not a terminal, the text is plain.
        markup: Whether square brackets in what is printed mean styles.
    """
    from rich.console import Console

    terminal, columns = bool(out.isatty()), os.environ.get("COLUMNS", "")
    fixed = int(columns) if columns.isdecimal() and int(columns) > 0 else None if terminal else WIDTH_WHEN_PIPED
    return Console(file=out, force_terminal=terminal or None, width=fixed, highlight=False, markup=markup)


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
        console: As `console_on` makes it.
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


def empty_tables(rows: Mapping[str, int], *, what: str) -> str:
    """One sentence for the tables in which there was nothing, instead of a line of zeros for each."""
    empty = sum(not count for count in rows.values())
    others = "" if empty == len(rows) else " other"
    return f"Nothing was {what} in {empty}{others} table{'s' * (empty != 1)}." if empty else ""


def printable(text: str) -> str:
    """Text of a user, an agent or a model as it may stand in a terminal: control characters are written out, none takes effect."""
    return neutral(text, LONGEST)[0]


def in_line(text: str, limit: int = 240) -> str:
    """Return text of an agent or a model on one line of at most `limit` characters, without control characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def snippet(text: str, limit: int = 240) -> str:
    """Return the same as rich prints it unchanged."""
    from rich.markup import escape

    return escape(in_line(text, limit))


def console_for_bars(stream: Any, *, quiet: bool = False) -> Console:
    """A rich console for progress bars on a stream such as stderr: silent where it is not a terminal."""
    from rich.console import Console

    return Console(file=stream, quiet=quiet or not stream.isatty())
