#!/usr/bin/env python
"""Plumbline's command line: ``python manage.py help``."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit(
            "Django is not installed for this Python. Run `make demo`, or: python3 -m venv .venv && "
            ".venv/bin/pip install --require-hashes -r requirements.lock, then use .venv/bin/python manage.py …"
        ) from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
