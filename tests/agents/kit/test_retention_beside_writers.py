"""Old logs are deleted in batches, and between two batches others write: on SQLite, where one writes at a time, and on PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone

from agents.kit.models import LLMCall
from agents.kit.ops import retention
from agents.kit.ops.sums import sum_up
from agents.kit.registry import prunings
from tests import zygote
from tests.machinery import wait_until

OLD = timezone.now() - timedelta(days=100)
ROOT = Path(__file__).resolve().parents[3]
CALL: Any = {"role": "judge", "purpose": "gate", "provider": "anthropic", "model": "m", "status": "ok"}
FILL = f"""
from datetime import datetime, UTC
from agents.kit.models import LLMCall
LLMCall.objects.bulk_create(LLMCall(**{CALL}) for _ in range(600))
LLMCall.objects.update(created_at=datetime(2026, 1, 5, tzinfo=UTC))
from agents.kit.ops.sums import sum_up
sum_up()
"""


@pytest.mark.slow
def test_on_sqlite_others_write_on_while_batches_are_deleted(database_file: Path) -> None:
    environment = {**os.environ, "DATABASE_URL": f"sqlite:///{database_file}", "DEBUG": "1"}
    manage = [sys.executable, "manage.py"]
    zygote.run([*manage, "shell", "-v0", "-c", FILL], env=environment, cwd=ROOT, check=True, timeout=120)
    arguments = ["prune_logs", "--older-than", "90d", "--batch", "40"]
    pruning = zygote.Popen([*manage, *arguments], env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    left: set[int] = set()
    with closing(sqlite3.connect(database_file, timeout=20, isolation_level=None)) as writer:
        while pruning.poll() is None:
            writer.execute("begin immediate")  # an error, such as "database is locked", fails the test
            [[rows]] = writer.execute("select count(*) from llm_calls").fetchall()
            writer.execute("update rollups set name = name where name = 'nobody'")
            writer.execute("commit")
            left.add(rows)
            time.sleep(0.002)
    assert pruning.stdout is not None
    told = pruning.stdout.read()

    assert pruning.returncode == 0
    assert " 600 rows deleted" in told
    assert left <= {*range(0, 601, 40)}  # each transaction deleted one batch
    assert left - {0, 600}  # and others had their turn between them: how often depends on the machine


@pytest.fixture
def writer(transactional_db: None) -> Iterator[tuple[threading.Thread, list[int], list[Exception]]]:
    """Somebody else who writes all the time, on a connection of their own."""
    if connection.vendor != "postgresql":
        if os.environ.get("CI") == "true" and os.environ.get("DATABASE_URL", "").startswith("postgres"):
            pytest.fail("the tests do not run on the PostgreSQL of DATABASE_URL")
        pytest.skip("DATABASE_URL names no PostgreSQL")
    stop = threading.Event()
    written: list[int] = []
    errors: list[Exception] = []

    def write() -> None:
        try:
            while not stop.is_set():
                written.append(LLMCall.objects.create(**CALL).pk)
        except Exception as error:  # noqa: BLE001 (whether there is one is what is tested)
            errors.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=write)
    yield thread, written, errors
    stop.set()
    thread.join(30)


@pytest.mark.service
def test_on_postgresql_others_write_on_while_batches_are_deleted(
    writer: tuple[threading.Thread, list[int], list[Exception]],
) -> None:
    thread, written, errors = writer
    LLMCall.objects.bulk_create(LLMCall(**CALL) for _ in range(600))
    LLMCall.objects.update(created_at=OLD)
    [log] = [one for one in prunings() if one.tables[0] == "llm_calls"]
    sum_up()
    thread.start()
    sizes, turns = [], []

    def rest(_seconds: float) -> None:
        """Nothing is open while it rests: the other has a turn."""
        assert not connection.in_atomic_block
        before = len(written)
        wait_until(lambda: len(written) > before or bool(errors), timeout=30, what="the other writes")
        turns.append(len(written) - before)

    for batch in retention.prune(log, OLD + timedelta(days=1), batch=50, rest=rest):
        sizes.append(batch.rows["llm_calls"])

    assert (sizes, errors, len(turns)) == ([50] * 12, [], 12)
    assert LLMCall.objects.filter(created_at__lt=OLD + timedelta(days=1)).count() == 0
