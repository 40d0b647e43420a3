"""Exit codes of commands whose codes 1 and 2 mean something of their own: wrong usage is 3."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import NoReturn

from django.core.management.base import CommandError, CommandParser

WRONG_USAGE = 3


def exit_3_on_wrong_usage(parser: ArgumentParser) -> None:
    """Have `parser` end with exit code 3, instead of argparse's 2, when the command line makes no sense."""

    def wrong_usage(message: str) -> NoReturn:
        if isinstance(parser, CommandParser) and not parser.called_from_command_line:
            raise CommandError(f"Error: {message}", returncode=WRONG_USAGE)
        parser.print_usage(sys.stderr)
        parser.exit(WRONG_USAGE, f"{parser.prog}: error: {message}\n")

    parser.error = wrong_usage  # type: ignore[method-assign]
