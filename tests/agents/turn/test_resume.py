"""A process that ends in the middle of a turn loses no message and doubles none: real processes, a real server, one database file.

The server answers what a test lets through and holds the rest, so that the process is killed at the very same place. What a turn resumes
with after an interruption anywhere else is tested in `test_interrupted`, in this process.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import zygote
from tests.agents.turn.playing import answers
from tests.llm_server import LLMServer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
SETUP = """
from tests.agents.turn.playing import join
from tests.factories import make_agent, make_channel
join(make_channel("office"), make_agent("ada"), make_agent("bob"))
"""
PIPELINE = """
from django.conf import settings
settings.TURN_PIPELINE = [f"tests.agents.turn.stages.{name}" for name in %r]
from agents.models import Agent, Channel
ada, office = Agent.objects.get(slug="ada"), Channel.objects.get()
"""
WORK = """
from django.core.management import call_command
call_command("work", once=True)
"""
QUEUE = """
from agents.turn.orchestrator import start_turn
start_turn(agent=ada, channel=office)
"""
SEND_ON_COMMAND = """
from agents.turn.send_message import send_message
print("ready", flush=True)
input()
print(send_message(agent=ada, channel=office, text="Once.", idempotency_key="k").message.pk)
"""


def environment(database: Path, server: LLMServer | None) -> dict[str, str]:
    url, model = (server.url, "test-model") if server else ("", "")
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "DATABASE_URL": f"sqlite:///{database}",
        "PYTHONPATH": str(ROOT),
        "ACTOR_BASE_URL": url,
        "ACTOR_MODEL": model or "offline:scripted-1",
        "JUDGE_BASE_URL": url,
        "JUDGE_MODEL": model or "offline:lexical-1",
        "SENTRY_DSN": "",
        "CELERY_BROKER_URL": "",
    }


def script(*parts: str, stages: tuple[str, ...] = ()) -> tuple[str, ...]:
    return ("-c", "import django\ndjango.setup()\n" + PIPELINE % (stages,) + "".join(parts))


@pytest.fixture(scope="module")
def template(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with two agents in an office."""
    path = Path(shutil.copy(migrated_file, tmp_path_factory.mktemp("turns") / "template.sqlite3"))
    command = [sys.executable, "-c", "import django\ndjango.setup()\n" + SETUP]
    done = zygote.run(command, cwd=ROOT, env=environment(path, None), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def database(template: Path, tmp_path: Path) -> Path:
    path = tmp_path / "db.sqlite3"
    shutil.copy(template, path)
    return path


class Actor:
    """The model: says each of its lines, then ends; holds the call that a test names until it is released."""

    def __init__(self, server: LLMServer, *lines: str, hold: str = "") -> None:
        self.server, self.lines, self.hold = server, lines, hold
        server.respond = self

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        if "tools" not in body:
            return {"text": "yes", "hold": self.hold == "judge"}
        said = len(answers(body))
        held = {"hold": self.hold == f"actor {said}"}
        if said >= len(self.lines):
            return {"text": "done", **held}
        return {"tool_calls": [("send_message", {"channel": "office", "text": self.lines[said]})], **held}

    @property
    def actor_calls(self) -> int:
        return sum("tools" in body for body in self.server.bodies)


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer() as running:
        yield running


@contextmanager
def started(command: tuple[str, ...], database: Path, server: LLMServer) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = zygote.Popen(
        [sys.executable, *command],
        cwd=ROOT, env=environment(database, server), stdin=pipe, stdout=pipe, stderr=pipe, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def rows(database: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(database, timeout=20)) as connection:
        return connection.execute(query).fetchall()


def eventually(condition: Callable[[], bool], what: str, within: float = 180.0) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {within:g} s"
        time.sleep(0.02)


def stopped(
    server: LLMServer, database: Path, how: signal.Signals, *, calls: int, stages: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """Queue a turn, work on it in a process, and stop that when so many calls have been made and the last one is held."""
    with started(script(QUEUE, WORK, stages=stages), database, server) as process:
        eventually(lambda: server.calls == calls and server.inflight == 1, "the held call")
        process.send_signal(how)
        process.wait(60)
    return process


def resume(server: LLMServer, database: Path, *, stages: tuple[str, ...] = ()) -> None:
    """Another process takes the turn up and ends it."""
    server.release()
    done = zygote.run(
        [sys.executable, *script(WORK, stages=stages)],
        cwd=ROOT, env=environment(database, server), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert rows(database, "select status, stop_reason, attempt, lease_owner from runs") == [
        ("completed", "end_turn", 2, "")
    ], done.stderr


def said(database: Path) -> list[str]:
    return [text for (text,) in rows(database, "select text from messages order by position")]


def test_killed_between_draft_and_commit_the_draft_is_said_once(database: Path, server: LLMServer) -> None:
    actor = Actor(server, "Hello.", hold="judge")
    stopped(server, database, signal.SIGKILL, calls=2, stages=("Judged",))
    assert said(database) == []

    resume(server, database, stages=("Judged",))

    assert said(database) == ["Hello."]
    assert actor.actor_calls == 2, "the draft is not written anew"
    assert rows(database, "select count(*) from run_messages where role = 'tool'") == [(1,)]
    (run,) = rows(database, "select id from runs")[0]
    assert rows(database, "select idempotency_key from messages") == [(f"run:{run}:toolu_1_1",)]


def both_at_once(command: tuple[str, ...], database: Path, server: LLMServer) -> list[str]:
    """Two processes that do the same at the same moment; what each printed."""
    with started(command, database, server) as one, started(command, database, server) as two:
        for process in (one, two):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        printed = []
        for process in (one, two):
            out, complaint = process.communicate(timeout=60)
            assert process.returncode == 0, complaint
            printed.append(out)
    return printed


def test_two_callers_with_one_key_speak_once_and_get_the_same_message(database: Path, server: LLMServer) -> None:
    one, two = both_at_once(script(SEND_ON_COMMAND), database, server)

    assert said(database) == ["Once."]
    assert one == two
