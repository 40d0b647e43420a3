"""Exit codes, strict command lines and tables in a terminal, for all management commands."""

from __future__ import annotations

import io
import os
import sys
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TextIO

from django.core import management
from django.core.management.base import CommandError, CommandParser, OutputWrapper, SystemCheckError

from agents.kit.llm.requests import is_misconfigured
from agents.kit.text.fences import safe_and_cut

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
    """Return the error of a command whose model gave no answer: `unusable` where its server refuses key, model or address.

    Else its exit code is `otherwise`.
    """
    if is_misconfigured(why):
        return unusable(why)
    return CommandError(why, returncode=otherwise)


class BaseCommand(management.BaseCommand):
    """A command with the exit codes above, and whose options are written out.

    It starts quickly: Plumbline's own system checks run before it, not those of Django, which import every route. `manage.py check`,
    `migrate` and the tests run all of them.
    """

    requires_system_checks: tuple[str, ...] = ("plumbline",)

    def __init__(
        self,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        no_color: bool = False,
        force_color: bool = False,
    ) -> None:
        super().__init__(stdout, stderr, no_color, force_color)
        errors = _ErrorOutput(stderr or sys.stderr)
        errors.style_func = self.stderr.style_func
        self.stderr = errors

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return the command's parser, which takes only options that are written out, and whose help ends with the exit codes."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        _be_strict(parser)
        codes = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
        paragraphs = [parser.epilog, f"Exit codes of all commands: {codes}."]
        parser.epilog = "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
        return parser

    def check(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().check(*args, **kwargs)
        except SystemCheckError as error:
            error.returncode = UNUSABLE
            raise


class _ErrorOutput(OutputWrapper):
    """Standard error, on which errors and warnings quote files, names and what users typed: control characters are written out."""

    def write(self, msg: str = "", style_func: Any = None, ending: str | None = None) -> None:  # type: ignore[override]  # Django's
        """Write a text; one with a style of its own, as Django writes system checks, has its colours in it and stays as it is."""
        super().write(msg if style_func else printable(str(msg)), style_func, ending)


class CodedCommand(BaseCommand):
    """A command that keeps its exit code when its reader leaves early (`| head`): the rest of the output is dropped."""

    def run_from_argv(self, argv: list[str]) -> None:
        sys.stdout = _OutputToLeavingReader(sys.stdout)
        self.stdout = OutputWrapper(sys.stdout)
        super().run_from_argv(argv)


class _OutputToLeavingReader(io.TextIOWrapper):
    """Standard output that goes on to nowhere once its reader has closed the pipe."""

    def __init__(self, out: Any) -> None:
        super().__init__(out.buffer, encoding=out.encoding, errors=out.errors, line_buffering=out.line_buffering)

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._go_on_to_nowhere()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._go_on_to_nowhere()

    def _go_on_to_nowhere(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def _be_strict(parser: ArgumentParser) -> None:
    """Make a parser, and those of its subcommands, refuse options that are not written out, and name the one that was meant.

    Its mistakes are reported by `_wrong_usage`.
    """
    subcommands: dict[str, ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            subcommands.update(action.choices)
    for subcommand in subcommands.values():
        _be_strict(subcommand)
    parser.allow_abbrev = False
    parser.error = partial(_wrong_usage, parser)  # type: ignore[method-assign]
    parse_as_argparse = parser.parse_known_args

    def parse_known_args(args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else args
        for word in words:
            if word in subcommands or word == "--":  # what follows is the subcommand's, or no option
                break
            name = word.partition("=")[0]
            is_text = " " in word  # that begins with dashes
            is_option = name.startswith("--") and not is_text
            if is_option and name not in parser._option_string_actions:
                parser.error(_unknown_option(parser, name))
        return parse_as_argparse(args, namespace)

    parser.parse_known_args = parse_known_args  # type: ignore[method-assign, assignment]


def _unknown_option(parser: ArgumentParser, name: str) -> str:
    """Return the sentence about an option that there is not; it names those that begin alike, else the most similar one."""
    names = [option.removeprefix("--") for option in parser._option_string_actions if option.startswith("--")]
    typed = name.removeprefix("--")
    near = [option for option in names if option.startswith(typed)] or get_close_matches(typed, names, n=1, cutoff=0.7)
    if not near:
        return f"there is no option {name}"
    suggestions = " or ".join(f"--{option}" for option in near[:3])
    return f"there is no option {name}; did you mean {suggestions}?"


def _wrong_usage(parser: ArgumentParser, message: str) -> NoReturn:
    """Refuse a command line: with the usage where a person typed it, with an exception where a program calls the command."""
    if isinstance(parser, CommandParser) and not parser.called_from_command_line:
        raise wrong(f"Error: {message}")
    parser.print_usage(sys.stderr)
    parser.exit(WRONG_USAGE, f"{parser.prog}: error: {message}\n")


Emphasis = Literal["", "strong", "good", "better", "warning", "bad", "faint"]
Value = str | int | None  # None is shown as a dash
Cell = Value | tuple[Value, Emphasis]
_STYLE_OF_EMPHASIS: dict[Emphasis, str] = {
    "strong": "bold",
    "good": "green",
    "better": "bold green",
    "warning": "yellow",
    "bad": "bold red",
    "faint": "dim",
}
LONGEST_PRINTED = 20_000  # characters of a text
WIDTH_WHEN_PIPED = 120  # columns
LONGEST_WORD = 40  # characters: what is longer may be broken in a table


def console_on(out: Any, *, markup: bool = True) -> Console:
    """Return a rich console on a command's stdout: as wide as `COLUMNS` says, or the terminal; 120 where it is neither.

    Args:
        out: The command's ``self.stdout``. Where it is not a terminal, the text is plain.
        markup: Whether square brackets in what is printed mean styles.
    """
    from rich.console import Console

    is_terminal = bool(out.isatty())
    columns = os.environ.get("COLUMNS", "")
    width: int | None = None  # as wide as the terminal
    if columns.isdecimal() and int(columns) > 0:
        width = int(columns)
    elif not is_terminal:
        width = WIDTH_WHEN_PIPED
    return Console(file=out, force_terminal=is_terminal or None, width=width, highlight=False, markup=markup)


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
    """Print a table for people. Texts are data: no markup and no control character in them takes effect.

    Where the console is so narrow that words would be broken, a row is printed below the other, a cell a line.

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
        title=escape(printable(title)) or None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        padding=(0, 1, 0, 0) if tight else (0, 1),
    )
    names = [head.removeprefix(">") for head in heads]
    rows = list(rows)
    columns: list[_Column] = []
    for number, head in enumerate(heads):
        cells = [_printable_cell(_value_and_emphasis(row[number])[0]) for row in (*rows, total) if row]
        wraps = names[number] not in unwrapped and (wrapped or not head.startswith(">"))
        columns.append(_measured(names[number], cells, wraps=wraps))
    space_between = (2 if tight else 3) * len(names) + 1
    widths = _fitting_widths(columns, console.width - space_between)
    if widths is None:
        _print_row_by_row(console, names, [*rows, total], title)
        return
    for head, name, width in zip(heads, names, widths, strict=True):
        justify: Literal["left", "right"] = "right" if head.startswith(">") else "left"
        table.add_column(escape(name), justify=justify, overflow="fold", width=width)
    for row in rows:
        table.add_row(*(_styled(cell) for cell in row))
    if total:
        table.add_section()
        table.add_row(*(_styled(cell) for cell in total))
    console.print(table)


class _Column(NamedTuple):
    """How wide a column of a table is without wrapping, its longest word, and the longest cell that does not wrap."""

    widest: int
    word: int
    unwrapped: int


def _measured(name: str, cells: Iterable[str], *, wraps: bool) -> _Column:
    """Measure a column; its heading always wraps, its cells if `wraps`."""
    from rich.cells import cell_len

    lines = [line for cell in cells for line in cell.splitlines()]
    words = [word for line in (name, *lines) for word in line.split()]
    return _Column(
        widest=max(map(cell_len, (name, *lines))),
        word=max(map(cell_len, words), default=1),
        unwrapped=0 if wraps else max(map(cell_len, lines), default=0),
    )


def _fitting_widths(columns: Sequence[_Column], available: int) -> list[int] | None:
    """Return how wide columns are so that together they fit, the widest being narrowed first; None where words would be broken."""
    least = [max(column.unwrapped, min(column.word, LONGEST_WORD)) for column in columns]
    widths = [min(column.widest, max(available, least[number])) for number, column in enumerate(columns)]
    while sum(widths) > available:
        too_wide = [number for number, width in enumerate(widths) if width > least[number]]
        if not too_wide:
            return None
        widths[max(too_wide, key=lambda number: widths[number])] -= 1
    return widths


def _print_row_by_row(console: Console, names: Sequence[str], rows: Iterable[Sequence[Cell]], title: str) -> None:
    """Print rows for which the console is too narrow: a line for each cell that is not empty, those after the first indented."""
    from rich.markup import escape

    if title:
        console.print(f"[italic]{escape(printable(title))}[/]\n")
    for row in rows:
        for number, cell in enumerate(row):
            if _value_and_emphasis(cell)[0] not in (None, ""):
                indent = "  " if number else ""
                console.print(f"{indent}{escape(names[number])}: {' '.join(_styled(cell).split())}")
    console.print()


def _styled(cell: Cell) -> str:
    """Return a cell as rich prints it: its text, in the style of its emphasis."""
    from rich.markup import escape

    value, emphasis = _value_and_emphasis(cell)
    text = escape(_printable_cell(value))
    if not emphasis:
        return text
    return f"[{_STYLE_OF_EMPHASIS[emphasis]}]{text}[/]"


def _value_and_emphasis(cell: Cell) -> tuple[Value, Emphasis]:
    return cell if isinstance(cell, tuple) else (cell, "")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """Return the lines of a table in Markdown: the heads, a line that aligns them (``>`` numbers at the right), then the rows.

    Cells must be clean already, as nothing is escaped; what is emphasized is bold.
    """
    names = [head.removeprefix(">") for head in heads]
    alignments = ["--:" if head.startswith(">") else "---" for head in heads]
    lines = [_markdown_row(names), _markdown_row(alignments)]
    for row in rows:
        cells = []
        for cell in row:
            value, emphasis = _value_and_emphasis(cell)
            text = cell_text(value)
            cells.append(f"**{text}**" if emphasis else text)
        lines.append(_markdown_row(cells))
    return lines


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell_text(value: Value) -> str:
    """Return a value as it stands in a table: a dash for None, whole numbers with their thousands set apart."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return value


def _printable_cell(value: Value) -> str:
    return printable(cell_text(value))


def empty_tables(rows: Mapping[str, int], *, what: str) -> str:
    """Return one sentence for the tables in which there was nothing, instead of a line of zeros for each; empty where there are none.

    For example ``Nothing was found in 3 other tables.``

    Args:
        rows: Their number by table.
        what: Was not done, such as ``found``.
    """
    number = sum(count == 0 for count in rows.values())
    if number == 0:
        return ""
    others = "" if number == len(rows) else " other"
    ending = "" if number == 1 else "s"
    return f"Nothing was {what} in {number}{others} table{ending}."


def printable(text: str) -> str:
    """Return text of a user, an agent or a model for a terminal, cut at LONGEST_PRINTED: control characters are written out."""
    return safe_and_cut(text, LONGEST_PRINTED)


def in_line(text: str, limit: int = 240) -> str:
    """Return text of an agent or a model on one line of at most `limit` characters, without control characters."""
    line = " ".join(printable(text).split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + "…"


def snippet(text: str, limit: int = 240) -> str:
    """Return text as `in_line` does, escaped for rich, which would read square brackets as styles."""
    from rich.markup import escape

    return escape(in_line(text, limit))


def console_for_bars(stream: Any, *, quiet: bool = False) -> Console:
    """Return a rich console for progress bars on a stream such as stderr: silent where it is not a terminal."""
    from rich.console import Console

    return Console(file=stream, quiet=quiet or not stream.isatty())
