"""An evaluation that ends in the middle loses nothing: the same command takes it up. Real processes, one database file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.evaluation.test_resume import (
    ANSWERED,
    MESSAGES,
    ROOT,
    database,
    environment,
    rows,
    run_in_the_middle,
    scored,
    server,
    started,
    template,
)
from tests.llm_server import LLMServer

__all__ = ["database", "server", "template"]  # fixtures

EVALUATE = ("manage.py", "evaluate", "--agents", "ada", "--dimensions", "adherence", "--json")


def test_ctrl_c_says_how_to_go_on_and_the_same_command_asks_only_the_rest(database: Path, server: LLMServer) -> None:
    with started(EVALUATE, database, server) as process:
        run_in_the_middle(server, database)
        process.send_signal(signal.SIGINT)
        out, complaint = process.communicate(timeout=120)

    assert (process.returncode, out) == (130, "")
    assert "run the same command again to go on with the rest" in complaint
    assert scored(database) == ANSWERED

    server.release()
    again = subprocess.run(
        [sys.executable, *EVALUATE],
        cwd=ROOT,
        env=environment(database, server),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["summary"]["judgements"]["scored"] == 3 * MESSAGES
    assert rows(database, "select count(*) from llm_calls where status = 'ok'") == [(MESSAGES,)], (
        "nothing is judged twice"
    )
    assert rows(database, "select status, attempt from evaluation_runs") == [("completed", 2)]
