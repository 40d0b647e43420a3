"""The terminal a command writes to: tables as wide as it is, and bars only where somebody looks at them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from agents.text.fences import neutral

LONGEST = 20_000  # characters
WIDTH_WHEN_PIPED = 120  # columns


def console_on(out: Any, *, markup: bool = True) -> Console:
    """A rich console on a command's stdout: as wide as `COLUMNS` says, or the terminal; 120 where it is neither.

    Args:
        out: The command's ``self.stdout``. Where it is not a terminal, the text is plain.
        markup: Whether square brackets in what is printed mean styles.
    """
    terminal, columns = bool(out.isatty()), os.environ.get("COLUMNS", "")
    fixed = int(columns) if columns.isdecimal() and int(columns) > 0 else None if terminal else WIDTH_WHEN_PIPED
    return Console(file=out, force_terminal=terminal or None, width=fixed, highlight=False, markup=markup)


def empty_tables(rows: Mapping[str, int], *, what: str) -> str:
    """One sentence for the tables in which there was nothing, instead of a line of zeros for each."""
    empty = sum(not count for count in rows.values())
    others = "" if empty == len(rows) else " other"
    return f"Nothing was {what} in {empty}{others} table{'s' * (empty != 1)}." if empty else ""


def printable(text: str) -> str:
    """Text of a user, an agent or a model as it may stand in a terminal: control characters are written out, none takes effect."""
    return neutral(text, LONGEST)[0]


def snippet(text: str, limit: int = 240) -> str:
    """Return text of an agent or a model on one line of at most `limit` characters, as rich prints it unchanged."""
    line = " ".join(printable(text).split())
    return escape(line if len(line) <= limit else line[: limit - 1].rstrip() + "…")


def console_for_bars(stream: Any, *, quiet: bool = False) -> Console:
    """A rich console for progress bars on a stream such as stderr: silent where it is not a terminal."""
    return Console(file=stream, quiet=quiet or not stream.isatty())
