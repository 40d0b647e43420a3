"""Streams as gunicorn serves them: they arrive at once, survive being cut off, and end when the server is told to."""

from __future__ import annotations

import http.client
import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.machinery import Plumbline, free_port, wait_until

SEED = """
from django.contrib.auth.models import User
from rest_framework.authtoken.models import Token
from agents.models import Agent, Channel
from evaluation.models import EvaluationRun
user = User.objects.create_superuser("eve")
Channel.objects.create(slug="office", name="office")
ada = Agent.objects.create(slug="ada", display_name="Ada", system_prompt="You are Ada.")
EvaluationRun.objects.create(agent=ada, dimensions=["adherence"], judge="offline:lexical-1")
print(Token.objects.create(user=user).key)
"""
OFFICE = "/api/channels/office/events/"
EVALUATION = "/api/evaluations/1/events/"


@dataclass
class Server:
    port: int
    token: str

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        about = {"Authorization": f"Token {self.token}", "Content-Type": "application/json", **headers}
        connection.request(method, path, None if body is None else json.dumps(body), about)
        return connection.getresponse()

    def listen(self, path: str, last: str = "") -> http.client.HTTPResponse:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        return self.ask("GET", path, **headers)

    def say(self, text: str) -> None:
        answer = self.ask("POST", "/api/messages/", {"channel": "office", "text": text})
        assert answer.status == 201, answer.read()


def part(stream: http.client.HTTPResponse) -> dict[str, str]:
    """The next part of a stream that is no comment; empty when it has ended."""
    while True:
        lines = []
        while line := stream.readline().decode().rstrip("\n"):
            lines.append(line)
        if not lines or not lines[0].startswith(":"):
            return dict(line.split(": ", 1) for line in lines)


@pytest.fixture
def served(database_file: Path, tmp_path: Path) -> Iterator[tuple[Server, Any]]:
    port = free_port()
    here = Plumbline(
        tmp_path,
        {
            "DATABASE_URL": f"sqlite:///{database_file}",
            "WEB_BIND": f"127.0.0.1:{port}",
            "WEB_PROCESSES": "1",
            "WEB_THREADS": "6",
            "WEB_GRACE": "25",
            "EVENT_STREAMS": "4",
            "API_INGESTS_PER_MINUTE": "100000",  # it says something each time it looks for a free place
            "API_PAID_PER_MINUTE": "100000",
            "API_SENDS_PER_MINUTE": "100000",
        },
    )
    try:
        server = Server(port, here.manage("shell", "-v", "0", "-c", SEED).split()[-1])
        process = here.start("web", "-m", "gunicorn", "-c", "python:project.gunicorn", "project.wsgi")

        def answers() -> bool:
            assert process.poll() is None, here.log_of("web")
            try:
                return server.ask("GET", "/healthz").status == 200
            except OSError:
                return False

        wait_until(answers, timeout=60, what="gunicorn answers")
        yield server, process
    finally:
        here.stop()


def test_streams_arrive_at_once_survive_being_cut_off_and_end_with_the_server(served: tuple[Server, Any]) -> None:
    server, process = served
    office, evaluation = server.listen(OFFICE), server.listen(EVALUATION)
    part(office), part(evaluation)  # when to come back
    progress = part(evaluation)
    server.say("one")
    first = part(office)
    assert (first["id"], json.loads(first["data"])["text"]) == ("1", "one")
    assert (progress["event"], json.loads(progress["data"])["status"]) == ("progress", "pending")

    full = server.listen(OFFICE)
    assert (full.status, full.headers["Retry-After"]) == (503, "10")
    office.close()  # cut off, without a word: it is noticed when there is something to say
    said = 1
    until = time.monotonic() + 60
    while (again := server.listen(OFFICE, last="1")).status == 503:
        assert time.monotonic() < until
        said += 1
        server.say(f"message {said}")
    assert part(again)["id"] == "1"
    server.say("the last")
    assert [part(again)["id"] for _ in range(said)] == [str(number) for number in range(2, said + 2)]

    assert server.ask("POST", "/api/evaluations/1/cancel/").status == 200
    end = part(evaluation)
    assert (end["event"], json.loads(end["data"])["status"]) == ("end", "cancelled")
    assert part(evaluation) == {}

    process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    assert part(again) == {}
    assert process.wait(25) == 0
    assert time.monotonic() - begun < 20  # not its whole time, of 25 seconds
