"""A worker killed at each tier: real processes, a real server, one database file. Each answer is asked for and paid once."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.correction.behavior.asking import judge, tier_of
from tests.llm_server import LLMServer
from tests.machinery import Plumbline, kill_at_once, wait_until

pytestmark = pytest.mark.slow
TIERS = ("gate", "extract", "map")
SETUP = """
import django
django.setup()
from tests.correction.behavior.asking import dm_with, write
write(dm_with()[1], "Be more concise")
"""


@pytest.fixture
def plumbline(tmp_path: Path, database_file: Path, llm_server: LLMServer) -> Iterator[Plumbline]:
    installation = Plumbline(
        tmp_path,
        {
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "DATABASE_URL": f"sqlite:///{database_file}",
            "CELERY_BROKER_URL": "",
            "ANTHROPIC_API_KEY": "sk-test-secret",
            "JUDGE_BASE_URL": llm_server.url,
            "JUDGE_MODEL": "test-model",
            "SENTRY_DSN": "",
        },
    )
    try:
        yield installation
    finally:
        installation.stop()


def row_of(database: Path) -> dict[str, Any]:
    with sqlite3.connect(database, timeout=20) as connection:
        connection.row_factory = sqlite3.Row
        return dict(connection.execute("select * from behavior_requests").fetchone())


def test_a_worker_killed_at_each_tier_costs_no_answer_twice(
    plumbline: Plumbline, database_file: Path, llm_server: LLMServer
) -> None:
    plumbline.start_and_wait("setup", "-c", SETUP)
    answered: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    answers = judge()

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        tier = tier_of(body)
        seen[tier] += 1
        if seen[tier] == 1:
            return {"hang": True}  # the first one who asks is killed
        answered[tier] += 1
        return answers(body)

    llm_server.respond = respond
    work = ("manage.py", "work", "--poll", "0.1", "--skip-checks", "--queues", "behavior requests")
    for number, tier in enumerate(TIERS, start=1):
        worker = plumbline.start(f"worker {number}", *work)
        assert llm_server.wait_until(lambda: seen[tier] == 1, timeout=60), plumbline.log_of(f"worker {number}")  # noqa: B023
        kill_at_once(worker)
        stored = [name for name in TIERS if row_of(database_file)[f"{name}_result"] is not None]
        assert stored == list(TIERS[: number - 1])

    last = plumbline.start("last worker", *work)
    wait_until(lambda: row_of(database_file)["status"] == "applied", timeout=60, what="the request is applied")
    kill_at_once(last)

    assert answered == Counter(dict.fromkeys(TIERS, 1))
    assert json.loads(row_of(database_file)["trait_after"])["name"] == "concise answers"
    with sqlite3.connect(database_file, timeout=20) as connection:
        assert connection.execute("select name from traits").fetchall() == [("concise answers",)]
        assert connection.execute("select dimension from llm_calls order by id").fetchall() == [(t,) for t in TIERS]
