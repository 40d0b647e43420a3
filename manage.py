#!/usr/bin/env python
"""Plumbline's command line: ``python manage.py help``."""

import os
import sys
from typing import NoReturn


def fail(message: str, code: int) -> NoReturn:
    """End with a message. Never with 1: `evaluate` says by that that an agent got worse."""
    sys.stderr.write(message + "\n")
    raise SystemExit(code) from None


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db import Error as DatabaseError
    except ImportError as error:
        raise SystemExit(
            "Django is not installed for this Python. Run `make demo`, or: python3 -m venv .venv && "
            ".venv/bin/pip install --require-hashes -r requirements.lock, then use .venv/bin/python manage.py …"
        ) from error
    try:
        execute_from_command_line(sys.argv)
    except KeyboardInterrupt:  # in a command that has nothing to say of it
        fail("Stopped.", 130)
    except ImproperlyConfigured as error:
        fail(f"Settings: {error}", 3)
    except BrokenPipeError:  # the reader, e.g. `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except DatabaseError as error:
        if "no such table" in str(error) or "does not exist" in str(error):
            fail(f"The database is not set up: run `manage.py migrate`. ({str(error).splitlines()[0]})", 3)
        from agents.kit.running import is_unavailable

        if is_unavailable(error):
            first = str(error).strip().partition("\n")[0]
            fail(f"The database is away, locked or full: check DATABASE_URL, or try again later. ({first})", 3)
        raise


if __name__ == "__main__":
    main()
