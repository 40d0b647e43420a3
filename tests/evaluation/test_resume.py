"""A process that ends in the middle of a baseline loses nothing: real processes, a real server, one database file.

The server answers the first calls at once and holds the others, so that each test stops a process at the very same place.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import zygote
from tests.evaluation.judging import answers
from tests.evaluation.processes import ROOT, environment, eventually, rows, script
from tests.llm_server import LLMServer

pytestmark = pytest.mark.slow

MESSAGES, SLOTS, ANSWERED = 12, 3, 5
CAPTURE = (sys.executable, "manage.py", "capture_baseline", "--agents", "ada", "--dimensions", "adherence", "--json")
SETUP = f"""
from tests.factories import make_agent, talk
talk(make_agent("ada"), [f"line {{n}}" for n in range({MESSAGES})])
"""


@pytest.fixture(scope="module")
def template(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with one agent that said twelve things."""
    path = Path(shutil.copy(migrated_file, tmp_path_factory.mktemp("resume") / "template.sqlite3"))
    done = zygote.run(
        script(SETUP),
        cwd=ROOT,
        env=environment(path, None),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def database(template: Path, tmp_path: Path) -> Path:
    path = tmp_path / "db.sqlite3"
    shutil.copy(template, path)
    return path


@pytest.fixture
def server() -> Iterator[LLMServer]:
    """A judge that gives 5, to the first calls at once; the others wait for `release`."""
    with LLMServer() as running:
        five = answers(lambda claim: 5)
        running.respond = lambda body: {**five(body), "hold": running.calls > ANSWERED}
        yield running


@contextmanager
def started(command: Sequence[str], database: Path, server: LLMServer) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = zygote.Popen(
        command,
        cwd=ROOT,
        env=environment(database, server, LLM_MAX_CONCURRENCY=str(SLOTS)),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def scored(database: Path) -> int:
    return int(rows(database, "select count(distinct message_id) from evaluation_scores where status = 'scored'")[0][0])


def run_in_the_middle(server: LLMServer, database: Path) -> None:
    """Wait until the first answers are stored and all slots wait for the server."""
    eventually(lambda: server.inflight == SLOTS and scored(database) == ANSWERED, "the middle of the run")


def finish(database: Path, server: LLMServer) -> subprocess.CompletedProcess[str]:
    """The same command again, with a server that answers everything."""
    server.release()
    return zygote.run(
        CAPTURE,
        cwd=ROOT,
        env=environment(database, server, LLM_MAX_CONCURRENCY=str(SLOTS)),
        capture_output=True,
        text=True,
        timeout=120,
    )


def check_whole(database: Path) -> None:
    """One run, completed, every message judged once by every proposition."""
    assert rows(database, "select status, lease_owner from evaluation_runs") == [("completed", "")]
    counted = rows(database, "select message_id, proposition_id, count(*), status from evaluation_scores group by 1, 2")
    assert len(counted) == MESSAGES * 3
    assert {(count, status) for _, _, count, status in counted} == {(1, "scored")}
    assert len(rows(database, "select 1 from baselines")) == 1


def test_killed_in_the_middle_the_same_command_finishes_and_judges_nothing_twice(
    database: Path, server: LLMServer
) -> None:
    with started(CAPTURE, database, server) as process:
        run_in_the_middle(server, database)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    stored = rows(database, "select id, judged_at, call_id from evaluation_scores where status = 'scored' order by id")
    assert rows(database, "select status from evaluation_runs") == [("running",)]
    assert server.calls == ANSWERED + SLOTS

    again = finish(database, server)

    assert again.returncode == 0, again.stderr
    check_whole(database)
    assert server.calls == MESSAGES + SLOTS, "what is needed, and what was in flight at the kill"
    kept = rows(database, "select id, judged_at, call_id from evaluation_scores order by id")
    assert set(stored) < set(kept), "what was stored before the kill was not touched"
    assert rows(database, "select attempt from evaluation_runs") == [(2,)]
    assert len(rows(database, "select 1 from llm_calls where status = 'ok'")) == MESSAGES
