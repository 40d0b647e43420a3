"""Several workers and one schedule: it is fired once."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.schedules import fire_if_due
from tests import zygote
from tests.evaluation.change.drift.scheduling import make_schedule
from tests.evaluation.conftest import PropositionFolder
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


# -- two workers
SETUP = """
import django; django.setup()
from django.utils import timezone
from evaluation.models import EvaluationSchedule
from agents.personas.persona import save_persona
from agents.models import Agent
for n in range(10):
    save_persona(agent=Agent(slug=f"agent-{n}", display_name="A", system_prompt="You are A."), traits=[], note="test")
for n in range(5):
    EvaluationSchedule.objects.create(name=f"s{n}", dimensions=["adherence"], next_at=timezone.now())
"""
WORKER = """
import sys, django; django.setup()
from evaluation.runs.schedules import work_one
print("ready", flush=True); sys.stdin.readline()
done = 0
while work_one(owner="test"):
    done += 1
print(done)
"""


@pytest.mark.slow
def test_two_processes_fire_no_schedule_twice(database_file: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": f"sqlite:///{database_file}",
        "DJANGO_SETTINGS_MODULE": "project.settings",
    }
    environment |= {"DEBUG": "1", "JUDGE_MODEL": "offline:lexical-1", "SENTRY_DSN": ""}
    root, pipe = settings.BASE_DIR, subprocess.PIPE
    zygote.run([sys.executable, "-c", SETUP], env=environment, cwd=root, check=True)
    workers = [
        zygote.Popen([sys.executable, "-c", WORKER], env=environment, cwd=root, stdin=pipe, stdout=pipe, text=True)
        for _ in range(2)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    with closing(sqlite3.connect(database_file)) as database:
        made = database.execute("select schedule_id, agent_id, count(*) from evaluation_runs group by 1, 2").fetchall()
    assert [count for *_, count in made] == [1] * 50


@pytest.mark.service
@pytest.mark.django_db(transaction=True)
def test_ten_threads_fire_a_schedule_once_on_postgresql(propositions: PropositionFolder) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL names no PostgreSQL: threads cannot share an in-memory SQLite")
    propositions.claims("adherence/_default.yaml", "voice")
    for n in range(5):
        make_agent(f"agent-{n}")
    schedule = make_schedule()

    def one(number: int) -> bool:
        try:
            return fire_if_due(schedule) is not None
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        fired = list(pool.map(one, range(10)))

    assert fired.count(True) == 1
    assert EvaluationRun.objects.filter(schedule=schedule).count() == 5
    assert not EvaluationScore.objects.exists()
