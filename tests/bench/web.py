"""The API under gunicorn: saying a message with every mechanism off beside a bare create of the same row; and taking messages in."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CLIENTS = 8
REQUESTS = 300  # per round and route
ROUNDS = 3
BATCHES, BATCH = 20, 1_000
HEADERS = {"Host": "localhost", "X-Forwarded-Proto": "https", "Content-Type": "application/json"}


def web(url: str, server: Any) -> Iterator[tuple[str, str, str]]:
    """Rows for the table, measured in the database that settings name; `server` answers the gate's questions at once."""
    from agents.kit.models import ApiToken
    from agents.models import Agent, Channel
    from tests.console import superuser

    token = ApiToken.make(user=superuser("bench"), name="bench", expires_at=None)[1]
    agent = Agent.objects.create(slug="bench-agent", display_name="Bench", system_prompt="You are Bench.")
    rooms = [Channel.objects.create(slug=f"bench-{n}", name=f"bench-{n}") for n in range(2)]
    for room in rooms:
        room.memberships.create(agent=agent)
    yield from sending(token, agent, rooms[0], rooms[1])
    if server:
        yield from gating(token, agent, rooms[0], rooms[1], url, server)
    yield ingesting(token)


def sending(token: str, agent: Any, spoken: Any, bare: Any) -> Iterator[tuple[str, str, str]]:
    text = "I filed it this morning, where it belongs. Next. " * 4
    position = itertools.count(1)

    def send() -> tuple[str, dict[str, Any]]:
        return "/api/messages/send/", {"agent": agent.slug, "channel": spoken.slug, "text": text}

    def create() -> tuple[str, dict[str, Any]]:
        number = next(position)
        row = {"channel": bare.pk, "position": number, "external_id": f"b{number}", "agent": agent.pk, "text": text}
        return "/bare/", row

    with Server() as port:
        for route in (send, create):
            load(port, token, route, 100)
        taken: dict[str, list[float]] = {"send": [], "bare": []}
        walls = {"send": 0.0, "bare": 0.0}
        for _ in range(ROUNDS):
            for name, route in (("send", send), ("bare", create)):
                wall, seconds = load(port, token, route, REQUESTS)
                walls[name] += wall
                taken[name] += seconds
    rates = {name: ROUNDS * REQUESTS / wall for name, wall in walls.items()}
    for name, what in (("send", "messages/send/, every mechanism off"), ("bare", "   a bare create of the same row")):
        ordered = sorted(taken[name])
        p95 = ordered[len(ordered) * 95 // 100] * 1000
        yield f"{what}, {CLIENTS} clients", f"{rates[name]:.0f} requests/s, 95 % within {p95:.0f} ms", "-"
    yield "   ratio of their rates, rounds in turn", f"{rates['send'] / rates['bare']:.2f}", ">= 0.6"


def gating(token: str, agent: Any, channel: Any, bare: Any, url: str, server: Any) -> Iterator[tuple[str, str, str]]:
    """Sends through a gate of three dimensions, whose judge answers at once; beside the bare request, calls and rows."""
    from correction.models import AgentEvaluationConfig
    from tests.bench.gate import VERDICT

    gate = {f"gate_{name}_enabled": True for name in ("adherence", "consistency", "fluency")}
    AgentEvaluationConfig.objects.create(agent=agent, **gate)
    server.program({"latency": 0, "json": VERDICT})

    def send() -> tuple[str, dict[str, Any]]:
        return "/api/messages/send/", {"agent": agent.slug, "channel": channel.slug, "text": "I filed it this morning."}

    position = itertools.count(1_000_000)

    def create() -> tuple[str, dict[str, Any]]:
        number = next(position)
        row = {"channel": bare.pk, "position": number, "external_id": f"b{number}", "agent": agent.pk}
        return "/bare-gated/", {**row, "text": "I filed it this morning."}

    routes = {"gated": send, "bare": create}
    walls: dict[str, list[float]] = {name: [] for name in routes}
    taken: list[float] = []
    with Server(JUDGE_MODEL="claude-haiku-5-5", JUDGE_BASE_URL=url) as port:
        for route in routes.values():
            load(port, token, route, 100)
        for _ in range(ROUNDS):
            for name, route in routes.items():
                wall, seconds = load(port, token, route, REQUESTS)
                walls[name].append(wall)
                taken += seconds if name == "gated" else []
    p95 = sorted(taken)[len(taken) * 95 // 100] * 1000
    best = {name: min(each) for name, each in walls.items()}
    yield (
        f"messages/send/ through a gate of 3 dimensions, judge at 0 ms, {CLIENTS} clients, one process",
        f"{REQUESTS / best['gated']:.0f} requests/s, 95 % within {p95:.0f} ms",
        "-",
    )
    yield "   a bare request, three bare SDK calls, the same rows", f"{REQUESTS / best['bare']:.0f} requests/s", "-"
    yield "   ratio of their times, best of rounds in turn", f"{best['gated'] / best['bare']:.2f}", "<= 1.5"


def load(
    port: int, token: str, route: Callable[[], tuple[str, dict[str, Any]]], count: int
) -> tuple[float, list[float]]:
    """Wall seconds, and seconds of each request, of `count` requests by several clients at once."""
    numbers, found, failures = iter(range(count)), [], []
    lock = threading.Lock()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while True:
            with lock:
                if next(numbers, None) is None:
                    break
                path, body = route()
            begun = time.perf_counter()
            connection.request("POST", path, json.dumps(body), {**HEADERS, "Authorization": f"Token {token}"})
            answer = connection.getresponse()
            content = answer.read()
            found.append(time.perf_counter() - begun)
            if answer.status != 201:
                failures.append((answer.status, content[:300]))
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"{len(failures)} requests failed, e.g. {failures[0]}")
    return time.perf_counter() - begun, found


class Server:
    """gunicorn with the project's configuration: one process, so that both routes have the same to work with."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings

    def __enter__(self) -> int:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        environment = {
            **os.environ,
            "TRUST_PROXY_HEADERS": "true",
            "JUDGE_MODEL": "offline:lexical-1",
            "ACTOR_MODEL": "offline:scripted-1",
            "WEB_BIND": f"127.0.0.1:{self.port}",
            "WEB_PROCESSES": "1",
            "WEB_THREADS": str(CLIENTS),
            **self.settings,
        }
        command = [
            str(Path(sys.executable).parent / "gunicorn"),
            "-c",
            "python:project.gunicorn",
            "tests.bench.bare_wsgi",
        ]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("gunicorn did not start") from None
                time.sleep(0.1)
        return self.port

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=40)


def ingesting(token: str) -> tuple[str, str, str]:
    """Through the view, in this process: parsing, checking, storing, answering."""
    from django.test import override_settings
    from rest_framework.test import APIClient

    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    text = "some words " * 12
    batches = [
        json.dumps(
            {
                "channel": f"support-{batch % 4}",
                "messages": [
                    {
                        "external_id": f"{batch}-{n}",
                        **({"agent": "bench-agent"} if n % 2 else {"outsider": f"Customer {batch}"}),
                        "text": f"Message {n}: {text}",
                        "sent_at": f"2026-03-01T{n % 24:02}:00:00Z",
                        "tags": {"build": "41"},
                    }
                    for n in range(BATCH)
                ],
            }
        )
        for batch in range(BATCHES + 1)
    ]
    seconds = []
    with override_settings(API_INGESTS_PER_MINUTE=1_000_000):
        for body in batches:
            begun = time.perf_counter()
            answer = client.post(
                "/api/messages/ingest/",
                body,
                content_type="application/json",
                secure=True,
                headers={"Host": "localhost"},
            )
            seconds.append(time.perf_counter() - begun)
            if answer.status_code != 200 or answer.json()["imported"] != BATCH:
                raise RuntimeError(answer.content[:300])
    steady = seconds[1:]
    return (
        f"messages/ingest/, {BATCHES} requests of {BATCH:,} messages, one process",
        f"{BATCHES * BATCH / sum(steady):,.0f} messages/s",
        ">= 3,000/s",
    )
