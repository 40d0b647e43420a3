"""An installation with two evaluations in its queue, for tests of the processes that work it off."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.evaluation.judging import answers
from tests.llm_server import LLMServer
from tests.machinery import Plumbline

# Two agents with three lines each; one evaluation per agent.
QUEUE = """
from evaluation.runs.planning import create_run, make_plan
from evaluation.runs.planning import RunSpec
from tests.factories import make_agent, make_channel, talk
for slug in ("ada", "bob"):
    agent = make_agent(slug)
    talk(agent, ["one", "two", "three"], channel=make_channel(f"room-of-{slug}"))
    create_run(make_plan(RunSpec(agent=agent, dimensions=("adherence",))))
"""


@contextmanager
def kind_judge() -> Iterator[LLMServer]:
    """A judge on loopback that scores everything 7."""
    with LLMServer() as server:
        server.respond = answers(lambda claim: 7)
        yield server


@contextmanager
def installed(folder: Path, database: Path, judge: LLMServer, **environment: str) -> Iterator[Plumbline]:
    """The installation, its processes ended afterwards; `environment` is set over what all such tests need."""
    installation = Plumbline(
        folder,
        {
            "DATABASE_URL": f"sqlite:///{database}",
            "CELERY_BROKER_URL": "",
            "JUDGE_BASE_URL": judge.url,
            "JUDGE_MODEL": "test-model",
            "PROPOSITION_DIRS": "",
            "SENTRY_DSN": "",
            **environment,
        },
    )
    installation.start_and_wait("queue", "-c", "import django\ndjango.setup()\n" + QUEUE)
    try:
        yield installation
    finally:
        installation.stop()


def statuses_in(database: Path) -> Callable[[], list[str]]:
    """Looks at how far the evaluations are."""

    def look() -> list[str]:
        with sqlite3.connect(database, timeout=20) as connection:
            return [row[0] for row in connection.execute("select status from evaluation_runs order by id")]

    return look
