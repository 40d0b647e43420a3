"""A debate whose process is killed again and again: real processes on a database of the configured kind."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests import zygote
from tests.machinery import THOROUGH, Plumbline

MAKE = """
import django; django.setup()
from agents.debates.starting import start_debate
from agents.models import Agent
from tests.agents.debates.seats import TOPIC, seated
agents = list(Agent.objects.order_by("pk")) or seated(3)
off = {"consensus": None, "confidence": None, "convergence_rounds": None}
print(start_debate(topic=TOPIC, mode="delphi", agents=agents, rounds=2, **off).pk)
"""
PLAY = """
import os, signal, sys, django; django.setup()
from django.db.backends.signals import connection_created
from agents.debates.debate import ask_rounds, play
from agents.debates.models import Debate
from agents.kit.models import owner_name
key, writes = int(sys.argv[1]), int(sys.argv[2])

def count(execute, sql, params, many, context):
    global writes
    if sql.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE")):
        writes -= 1
        if writes == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return execute(sql, params, many, context)

def watch(connection, **_):
    if count not in connection.execute_wrappers:
        connection.execute_wrappers.append(count)

connection_created.connect(watch)
debate = Debate.objects.get(pk=key)
while debate.status in ("waiting", "pending", "running"):
    if debate.status == "waiting":
        ask_rounds(debate, None)
    play(debate, owner=owner_name())
"""
LOOK = """
import json, sys, django; django.setup()
from agents.debates.models import Debate, DebateTurn
from agents.models import Run, RunStep
from tests.agents.debates.seats import record
debate = Debate.objects.get(pk=int(sys.argv[1]))
runs = Run.objects.filter(channel=debate.channel)
print(json.dumps(record(debate) | {
    "keys": sorted(runs.values_list("idempotency_key", flat=True)),
    "runs": sorted(set(runs.values_list("status", flat=True))),
    "asked": RunStep.objects.filter(run__in=runs, kind="model_call").count(),
    "settled": DebateTurn.objects.filter(debate=debate, run__in=runs).count(),
}))
"""


@pytest.mark.slow
def test_killed_again_and_again_a_debate_asks_no_seat_twice(tmp_path: Path, database_url: str) -> None:
    offline = {
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "DATABASE_URL": database_url,
        "CELERY_BROKER_URL": "",
        "SENTRY_DSN": "",
        "ANTHROPIC_API_KEY": "",
        "ACTOR_MODEL": "offline:scripted-1",
        "JUDGE_MODEL": "offline:lexical-1",
        "WORKER_MOST_LOSSES": "1000",
        "WORKER_THREADS": "4",
    }
    plumbline = Plumbline(tmp_path, offline)

    def run(code: str, *arguments: int) -> Any:
        return zygote.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=plumbline.environment,
            cwd=settings.BASE_DIR,
            capture_output=True,
            text=True,
            timeout=120,
        )

    calm, killed = (int(run(MAKE).stdout) for _ in range(2))
    assert run(PLAY, calm, 0).returncode == 0

    worker_losses, step = 0, 1 if THOROUGH else 9
    while (ended := run(PLAY, killed, 8 + step * worker_losses)).returncode != 0:
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        worker_losses += 1

    assert worker_losses > (8 if THOROUGH else 1)
    expected, result = (json.loads(run(LOOK, debate).stdout) for debate in (calm, killed))
    assert result.pop("keys") == [f"debate:{killed}:{n}:{seat}" for n in range(3) for seat in (1, 2, 3)]
    assert expected.pop("keys") == [f"debate:{calm}:{n}:{seat}" for n in range(3) for seat in (1, 2, 3)]
    assert result == expected
    assert result["status"] == "completed"
    assert (result["runs"], result["settled"], len(result["said"])) == (["completed"], 9, 9)
