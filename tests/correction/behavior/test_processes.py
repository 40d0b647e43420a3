"""A worker killed at each tier: real processes, a real server, one database file. Each answer is asked for and paid once."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests import zygote
from tests.correction.behavior.asking import command, judge, tier_of
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


PREPARE = """
import json, sys, django; django.setup()
from django.contrib.auth.models import User
from agents.models import Message
from agents.personas.persona import TraitValue
from correction.config.configure import configure
from tests.correction.behavior.proposals import CONCISE, proposed
from tests.factories import make_agent
limit, names, status = json.loads(sys.argv[1])
agent = make_agent(traits=[TraitValue(f"trait {n}", f"text {n}", 0.5, 0.5) for n in range(10)])
configure(agent=agent, changes={"behavior_daily_limit": limit})
keys = [proposed(agent, f"Be {name}.", after={**CONCISE, "name": name, "strength": 0.0}, status=status, confidence="high",
                 lease_owner="host:1:test").pk for name in names]
Message.objects.update(user=User.objects.create(username="zoe", is_superuser=True), outsider="")
print(json.dumps(keys))
"""
LOOK = """
import json, django; django.setup()
from agents.models import PersonaVersion, Trait
from correction.behavior.models import BehaviorRequest
print(json.dumps({
    "traits": {t.name: t.strength for t in Trait.objects.all()},
    "versions": list(PersonaVersion.objects.order_by("number").values_list("number", flat=True)),
    "statuses": sorted(BehaviorRequest.objects.values_list("status", flat=True)),
    "last": {t["name"]: t["strength"] for t in PersonaVersion.objects.latest("number").traits},
}))
"""


@pytest.fixture
def environment(database_url: str) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "project.settings"}


def answer(code: str, environment: dict[str, str], *args: str) -> Any:
    done = zygote.run(
        [sys.executable, "-c", code, *args],
        env=environment, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def at_once(environment: dict[str, str], *commands: list[str]) -> list[list[str]]:
    """What each process said; all begin together."""
    processes = [
        zygote.Popen(
            line, env=environment, cwd=settings.BASE_DIR, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for line in commands
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    said = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        said.append(out.splitlines())
    return said


def test_the_limit_of_a_day_is_not_run_over(environment: dict[str, str]) -> None:
    keys = answer(PREPARE, environment, json.dumps([5, [f"new {n}" for n in range(12)], "running"]))

    at_once(environment, *(command("settle", *keys[part::3]) for part in range(3)))

    result = answer(LOOK, environment)
    assert result["statuses"] == ["applied"] * 5 + ["pending_review"] * 7
    assert len(result["traits"]) == 15


def test_requests_for_the_same_new_trait_make_one(environment: dict[str, str]) -> None:
    keys = answer(
        PREPARE, environment, json.dumps([1000, ["Brevity", "BREVITY", "brevity", "ßharp", "SSharp"], "running"])
    )

    said = at_once(environment, *(command("settle", key) for key in keys))

    assert sorted(line for lines in said for line in lines) == [
        "applied",
        "applied",
        "detected",
        "detected",
        "detected",
    ]
    assert len(answer(LOOK, environment)["traits"]) == 12
