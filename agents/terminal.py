"""The terminal a command writes to: tables as wide as it is, and bars only where somebody looks at them."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console

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


def console_for_bars(stream: Any, *, quiet: bool = False) -> Console:
    """A rich console for progress bars on a stream such as stderr: silent where it is not a terminal."""
    return Console(file=stream, quiet=quiet or not stream.isatty())
