"""A simulation that is killed loses nothing and doubles nothing: a real process, a real server, one database file."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests import zygote
from tests.evaluation.processes import ROOT, environment, eventually, rows, script
from tests.evaluation.simulation.acting import acts
from tests.llm_server import LLMServer

SETUP = """
from tests.factories import make_agent
make_agent("ada")
"""
SIMULATION = """
from agents.models import Agent
from evaluation.simulation.conversations import simulate
from evaluation.simulation.situations import Situation
lines = tuple(f"Line {n}." for n in range(3))
done = simulate(agent=Agent.objects.get(), situations=[Situation(id=f"s{n}", lines=lines) for n in range(3)])
print(done.id, done.complete, done.resumed, done.messages)
"""
SAID, CALLS_PER_LINE, LINES = 4, 2, 9


def acting_in(database: Path, server: LLMServer) -> dict[str, str]:
    return environment(database, None, ACTOR_BASE_URL=server.url, ACTOR_MODEL="test-model")


def finished(code: str, database: Path, server: LLMServer) -> str:
    done = zygote.run(
        script(code), cwd=ROOT, env=acting_in(database, server), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_killed_simulation_resumes_the_turn_in_which_it_stopped(database_file: Path) -> None:
    """The fifth line's turn hangs at the server when the process is killed, after the agent said something in it."""
    database = database_file
    stop = SAID * CALLS_PER_LINE + 1
    with LLMServer() as server:
        answering = acts(lambda body: f"Answer {server.calls}.")
        server.respond = lambda body: {**(answering(body) or {}), "hold": server.calls > stop}
        finished(SETUP, database, server)
        process = zygote.Popen(
            script(SIMULATION),
            cwd=ROOT,
            env=acting_in(database, server),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            eventually(lambda: server.inflight == 1 and server.calls == stop + 1, "the middle of the simulation")
            process.send_signal(signal.SIGKILL)
            process.wait(60)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()
        before = rows(database, "select id, text from messages order by id")
        assert len(before) == 2 * SAID + 2
        assert rows(database, "select count(*) from runs where status = 'running'") == [(1,)]

        server.release()
        again = finished(SIMULATION, database, server)

    simulation, complete, resumed, messages = again.split()
    assert (complete, resumed, messages) == ("True", "True", str(LINES))
    assert rows(database, "select id, text from messages order by id")[: len(before)] == before
    said = rows(
        database,
        "select json_extract(tags, '$.simulation'), json_extract(tags, '$.situation'), json_extract(tags, '$.turn'),"
        " agent_id is null, count(*) from messages group by 1, 2, 3, 4",
    )
    assert len(said) == 2 * LINES
    assert {(tag, count) for tag, *_, count in said} == {(simulation, 1)}
    assert rows(database, "select status, count(*) from runs group by 1") == [("completed", LINES)]
    assert server.calls == LINES * CALLS_PER_LINE + 1, "what is needed, and what was in flight at the kill"
