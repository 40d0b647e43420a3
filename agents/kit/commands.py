"""What management commands share: exit codes, how a command line is read, and the terminal they write to."""

from __future__ import annotations

import io
import os
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from django.core import management
from django.core.management.base import CommandError, CommandParser, OutputWrapper, SystemCheckError

from agents.kit.llm.requests import is_misconfigured
from agents.kit.text.fences import neutral

if TYPE_CHECKING:
    from rich.console import Console

FAILED = REGRESSION = 1
NOT_ENOUGH = WRONG_USAGE = 2
UNUSABLE = 3
STOPPED = 130
EXIT_CODES = {
    0: "done",
    FAILED: "no (got worse, was sent back, failed)",
    NOT_ENOUGH: "no answer (wrong usage, or not enough could be judged)",
    UNUSABLE: "what was named or set cannot be used (agent, channel, file, key, model, setting, database)",
    STOPPED: "interrupted",
}


class WrongUsage(CommandError):
    """A command line that makes no sense: an option that is not known, a value that is not allowed, options that exclude each other."""


def wrong(why: object) -> WrongUsage:
    """Return the error of a command line that makes no sense; `why` says which option and what is allowed."""
    return WrongUsage(str(why), returncode=WRONG_USAGE)


def unusable(why: object) -> CommandError:
    """Return the error of a name, file, key or setting that is not there or cannot be used; `why` says which and what to do."""
    return CommandError(str(why), returncode=UNUSABLE)


def unanswered(why: str, *, otherwise: int = NOT_ENOUGH) -> CommandError:
    """Return the error of a command whose model gave no answer: `unusable` where its server refuses key, model or address."""
    return CommandError(why, returncode=UNUSABLE if is_misconfigured(why) else otherwise)


class BaseCommand(management.BaseCommand):
    """A command with the exit codes above, and whose options are written out.

    It starts quickly: Plumbline's own system checks run before it, not those of Django, which import every route. `manage.py check`,
    `migrate` and the tests run all of them.
    """

    requires_system_checks: tuple[str, ...] = ("plumbline",)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        _be_strict(parser)
        codes = f"Exit codes of all commands: {'; '.join(f'{code} {means}' for code, means in EXIT_CODES.items())}."
        parser.epilog = "\n\n".join(filter(None, [parser.epilog, codes]))
        return parser

    def check(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().check(*args, **kwargs)
        except SystemCheckError as error:
            error.returncode = UNUSABLE
            raise


class CodedCommand(BaseCommand):
    """A command that keeps its exit code when its reader leaves early (`| head`): the rest of the output is dropped."""

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


def _be_strict(parser: ArgumentParser) -> None:
    """Have a parser, and those of its subcommands, refuse options that are not written out, and name the one that was meant."""
    subcommands: dict[str, ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            subcommands.update(action.choices)
    for subcommand in subcommands.values():
        _be_strict(subcommand)
    parser.allow_abbrev = False
    parser.error = partial(_wrong_usage, parser)  # type: ignore[method-assign]
    parse = parser.parse_known_args

    def parse_known_args(args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        for word in sys.argv[1:] if args is None else args:
            if word in subcommands or word == "--":
                break
            name = word.partition("=")[0]
            # A word with a space is a text that begins with dashes.
            if name.startswith("--") and " " not in word and name not in parser._option_string_actions:
                parser.error(_unknown_option(parser, name))
        return parse(args, namespace)

    parser.parse_known_args = parse_known_args  # type: ignore[method-assign, assignment]


def _unknown_option(parser: ArgumentParser, name: str) -> str:
    known = [option.removeprefix("--") for option in parser._option_string_actions if option.startswith("--")]
    given = name.removeprefix("--")
    meant = [option for option in known if option.startswith(given)] or get_close_matches(given, known, n=1)
    if not meant:
        return f"there is no option {name}"
    return f"there is no option {name}; did you mean {' or '.join(f'--{option}' for option in meant[:3])}?"


def _wrong_usage(parser: ArgumentParser, message: str) -> NoReturn:
    if isinstance(parser, CommandParser) and not parser.called_from_command_line:
        raise wrong(f"Error: {message}")
    parser.print_usage(sys.stderr)
    parser.exit(WRONG_USAGE, f"{parser.prog}: error: {message}\n")


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
