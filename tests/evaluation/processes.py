"""Processes of Plumbline's own, with a database file and a loopback model server, for tests that stop them or count their calls."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.llm_server import LLMServer

ROOT = Path(__file__).resolve().parents[2]


def environment(database: Path, server: LLMServer | None, **more: str) -> dict[str, str]:
    """Return the environment of a process that judges by `server`; without one, by the offline judge."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "DATABASE_URL": f"sqlite:///{database}",
        "PYTHONPATH": str(ROOT),
        "JUDGE_BASE_URL": server.url if server else "",
        "JUDGE_MODEL": "test-model" if server else "offline:lexical-1",
        "LLM_GATE_SLOTS": "0",
        "LLM_EVALUATION_RETRIES": "0",
        "PROPOSITION_DIRS": "",
        "SENTRY_DSN": "",
        "CELERY_BROKER_URL": "",
        **more,
    }


def script(code: str) -> list[str]:
    """Return the command that runs this code with Django set up."""
    return [sys.executable, "-c", "import django\ndjango.setup()\n" + code]


def rows(database: Path, query: str) -> list[Any]:
    """Return the rows of a query while other processes use the database."""
    with closing(sqlite3.connect(database, timeout=20)) as connection:
        return connection.execute(query).fetchall()


def eventually(condition: Callable[[], bool], what: str, within: float = 180.0) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {within:g} s"
        time.sleep(0.02)
