"""Celery: workers with a real Redis, and what happens without a broker or with one that is down."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis as Client

from tests import zygote
from tests.evaluation.judging import answers
from tests.llm_server import LLMServer
from tests.machinery import ROOT, Plumbline, Redis, running, wait_until
from tests.queued_work import installed, kind_judge, statuses_in


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    server = Redis(tmp_path)
    with running(server):
        yield server


@pytest.fixture
def judge() -> Iterator[LLMServer]:
    with kind_judge() as server:
        yield server


@pytest.fixture
def plumbline(tmp_path: Path, database_file: Path, judge: LLMServer, redis: Redis) -> Iterator[Plumbline]:
    celery = {"CELERY_BROKER_URL": redis.url, "CELERY_SKIP_CHECKS": "1", "WORKER_GRACE": "0.2"}
    with installed(tmp_path, database_file, judge, **celery) as installation:
        yield installation


@pytest.fixture
def statuses(database_file: Path) -> Callable[[], list[str]]:
    return statuses_in(database_file)


@pytest.mark.slow
@pytest.mark.service
def test_a_worker_told_to_stop_hands_back_what_it_cannot_finish(
    plumbline: Plumbline, judge: LLMServer, statuses: Callable[[], list[str]]
) -> None:
    judge.respond = None
    judge.always(hang=True)
    worker = plumbline.celery("worker", "worker", "--concurrency", "1")
    assert judge.wait_until(lambda: judge.inflight > 0, timeout=120)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    assert judge.wait_until(lambda: judge.client_gone == judge.calls and judge.inflight == 0)
    assert statuses() == ["pending", "pending"]


@pytest.mark.slow
@pytest.mark.service
def test_a_slices_end_cancels_its_calls_and_gives_the_next_its_turn(
    plumbline: Plumbline, judge: LLMServer, statuses: Callable[[], list[str]], database_file: Path
) -> None:
    judge.respond = lambda body: {"hang": True} if judge.calls <= 1 else answers(lambda claim: 7)(body)
    plumbline.environment["WORKER_SLICE"] = "10"
    plumbline.celery("worker", "worker", "--concurrency", "1")

    wait_until(lambda: statuses() == ["completed", "completed"], timeout=120, what="both are done")

    with sqlite3.connect(database_file, timeout=20) as connection:
        given_up = connection.execute("select error from llm_calls where status = 'unavailable'").fetchall()
        order = connection.execute("select id from evaluation_runs order by finished_at").fetchall()
    assert len(given_up) == 1
    assert "given up" in given_up[0][0]
    assert order == [(2,), (1,)], "the other agent's evaluation was done before the interrupted one went on"


@pytest.mark.slow
@pytest.mark.service
def test_messages_that_come_twice_or_for_nothing_do_no_harm(
    plumbline: Plumbline, judge: LLMServer, statuses: Callable[[], list[str]], database_file: Path
) -> None:
    send = 'import django\ndjango.setup()\nfrom agents.kit.work.queues import wake_workers\nwake_workers("bulk", 200)'
    plumbline.start_and_wait("send", "-c", send)
    plumbline.celery("worker", "worker", "--concurrency", "2")

    wait_until(lambda: statuses() == ["completed", "completed"], timeout=120, what="both are done")

    with sqlite3.connect(database_file, timeout=20) as connection:
        (calls,) = connection.execute("select count(*) from llm_calls").fetchone()
        (needed,) = connection.execute("select count(distinct call_id) from evaluation_scores").fetchone()
    assert calls == needed == judge.calls


@pytest.mark.service
def test_many_rows_do_not_flood_the_broker(plumbline: Plumbline, redis: Redis) -> None:
    send = "\n".join(
        (
            "import django",
            "django.setup()",
            "from celery import current_app",
            "from agents.kit.work.queues import MOST_MESSAGES, messages_waiting, wake_workers",
            "for _ in range(MOST_MESSAGES + 50): wake_workers('bulk')",
            "with current_app.pool.acquire() as connection:",
            "    assert messages_waiting(connection, 'bulk') == MOST_MESSAGES, messages_waiting(connection, 'bulk')",
            "    assert messages_waiting(connection, 'interactive') == 0",
        )
    )
    plumbline.start_and_wait("send", "-c", send)


@pytest.mark.slow
@pytest.mark.service
def test_a_worker_outlives_a_broker_that_is_restarted_again_and_again(plumbline: Plumbline, redis: Redis) -> None:
    plumbline.environment["WORKER_SWEEP"] = "0.5"
    worker = plumbline.celery("worker", "worker", "--concurrency", "1")
    plumbline.celery("beat", "beat", "--schedule", str(plumbline.folder / "schedule"))

    for _ in range(2):
        wait_until(lambda: messages_taken(redis) > 3, timeout=120, what="the worker takes messages")
        redis.stop()
        redis.start()
    wait_until(lambda: messages_taken(redis) > 3, timeout=120, what="the worker takes messages")

    assert worker.poll() is None


def messages_taken(redis: Redis) -> int:
    """Since the server was started: how often a waiting worker got what it waited for."""
    with Client(port=redis.port) as client:
        commands: dict[str, dict[str, int]] = client.info("commandstats")
        sent, left = commands.get("cmdstat_lpush", {}).get("calls", 0), client.llen("bulk") + client.llen("interactive")
    return sent - int(left)


# -- without a broker
@pytest.mark.parametrize("program", ["worker", "beat"])
def test_celery_without_a_broker_s_address_says_so_and_stops(tmp_path: Path, program: str) -> None:
    command = [sys.executable, "-m", "celery", "-A", "project", program]
    environment = {"PATH": os.environ["PATH"], "DEBUG": "1", "DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}"}

    done = zygote.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)

    assert done.returncode != 0
    assert done.stderr.startswith("CELERY_BROKER_URL is not set")
    assert "manage.py work" in done.stderr
    assert "Traceback" not in done.stderr


def without_broker(database: Path) -> dict[str, str]:
    told = {"DATABASE_URL": f"sqlite:///{database}", "CELERY_BROKER_URL": "redis://127.0.0.1:1/0", "DEBUG": "1"}
    return {**os.environ, **told, "DJANGO_SETTINGS_MODULE": "project.settings", "PYTHONPATH": str(ROOT)}


QUEUE_BASELINE = """
from agents.models import Agent
from tests.evaluation.measuring import queue_baseline
from tests.factories import make_agent, talk
talk(make_agent("ada"), ["one", "two"])
queue_baseline(agents=Agent.objects.all())
"""


def test_a_broker_that_is_down_does_not_keep_work_from_being_queued(database_file: Path) -> None:
    command = [sys.executable, "-c", "import django\ndjango.setup()\n" + QUEUE_BASELINE]
    done = zygote.run(command, cwd=ROOT, env=without_broker(database_file), capture_output=True, text=True, timeout=120)
    assert "broker not reached" in done.stderr
    assert set(statuses_in(database_file)()) == {"pending"}
