"""A PostgreSQL and a Redis of a test's own, which it may stop and start, and processes that it may kill."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from tests import zygote

ROOT = Path(__file__).resolve().parents[1]
# `make fuzz` tries more moments to die at, longer conversations and larger channels than fit into the minutes of a usual run.
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], *, timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.05)


def answers(url: str) -> bool:
    """Return whether a server answers at an address."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True


def missing(what: str) -> None:
    """Skip here, fail in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have {what}")
    pytest.skip(f"{what} is not installed")


class Postgres:
    """A cluster in a folder, without durability on purpose: the machine does not lose power during a test.

    The folder is not one of pytest's: those only root can enter, and as root the server does not run.
    """

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
        if not found:
            missing("PostgreSQL's server programs")
        self.bin, self.port = found[-1].parent, free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="plumbline-postgres-"))
        self.as_root = os.geteuid() == 0
        if self.as_root:
            owner = pwd.getpwnam("postgres")
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self._run(
            "initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C.UTF-8"
        )

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")
        zygote.kill_with_us(int((self.folder / "data" / "postmaster.pid").read_text().split()[0]))

    def stop(self) -> None:
        self._run("pg_ctl", "-D", "data", "-m", "fast", "-w", "stop")

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.bin / program), *arguments]
        if self.as_root:
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
        subprocess.run(
            command, cwd=self.folder, check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


class Redis:
    """A Redis that keeps nothing: what it held is lost when it is restarted."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("redis-server") is None:
            missing("redis-server")
        self.folder, self.port = folder, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        command = ["redis-server", *options]
        self.process = zygote.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(self._answers, timeout=10, what="Redis answers")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def remove(self) -> None:
        """It left nothing."""

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        return False


class Plumbline:
    """Commands and processes of this checkout, all with the same environment; what they say goes to a file each."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = {**os.environ, "DEBUG": "1", "PYTHONPATH": str(ROOT), **environment}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []

    def manage(self, *arguments: str, timeout: float = 300) -> str:
        done = zygote.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """A process with a process group of its own, so that it can be killed with its children, as when a machine dies."""
        return self.run(name, sys.executable, *command)

    def run(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """The same for a program that is not Python's."""
        log = (self.folder / f"{name}.log").open("ab")
        process = zygote.Popen(
            [*command], cwd=ROOT, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )
        self._processes.append(process)
        self._logs.append(log)
        return process

    def start_and_wait(self, name: str, *command: str, timeout: float = 300) -> None:
        process = self.start(name, *command)
        assert process.wait(timeout) == 0, self.log_of(name)

    def celery(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        return self.start(name, "-m", "celery", "-A", "project", *arguments, "--loglevel", "warning")

    def log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        for log in self._logs:
            log.close()


def kill_at_once(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for a process and its children: nothing is cleaned up."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


@contextmanager
def running(service: Postgres | Redis) -> Iterator[None]:
    service.start()
    try:
        yield
    finally:
        with suppress(subprocess.CalledProcessError):
            service.stop()
        service.remove()
