"""State and summaries of a conversation whose process is killed, or that several processes change at once: real processes."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests import zygote
from tests.machinery import Plumbline

TURNS, DEATHS = 36, 20
TALK = """
import os, signal, sys, django; django.setup()
from django.db.backends.signals import connection_created
from django.db import connection
from agents.models import Channel
from agents.work.queues import release_lost_leases
from tests.agents.swarm.talking import seated, take_turn
slug, turns, statements = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def count(execute, sql, params, many, context):
    global statements
    statements -= 1
    if statements == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(sql, params, many, context)

def watch(connection, **_):
    if count not in connection.execute_wrappers:
        connection.execute_wrappers.append(count)

agent = seated()[0]
channel = Channel.objects.get_or_create(slug=slug)[0]
connection_created.connect(watch)
connection.close()
release_lost_leases()  # as a worker does that begins
for number in range(1, turns + 1):
    take_turn(agent, channel, number)
print(statements)
"""
LOOK = """
import json, sys, django; django.setup()
from agents.models import Channel
from tests.agents.swarm.talking import record, seated
print(json.dumps(record(seated()[0], Channel.objects.get(slug=sys.argv[1]))))
"""
ADD = """
import sys, django; django.setup()
from tests.agents.swarm.talking import seated
from agents.models import Message
from agents.swarm.state import Entry, add_quoted, pin, updating
agent, channel = seated()
message = Message.objects.get(channel=channel)
for number in range(int(sys.argv[1]), int(sys.argv[2])):
    with updating(agent, channel) as state:
        entry = Entry(text=f"word {number}", position=1, quote=f"word {number}", pinned=True)
        add_quoted(state, "facts", [entry], [message])
        state.turn += 1
"""
SEAT = """
import django; django.setup()
from tests.agents.swarm.talking import seated
from tests.factories import say
agent, channel = seated()
say(channel, "Mia", " ".join(f"It is word {number}." for number in range(24)))
"""


@pytest.fixture
def plumbline(tmp_path: Path, database_url: str) -> Iterator[Plumbline]:
    environment = {
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "DATABASE_URL": database_url,
        "CELERY_BROKER_URL": "",
        "SENTRY_DSN": "",
        "ANTHROPIC_API_KEY": "",
        "ACTOR_MODEL": "offline:scripted-1",
        "WORKER_MOST_DEATHS": "1000",
    }
    running = Plumbline(tmp_path, environment)
    yield running
    running.stop()


def _runs(plumbline: Plumbline, code: str, *arguments: Any) -> Any:
    return zygote.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=plumbline.environment,
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_killed_at_twenty_random_moments_the_state_is_that_of_an_unbroken_run(plumbline: Plumbline) -> None:
    calm = _runs(plumbline, TALK, "calm", TURNS, 0)
    assert calm.returncode == 0, calm.stderr
    statements = -int(calm.stdout)
    chance = random.Random(18)

    deaths = 0
    while deaths < DEATHS:
        done = _runs(plumbline, TALK, "killed", TURNS, chance.randint(1, statements // DEATHS * 2))
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        deaths += 1
    ended = _runs(plumbline, TALK, "killed", TURNS, 0)
    assert ended.returncode == 0, ended.stderr

    expected, result = (json.loads(_runs(plumbline, LOOK, slug).stdout) for slug in ("calm", "killed"))
    assert deaths == DEATHS
    assert result == expected
    assert (result["turn"], result["dropped"]) == (TURNS, TURNS)
    assert {status for _, _, status, _ in result["summaries"]} == {"completed"}


def test_no_change_is_lost_between_processes_that_write_at_once(plumbline: Plumbline) -> None:
    assert _runs(plumbline, SEAT).returncode == 0
    writers: list[Any] = [plumbline.start(f"writer-{n}", "-c", ADD, str(6 * n), str(6 * n + 6)) for n in range(4)]
    for number, writer in enumerate(writers):
        assert writer.wait(120) == 0, plumbline.log_of(f"writer-{number}")

    result = json.loads(_runs(plumbline, LOOK, "office").stdout)

    assert result["turn"] == 24
    assert {entry["text"] for entry in result["facts"]} == {f"word {number}" for number in range(24)}
