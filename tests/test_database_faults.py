"""A database that is away, locked or full: the API and the console answer 503 and say when to try again, and nothing is a 500."""

from __future__ import annotations

import http.client
import json
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import zygote
from tests.database_file import make_tables
from tests.machinery import ROOT, Plumbline, Postgres, free_port, running, wait_until

# A web process that has everything it needs, waits for a line, and is then asked while the database has its fault.
ASKED = """
import json, sys
import django
django.setup()
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from agents.kit.models import ApiToken
from agents.models import Agent
user = User.objects.create_superuser("root", password="right-and-long")
token = ApiToken.make(user=user, name='test', expires_at=None)[1]
Agent.objects.create(slug="ada", display_name="Ada", system_prompt="You are Ada.")
anonymous, person = (Client(raise_request_exception=False, SERVER_NAME="localhost") for _ in range(2))
person.force_login(user)
program = {"Authorization": f"Token {token}"}
agent = {"slug": "bob", "display_name": "Bob", "system_prompt": "You are Bob. " * 2000}
signing_in = {"username": "root", "password": "right-and-long"}
ASK = {
    "readyz": lambda: anonymous.get("/readyz"),
    "read": lambda: anonymous.get("/api/agents/", headers=program, secure=True),
    "list": lambda: person.get("/admin/agents/agent/", secure=True),
    "write": lambda: anonymous.post("/api/agents/", agent, "application/json", headers=program, secure=True),
    "write with key": lambda: anonymous.post("/api/agents/", agent, "application/json", secure=True,
                                             headers={**program, "Idempotency-Key": "one"}),
    "save": lambda: person.post("/admin/auth/group/add/", {"name": "Guests"}, secure=True),
    "sign in": lambda: anonymous.post("/admin/login/", signing_in, secure=True),
}
if connection.vendor == "sqlite":
    connection.cursor().execute("VACUUM")  # no room is left inside the file
print("ready", flush=True)
connection.settings_dict.setdefault("OPTIONS", {}).update(json.loads(sys.stdin.readline()))
if connection.vendor == "sqlite":
    connection.close()
answers = {name: ask() for name, ask in ASK.items()}
print(json.dumps({name: [a.status_code, a.headers.get("Retry-After"), a["Content-Type"], a.content.decode()[:3000]]
                  for name, a in answers.items()}))
"""
READS = {"read", "list"}
COMMAND = """
import sys
import django
django.setup()
from django.db import connection
import manage
connection.settings_dict["OPTIONS"]["timeout"] = 0.1
sys.argv = ["manage.py", *sys.argv[1:]]
manage.main()
"""


def asked(url: str, *, debug: bool, options: dict[str, Any], fault: Callable[[], Any]) -> dict[str, list[Any]]:
    """What a process answers whose database gets a fault; `options` are those of its connection from then on."""
    environment = {"DATABASE_URL": url, "DEBUG": str(debug), "DJANGO_SETTINGS_MODULE": "project.settings"}
    process = zygote.Popen(
        [sys.executable, "-c", ASKED],
        cwd=ROOT, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        fault()
        out, _ = process.communicate(json.dumps(options) + "\n", timeout=120)
    finally:
        process.kill()
        process.wait()
    found: dict[str, list[Any]] = json.loads(out)
    return found


def check(answers: dict[str, list[Any]], *, refused: set[str], may_be_refused: frozenset[str] = frozenset()) -> None:
    assert {name: answer for name, answer in answers.items() if answer[0] >= 500 and answer[0] != 503} == {}
    found = {name for name, answer in answers.items() if answer[0] == 503}
    assert refused <= found <= refused | may_be_refused
    for name in found - {"readyz"}:
        _, retry_after, content_type, body = answers[name]
        assert int(retry_after) > 0, name
        if name.startswith(("read", "write")):
            assert content_type == "application/problem+json"
            assert json.loads(body)["status"] == 503
        else:
            assert content_type.startswith("text/html")
            assert "database" in body
            assert "Traceback" not in body


@pytest.mark.slow
def test_a_locked_sqlite_file_is_a_503_for_writes(database_file: Path) -> None:
    other = sqlite3.connect(database_file, isolation_level=None)
    try:
        url, lock = f"sqlite:///{database_file}", "BEGIN IMMEDIATE"
        answers = asked(url, debug=False, options={"timeout": 0.1}, fault=lambda: other.execute(lock))
    finally:
        other.close()

    check(answers, refused=answers.keys() - READS)


@pytest.mark.slow
def test_a_full_sqlite_file_is_a_503_for_writes(database_file: Path) -> None:
    no_growth = {"init_command": "PRAGMA journal_mode=WAL; PRAGMA max_page_count=1;"}  # so many as there are

    answers = asked(f"sqlite:///{database_file}", debug=False, options=no_growth, fault=lambda: None)

    small = frozenset({"save", "sign in"})  # may fit into what is left of a page
    check(answers, refused=answers.keys() - READS - small, may_be_refused=small)


@pytest.mark.slow
@pytest.mark.service
def test_a_postgresql_that_was_stopped_is_a_503_everywhere_also_while_debugging() -> None:
    server = Postgres()
    with running(server):
        make_tables(server.url)
        answers = asked(server.url, debug=True, options={}, fault=server.stop)

    check(answers, refused=set(answers))


def test_a_command_on_a_locked_sqlite_file_ends_with_a_sentence(database_file: Path) -> None:
    environment = {"DATABASE_URL": f"sqlite:///{database_file}", "DEBUG": "1", "PYTHONPATH": str(ROOT)}
    environment["DJANGO_SETTINGS_MODULE"] = "project.settings"
    with closing(sqlite3.connect(database_file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        done = zygote.run(
            [sys.executable, "-c", COMMAND, "configure", "defaults", "gate_mode=observe"],
            cwd=ROOT, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    assert done.returncode == 3
    assert "locked" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.fixture
def served(database_file: Path, tmp_path: Path) -> Iterator[tuple[Program, subprocess.Popen[bytes]]]:
    """gunicorn on a SQLite file, asked by a program."""
    port = free_port()
    here = Plumbline(
        tmp_path, {"DATABASE_URL": f"sqlite:///{database_file}", "WEB_BIND": f"127.0.0.1:{port}", "WEB_PROCESSES": "1"}
    )
    token = here.manage("shell", "-v", "0", "-c", A_TOKEN).split()[-1]
    process = here.start("gunicorn", "-m", "gunicorn", "-c", "python:project.gunicorn", "project.wsgi")
    try:
        program = Program(port, token)
        wait_until(lambda: program.ask("GET", "/api/agents/") == 200, timeout=60, what="gunicorn answers")
        yield program, process
    finally:
        here.stop()


A_TOKEN = """
from django.contrib.auth.models import User
from agents.kit.models import ApiToken
print(ApiToken.make(user=User.objects.create_superuser("eve"), name="test", expires_at=None)[1])
"""


@dataclass
class Program:
    port: int
    token: str

    def ask(self, method: str, path: str, **body: str) -> int:
        """The status of an answer, 0 without one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Token {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()


def test_on_a_full_disk_reading_works_and_writing_is_a_503(served: tuple[Program, subprocess.Popen[bytes]]) -> None:
    program, server = served
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    for pid in (server.pid, *map(int, children)):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))  # no file can grow any more, as on a full disk

    assert [program.ask("GET", path) for path in ("/api/agents/", "/api/channels/", "/api/agents/") * 3] == [200] * 9
    new = {"slug": "ada", "display_name": "Ada", "system_prompt": "You are Ada. " * 2000}
    assert program.ask("POST", "/api/agents/", **new) == 503
    assert program.ask("GET", "/api/agents/") == 200


def test_a_request_waits_three_seconds_for_a_locked_file(
    served: tuple[Program, subprocess.Popen[bytes]], database_file: Path
) -> None:
    program, _ = served
    with closing(sqlite3.connect(database_file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        status = program.ask("POST", "/api/agents/", slug="ada", display_name="Ada", system_prompt="You are Ada.")
        waited = time.monotonic() - began

    assert status == 503
    assert waited < 10  # three seconds, on a busy machine; a worker waits twenty
