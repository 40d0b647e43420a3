"""The shipped nginx file keeps slow clients away from gunicorn, and lets through what has to pass."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.machinery import ROOT, Plumbline, free_port, missing, wait_until

pytestmark = pytest.mark.service
NGINX = """
{user} daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 768; }}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/1; uwsgi_temp_path {folder}/2; scgi_temp_path {folder}/3;
    include {folder}/plumbline.conf;
}}
"""
TIMEOUT, SHORT = "timeout 10s", "timeout 2s"
SLOW_BODY = (
    b"POST /admin/login/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 1000\r\n\r\nusername="
)
LARGE_FILE = b'--x\r\nContent-Disposition: form-data; name="files"; filename="chat.txt"\r\n\r\n%s\r\n--x--\r\n' % (
    b"x" * 20_000_000
)
DRIBBLED_HEADERS = b"GET /admin/login/ HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


SEED = """
from django.contrib.auth.models import User
from agents.kit.models import ApiToken
print(ApiToken.make(user=User.objects.create_superuser("eve"), name="test", expires_at=None)[1])
"""


@dataclass
class Server:
    port: int
    token: str

    def ask(self, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, None, {"Authorization": f"Token {self.token}", **headers})
        return connection.getresponse()


def nginx_with(folder: Path, changes: dict[str, str]) -> tuple[str, str]:
    """The program and its main file, which includes the shipped one with some changes."""
    if (program := shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin")) is None:
        missing("nginx")
    folder.mkdir()
    user = "user root;" if os.geteuid() == 0 else ""  # only who runs the tests can enter their folders
    shipped = (ROOT / "project" / "nginx.conf").read_text()
    for before, after in changes.items():
        assert before in shipped
        shipped = shipped.replace(before, after)
    (folder / "plumbline.conf").write_text(shipped)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user))
    return str(program), str(folder / "nginx.conf")


@pytest.fixture(scope="module")
def servers(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """gunicorn with few threads, as it is and behind nginx with the shipped file."""
    folder = tmp_path_factory.mktemp("servers")
    database = shutil.copy(migrated_file, folder / "db.sqlite3")
    inner, outer = free_port(), free_port()
    program, main = nginx_with(
        folder / "nginx",
        {
            "web:8000": f"127.0.0.1:{inner}",
            "listen 8080": f"listen 127.0.0.1:{outer}",
            f"client_header_{TIMEOUT}": f"client_header_{SHORT}",
            "set_real_ip_from 127.0.0.1;": "",
        },
    )
    environment = {"DATABASE_URL": f"sqlite:///{database}", "WEB_BIND": f"127.0.0.1:{inner}"}
    environment |= {"WEB_PROCESSES": "1", "WEB_THREADS": "4", "TRUST_PROXY_HEADERS": "true"}
    here = Plumbline(folder, environment)
    try:
        token = here.manage("shell", "-v", "0", "-c", SEED).split()[-1]
        here.start("gunicorn", "-m", "gunicorn", "-c", "python:project.gunicorn", "project.wsgi")
        here.run("nginx", program, "-c", main)
        direct, behind = Server(inner, token), Server(outer, token)
        wait_until(lambda: answers(behind), timeout=60, what="gunicorn answers through nginx")
        yield direct, behind
    finally:
        here.stop()


@contextmanager
def nginx_alone(folder: Path, changes: dict[str, str]) -> Iterator[Server]:
    """nginx with the shipped file and nothing behind it."""
    port = free_port()
    moved = {"web:8000": "127.0.0.1:9", "listen 8080": f"listen 127.0.0.1:{port}"}
    program, main = nginx_with(folder / "nginx", moved | changes)
    here = Plumbline(folder, {})
    try:
        here.run("nginx", program, "-c", main)
        yield Server(port, "")
    finally:
        here.stop()


def answers(server: Server, timeout: float = 10) -> bool:
    """Whether an ordinary request is answered."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        connection.request("GET", "/admin/login/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_requests_go_to_the_other_web_process_while_one_is_gone(servers: tuple[Server, Server], tmp_path: Path) -> None:
    direct, _ = servers
    two = f"server 127.0.0.1:{free_port()}; server 127.0.0.1:{direct.port};"
    with nginx_alone(tmp_path, {"server 127.0.0.1:9;": two}) as server:
        wait_until(lambda: answers(server), timeout=30, what="nginx answers")
        assert [server.ask("POST", "/api/agents/").status for _ in range(6)] == [401] * 6


@contextmanager
def slow_clients(server: Server, count: int, begin: bytes) -> Iterator[list[socket.socket]]:
    """Clients that send a request's begin, and then a byte every now and then; at most a minute."""
    clients = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(count)]
    stopped = threading.Event()

    def dribble() -> None:
        for _ in range(120):
            if stopped.wait(0.5):
                return
            for client in clients:
                try:
                    client.send(b"x")
                except OSError:
                    continue  # the server gave it up

    for client in clients:
        client.sendall(begin)
    thread = threading.Thread(target=dribble)
    thread.start()
    try:
        yield clients
    finally:
        stopped.set()
        thread.join()
        for client in clients:
            client.close()


def test_forty_slow_bodies_stop_gunicorn_alone_and_not_behind_nginx(servers: tuple[Server, Server]) -> None:
    direct, behind = servers

    with slow_clients(behind, 40, SLOW_BODY):
        assert [answers(behind) for _ in range(20)] == [True] * 20
    with slow_clients(direct, 40, SLOW_BODY):
        wait_until(lambda: not answers(direct, timeout=3), timeout=30, what="gunicorn alone is held up by them")


def test_two_hundred_dribbled_headers_are_given_up_and_cost_others_nothing(
    servers: tuple[Server, Server],
) -> None:
    _, behind = servers

    with slow_clients(behind, 200, DRIBBLED_HEADERS) as clients:
        assert [answers(behind) for _ in range(20)] == [True] * 20
        wait_until(lambda: all(map(is_over, clients)), timeout=30, what="all of them are given up")


@pytest.mark.parametrize(("trusted", "scheme"), [(True, b"https"), (False, b"http")])
def test_only_a_trusted_proxy_is_believed_that_the_client_came_by_https(
    trusted: bool, scheme: bytes, tmp_path: Path
) -> None:
    changes = {
        "location / {": "location / { return 200 $plumbline_scheme;",
        "127.0.0.1/32  1;": "127.0.0.1/32  1;" if trusted else "",
    }
    with nginx_alone(tmp_path, changes) as server:
        wait_until(lambda: answers(server), timeout=30, what="nginx answers")
        headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "127.0.0.1"}
        assert server.ask("GET", "/", **headers).read() == scheme
        assert server.ask("GET", "/").read() == b"http"


def is_over(client: socket.socket) -> bool:
    """Whether the server closed the connection."""
    client.settimeout(0.01)
    try:
        return client.recv(1000) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_large_files_and_the_client_s_address_pass(servers: tuple[Server, Server]) -> None:
    _, behind = servers

    form = {"Content-Type": "multipart/form-data; boundary=x", "Cookie": f"csrftoken={'c' * 32}"}
    connection = http.client.HTTPConnection("127.0.0.1", behind.port, timeout=30)
    connection.request("POST", "/admin/agents/import/add/", LARGE_FILE, form)
    arrived = connection.getresponse().status
    assert arrived == 403, "Django has read the file and looked for a token of the form, which was not there"
    refused = [
        behind.ask("GET", "/api/agents/", Authorization="Token wrong", **{"X-Forwarded-For": f"10.0.0.{n}"}).status
        for n in range(24)
    ]
    assert 429 in refused, "an address that the client made up is believed"


def test_one_address_cannot_hold_more_than_its_share_of_requests(tmp_path: Path) -> None:
    with nginx_alone(tmp_path, {"plumbline_addresses 100": "plumbline_addresses 3"}) as server:

        def status() -> int:
            try:
                return server.ask("GET", "/admin/login/").status
            except OSError:
                return 0

        wait_until(lambda: status() == 502, timeout=30, what="nginx answers")  # nothing is behind it
        with slow_clients(server, 3, SLOW_BODY):
            wait_until(lambda: status() == 429, timeout=8, what="a fourth request is refused")
