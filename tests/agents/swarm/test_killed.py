"""State and summaries of a conversation whose worker is killed, or that several processes change at once: real processes."""

from __future__ import annotations

import json
import random
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests import zygote
from tests.agents.swarm.speaking import READING, kind_of, part_of, prompt_of, system_of
from tests.agents.turn.playing import answers
from tests.llm_server import LLMServer
from tests.machinery import THOROUGH, Plumbline

TURNS, DEATHS = (24, 20) if THOROUGH else (9, 6)
TALK = """
import json, os, signal, sys, django; django.setup()
from django.core.management import call_command
from django.db import connection
from django.db.backends.signals import connection_created
from agents.models import Agent, Channel, ChannelMember
from agents.turn.receive import receive_message
from agents.kit.work.queues import release_lost_leases
from tests.agents.swarm.speaking import with_swarm
from tests.agents.swarm.talking import spoken
from tests.factories import make_channel
slug, (first, last, left) = sys.argv[1], map(int, sys.argv[2:])
statements = 0

def count(execute, sql, params, many, context):
    global statements
    statements += 1
    if number == last and statements == left:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(sql, params, many, context)

def watch(connection, **_):
    if count not in connection.execute_wrappers:
        connection.execute_wrappers.append(count)

ada = Agent.objects.filter(slug="ada").first() or with_swarm()
channel = Channel.objects.filter(slug=slug).first() or make_channel(slug, kind="dm")
ChannelMember.objects.get_or_create(channel=channel, agent=ada)
number, counts = 0, []
release_lost_leases()
connection.close()
connection_created.connect(watch)
for number in range(first, last + 1):
    statements = 0
    receive_message(channel=channel, outsider="Mia", text=spoken(number), idempotency_key=f"{slug} {number}")
    call_command("work", once=True, threads=1, stdout=sys.stderr)
    counts.append(statements)
print(json.dumps(counts))
"""
LOOK = """
import json, sys, django; django.setup()
from agents.models import Agent, Channel, Run
from agents.swarm.models import SwarmTurn
from tests.agents.swarm.talking import record
fields = ("intent", "draft", "polished", "rejected", "replaced", "message__position", "calibration__decision",
          "calibration__reading", "calibration__dropped", "calibration__failed")
channel = Channel.objects.get(slug=sys.argv[1])
print(json.dumps(record(Agent.objects.get(), channel) | {
    "turns": list(SwarmTurn.objects.filter(channel=channel).order_by("pk").values_list(*fields)),
    "runs": list(Run.objects.filter(channel=channel).order_by("pk").values_list("status", flat=True)),
}))
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


def model(body: dict[str, Any]) -> dict[str, Any]:
    """Answer each kind of request by what it shows, the same each time."""
    text = prompt_of(body)
    if kind_of(body) == "turn":
        if answers(body):
            return {"text": "I am done."}
        channel = "killed" if "killed" in system_of(body) + text else "calm"
        day = re.findall(r"on day (\d+) of the trip", text)[-1]
        line = f"A carrier takes about {int(day) % 9 + 2} days. It is cheap, and we agreed on it on day {day}."
        return {"tool_calls": [("send_message", {"channel": channel, "text": line})]}
    if kind_of(body) == "pre":
        position, said = re.findall(r"(?m)^(\d+)\. Mia: (.*)$", part_of(text, "MESSAGE"))[-1]
        bought = re.findall(r"I bought \w+ number \d+", said)[0]
        pinned = {"text": bought, "position": int(position), "quote": bought, "pinned": int(position) % 3 == 1}
        invented = {"text": "Mia won a boat", "position": int(position), "quote": "I won a boat"}
        goal = {"text": "get it home", "position": int(position), "quote": "how I could get it home"}
        return {"json": READING | {"facts": [pinned, invented], "goal": [goal], "anchor": [goal]}}
    if kind_of(body) == "post":
        draft = part_of(text, "DRAFT")
        return {
            "json": {
                "text": draft.replace("It is", "It's") + " Hurry!" * ("day 7" in draft),
                "replaced_by": "",
                "reason": "",
            }
        }
    numbers = [int(number) for number in re.findall(r"(?m)^(\d+)\. ", part_of(text, "SENTENCES"))]
    return {"json": {"wants": [], "discussed": numbers, "decided": [], "pending": []}}


@pytest.fixture
def plumbline(tmp_path: Path, database_url: str) -> Iterator[Plumbline]:
    with LLMServer() as server:
        server.respond = model
        running = Plumbline(
            tmp_path,
            {
                "DJANGO_SETTINGS_MODULE": "project.settings",
                "DATABASE_URL": database_url,
                "CELERY_BROKER_URL": "",
                "SENTRY_DSN": "",
                "ANTHROPIC_API_KEY": "sk-test-secret",
                "ACTOR_BASE_URL": server.url,
                "ACTOR_MODEL": "test-model",
                "WORKER_MOST_LOSSES": "1000",
            },
        )
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


@pytest.mark.slow
def test_killed_at_random_moments_the_state_is_that_of_an_unbroken_run(plumbline: Plumbline) -> None:
    """Each worker resumes the turn that its predecessor died in, and dies before a random statement of the next one."""
    calm = _runs(plumbline, TALK, "calm", 1, TURNS, 0)
    assert calm.returncode == 0, calm.stderr
    chance = random.Random(18)

    worker_losses = 0
    for turn, statements in enumerate(json.loads(calm.stdout), 1):
        done = _runs(plumbline, TALK, "killed", max(1, turn - 1), turn, chance.randint(1, statements))
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        worker_losses += done.returncode != 0
    ended = _runs(plumbline, TALK, "killed", TURNS, TURNS, 0)
    assert ended.returncode == 0, ended.stderr

    expected, result = (json.loads(_runs(plumbline, LOOK, slug).stdout) for slug in ("calm", "killed"))
    assert worker_losses >= DEATHS
    assert result == expected
    assert (result["turn"], result["dropped"]) == (TURNS, TURNS)
    assert sum(entry["pinned"] for entry in result["facts"]) == len(range(1, TURNS + 1, 3))
    assert {status for _, _, status, _ in result["summaries"]} == {"completed"}
    assert sum(bool(rejected) for _, _, _, rejected, *_ in result["turns"]) == 1


@pytest.mark.slow
def test_no_change_is_lost_between_processes_that_write_at_once(plumbline: Plumbline) -> None:
    assert _runs(plumbline, SEAT).returncode == 0
    writers: list[Any] = [plumbline.start(f"writer-{n}", "-c", ADD, str(6 * n), str(6 * n + 6)) for n in range(4)]
    for number, writer in enumerate(writers):
        assert writer.wait(120) == 0, plumbline.log_of(f"writer-{number}")

    result = json.loads(_runs(plumbline, LOOK, "office").stdout)

    assert result["turn"] == 24
    assert {entry["text"] for entry in result["facts"]} == {f"It is word {number}." for number in range(24)}
