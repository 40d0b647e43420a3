"""A debate whose process is killed again and again: real processes on a database of the configured kind."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests import zygote
from tests.llm_server import LLMServer
from tests.machinery import THOROUGH, Plumbline

MAKE = """
import json, sys, django; django.setup()
from agents.debates.debate import start_debate
from agents.models import Agent
from tests.agents.debates.seats import TOPIC, seated
agents = list(Agent.objects.order_by("pk")) or seated(3)
options = json.loads(sys.argv[1])
print(json.dumps(start_debate(topic=TOPIC, agents=agents, rounds=2, **options).pk))
"""
PLAY = """
import os, signal, sys, django; django.setup()
from django.db.backends.signals import connection_created
from agents.debates.debate import ask_rounds, play
from agents.debates.models import Debate
from agents.kit.models import owner_name
key, writes, rounds = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) or None

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
        ask_rounds(debate, rounds)
    play(debate, owner=owner_name())
"""
LOOK = """
import json, sys, django; django.setup()
from agents.debates.models import Debate, DebateTurn
from agents.kit.models import LLMCall
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
Start = Callable[..., Any]


class Installation:
    """Processes on one database, offline or with a model server."""

    def __init__(self, folder: Path, database: str, server: LLMServer | None = None, **environment: str) -> None:
        url, model = (server.url, "test-model") if server else ("", "")
        self.plumbline = Plumbline(
            folder,
            {
                "DJANGO_SETTINGS_MODULE": "project.settings",
                "DATABASE_URL": database,
                "CELERY_BROKER_URL": "",
                "SENTRY_DSN": "",
                "ANTHROPIC_API_KEY": "sk-test-secret" if server else "",
                "ACTOR_BASE_URL": url,
                "JUDGE_BASE_URL": url,
                "ACTOR_MODEL": model or "offline:scripted-1",
                "JUDGE_MODEL": model or "offline:lexical-1",
                "WORKER_MOST_LOSSES": "1000",
                "WORKER_THREADS": "4",
                **environment,
            },
        )

    def asks(self, code: str, *arguments: Any) -> Any:
        """What a script says, as JSON."""
        done = zygote.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=self.plumbline.environment, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def plays(self, name: str, debate: int, *, writes: int = 0, rounds: int = 0) -> Any:
        """A process that plays the debate to its end, or dies before it writes for the `writes`th time."""
        return self.plumbline.start(name, "-c", PLAY, str(debate), str(writes), str(rounds))


@pytest.fixture
def install(tmp_path: Path, database_url: str) -> Iterator[Callable[..., Installation]]:
    installed: list[Installation] = []

    def make(server: LLMServer | None = None, **environment: str) -> Installation:
        installed.append(Installation(tmp_path, database_url, server, **environment))
        return installed[-1]

    yield make
    for each in installed:
        each.plumbline.stop()


@pytest.mark.slow
def test_killed_again_and_again_a_debate_asks_no_seat_twice(
    install: Callable[..., Installation],
) -> None:
    installation = install()
    options = json.dumps({"mode": "delphi", "consensus": None, "confidence": None, "convergence_rounds": None})
    calm, killed = installation.asks(MAKE, options), installation.asks(MAKE, options)
    assert installation.plays("calm", calm).wait(120) == 0, installation.plumbline.log_of("calm")

    deaths, step = 0, 1 if THOROUGH else 9
    while (ended := installation.plays("killed", killed, writes=8 + step * deaths).wait(120)) != 0:
        assert ended == -signal.SIGKILL, installation.plumbline.log_of("killed")
        deaths += 1

    expected, result = installation.asks(LOOK, calm), installation.asks(LOOK, killed)
    assert deaths > (8 if THOROUGH else 1)
    assert result.pop("keys") == [f"debate:{killed}:{n}:{seat}" for n in range(3) for seat in (1, 2, 3)]
    assert expected.pop("keys") == [f"debate:{calm}:{n}:{seat}" for n in range(3) for seat in (1, 2, 3)]
    assert result == expected
    assert result["status"] == "completed"
    assert (result["runs"], result["settled"], len(result["said"])) == (["completed"], 9, 9)
