"""Experiments whose process is killed: real processes on a database of the configured kind."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.debates.test_killed import Installation

MAKE = """
import json, sys, django; django.setup()
from agents.models import Agent
from evaluation.experiments.play import start_experiment
from tests.evaluation.experiments.test_play import scenario
from tests.factories import make_agent
cast = [f"agent-{n}" for n in range(6)]
if not Agent.objects.exists():
    for slug in cast:
        make_agent(slug, sample_lines=[f"{slug} says number {n}, as always." for n in range(5)])
print(json.dumps(start_experiment(scenario(environments=3, population=None, cast=cast)).pk))
"""
PLAY = """
import os, signal, sys, django; django.setup()
from django.db.backends.signals import connection_created
from evaluation.experiments.play import judge_here, play
from evaluation.experiments.report import report
from evaluation.models import Experiment
key, writes = int(sys.argv[1]), int(sys.argv[2])

def count(execute, sql, params, many, context):
    global writes
    if sql.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE")):
        writes -= 1
        if writes == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return execute(sql, params, many, context)

def watch(connection, **_):
    if count not in connection.execute_wrappers:
        connection.execute_wrappers.append(count)

connection_created.connect(watch)
experiment = play(Experiment.objects.get(pk=key))
judge_here(experiment)
experiment.refresh_from_db()
report(experiment)
"""
LOOK = """
import json, re, sys, django; django.setup()
from agents.models import Agent, Message, Run
from evaluation.experiments.play import evaluations
from evaluation.models import Experiment
experiment = Experiment.objects.get(pk=int(sys.argv[1]))
environments = list(experiment.environments.order_by("pk"))
names = dict(Agent.objects.values_list("pk", "display_name"))
shown = dict(experiment.report, id=0)
shown["rows"] = [row for row in shown["rows"] if row["measure"] != "seconds"]  # which no two runs share
print(json.dumps({
    "seats": [[one.arm, one.number, [names[pk] for pk in one.agents]] for one in environments],
    "said": [
        [[names.get(agent, ""), text] for agent, text in Message.objects.filter(channel=one.channel_id).order_by("position").values_list("agent", "text")]
        for one in environments
    ],
    "turns": Run.objects.filter(channel__in=[one.channel_id for one in environments]).count(),
    "evaluations": evaluations(experiment).count(),
    "report": re.sub(r"talk-[0-9]+-", "talk-", json.dumps(shown)),
}))
"""  # noqa: E501


@pytest.fixture
def installation(tmp_path: Path, database_url: str) -> Iterator[Installation]:
    installed = Installation(tmp_path, database_url, WORKER_THREADS="1")
    yield installed
    installed.plumbline.stop()


def test_killed_at_random_moments_an_experiment_comes_to_the_same_report(installation: Installation) -> None:
    calm, killed = installation.asks(MAKE), installation.asks(MAKE)
    start: Callable[..., Any] = installation.plumbline.start
    assert start("calm", "-c", PLAY, str(calm), "0").wait(120) == 0, installation.plumbline.log_of("calm")

    chance, deaths, writes = random.Random(20), 0, 0
    while deaths < 20:
        writes = chance.randint(1, 60) + 4 * deaths
        ended = start("killed", "-c", PLAY, str(killed), str(writes)).wait(120)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL, installation.plumbline.log_of("killed")
        deaths += 1
    assert start("last", "-c", PLAY, str(killed), "0").wait(120) == 0, installation.plumbline.log_of("last")

    expected, result = installation.asks(LOOK, calm), installation.asks(LOOK, killed)
    assert deaths >= 5
    assert {key: (expected[key], result[key]) for key in expected if expected[key] != result[key]} == {}
