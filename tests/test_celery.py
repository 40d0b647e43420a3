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
from django.core.management import call_command
call_command("seed")
from agents.models import Agent
from evaluation.runs.control import queue_baseline
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


def queueing(database: Path, broker: str) -> dict[str, str]:
    """The environment of a process that is told of a broker."""
    told = {"DATABASE_URL": f"sqlite:///{database}", "CELERY_BROKER_URL": broker, "DEBUG": "1"}
    return {**os.environ, **told, "JUDGE_MODEL": "offline:lexical-1", "PYTHONPATH": str(ROOT)}


def queue(environment: dict[str, str]) -> str:
    """Seed, and queue a baseline; returns what is complained of."""
    command = [sys.executable, "manage.py", "shell", "-c", QUEUE]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=120)
    return done.stderr


@pytest.mark.service
def test_a_queued_baseline_is_done_by_a_celery_worker(database_file: Path, redis_url: str) -> None:
    environment = queueing(database_file, redis_url)
    queue(environment)
    assert status_of_newest_run(database_file) == "pending"
    command = [sys.executable, "-m", "celery", "-A", "project", "worker", "--pool", "solo", "--loglevel", "warning"]
    worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 180
        while (
            status_of_newest_run(database_file) != "completed" and time.monotonic() < deadline and worker.poll() is None
        ):
            time.sleep(0.2)
        assert status_of_newest_run(database_file) == "completed"
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=90)


@pytest.mark.parametrize("program", ["worker", "beat"])
def test_celery_without_a_broker_s_address_says_so_and_stops(tmp_path: Path, program: str) -> None:
    command = [sys.executable, "-m", "celery", "-A", "project", program]
    environment = {"PATH": os.environ["PATH"], "DEBUG": "1", "DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}"}

    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)

    assert done.returncode != 0
    assert done.stderr.startswith("CELERY_BROKER_URL is not set")
    assert "manage.py work" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broker_that_is_down_does_not_keep_work_from_being_queued(database_file: Path) -> None:
    assert "broker not reached" in queue(queueing(database_file, "redis://127.0.0.1:1/0"))
    assert status_of_newest_run(database_file) == "pending"


QUEUE_AT_ONCE = """
import time
from concurrent.futures import ThreadPoolExecutor
from agents.work.queues import nudge
def seconds(_):
    begun = time.monotonic()
    assert not nudge("bulk")
    return time.monotonic() - begun
nudge("bulk")
with ThreadPoolExecutor(16) as threads:
    print(max(threads.map(seconds, range(16))))
"""


def test_requests_that_queue_work_while_the_broker_is_away_wait_a_few_seconds_however_many_they_are(
    database_file: Path,
) -> None:
    """Sixteen at once, and ten connections: none waits for the others without an end."""
    command = [sys.executable, "-c", f"import django\ndjango.setup()\n{QUEUE_AT_ONCE}"]
    environment = queueing(database_file, "redis://127.0.0.1:1/0") | {"DJANGO_SETTINGS_MODULE": "project.settings"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=120)
    assert float(done.stdout) < 20
