"""With a broker, queued evaluations are done by Celery workers."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
QUEUE = """
from agents.models import Agent
from evaluation.control import queue_baseline
queue_baseline(agents=Agent.objects.filter(slug="kevin"))
"""


@pytest.fixture
def redis_url() -> str:
    url = os.environ.get("TEST_REDIS_URL", "")
    if not url:
        if os.environ.get("CI") == "true" and os.environ.get("DATABASE_URL", "").startswith("postgres"):
            pytest.fail("CI must set TEST_REDIS_URL")
        pytest.skip("TEST_REDIS_URL is not set: needs a Redis server")
    return url


def status_of_newest_run(database: Path) -> str:
    with sqlite3.connect(database) as connection:
        row = connection.execute("select status from evaluation_runs order by id desc limit 1").fetchone()
    return str(row[0]) if row else ""


@pytest.mark.service
def test_a_queued_baseline_is_done_by_a_celery_worker(tmp_path: Path, redis_url: str) -> None:
    database = tmp_path / "celery.sqlite3"
    environment = {**os.environ, "DATABASE_URL": f"sqlite:///{database}", "CELERY_BROKER_URL": redis_url, "DEBUG": "1"}
    environment |= {"JUDGE_MODEL": "offline:lexical-1", "PYTHONPATH": str(ROOT)}

    def manage(*arguments: str) -> None:
        subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            timeout=120,
        )

    manage("migrate")
    manage("seed")
    manage("shell", "-c", QUEUE)
    assert status_of_newest_run(database) == "pending"
    command = [sys.executable, "-m", "celery", "-A", "project", "worker", "--pool", "solo", "--loglevel", "warning"]
    worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while status_of_newest_run(database) != "completed" and time.monotonic() < deadline and worker.poll() is None:
            time.sleep(0.2)
        assert status_of_newest_run(database) == "completed"
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=30)


def test_a_broker_that_is_down_does_not_keep_work_from_being_queued(tmp_path: Path) -> None:
    database = tmp_path / "down.sqlite3"
    environment = {
        **os.environ,
        "DATABASE_URL": f"sqlite:///{database}",
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
        "DEBUG": "1",
    }
    for arguments in (("migrate",), ("seed",), ("shell", "-c", QUEUE)):
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert "broker not reached" in done.stderr
    assert status_of_newest_run(database) == "pending"
