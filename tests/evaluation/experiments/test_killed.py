"""An experiment whose process is killed again and again: real processes on a database of the configured kind."""

from __future__ import annotations

import hashlib
import json
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests import zygote
from tests.evaluation.experiments.playing import scored
from tests.llm_server import LLMServer, example_of
from tests.machinery import THOROUGH, Plumbline

MAKE = """
import json, sys, django; django.setup()
from evaluation.experiments.starting import start_experiment
from tests.evaluation.experiments.playing import scenario
print(json.dumps(start_experiment(scenario(environments=3, **json.loads(sys.argv[1]))).pk))
"""
PLAY = """
import os, signal, sys, django; django.setup()
from django.db.backends.signals import connection_created
from evaluation.experiments.measuring import judge_here
from evaluation.experiments.play import play
from evaluation.experiments.report import report
from evaluation.experiments.models import Experiment
key, last = int(sys.argv[1]), int(sys.argv[2])
writes = 0

def count(execute, sql, params, many, context):
    global writes
    if sql.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE")):
        writes += 1
        if writes == last:
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
print(f"writes: {writes}")
"""
LOOK = """
import json, re, sys, django; django.setup()
from agents.models import Agent, Message, Run
from evaluation.experiments.measuring import evaluations
from evaluation.experiments.models import Experiment
from evaluation.models import EvaluationScore
experiment = Experiment.objects.get(pk=int(sys.argv[1]))
environments = list(experiment.environments.order_by("pk"))
names = dict(Agent.objects.values_list("pk", "display_name"))
shown = dict(experiment.report, id=0)
shown["rows"] = [row for row in shown["rows"] if row["measure"] not in ("seconds", "tokens")]  # which no two runs share
judged = evaluations(experiment)
print(json.dumps({
    "seats": [[one.arm, one.number, [names[pk] for pk in one.agents]] for one in environments],
    "said": [
        [[names.get(agent, ""), text] for agent, text in Message.objects.filter(channel=one.channel_id).order_by("position").values_list("agent", "text")]
        for one in environments
    ],
    "personas": list(Agent.objects.filter(slug__startswith=f"x{experiment.pk}-").order_by("pk").values_list("system_prompt", flat=True)),
    "turns": Run.objects.filter(channel__in=[one.channel_id for one in environments]).count(),
    "evaluations": [judged.count(), judged.values("environment_link__environment", "agent", "channel", "hard").distinct().count()],
    "judgements": EvaluationScore.objects.filter(evaluation_run__in=judged).count(),
    "state": experiment.state,
    "report": re.sub(r"talk-[0-9]+-", "talk-", json.dumps(shown)),
}))
"""  # noqa: E501
THREADS = 4
DEATHS = 6 if THOROUGH else 3
EQUAL = {
    "population": {"size": 6, "about": "people of one street"},
    "arms": [{"name": "north"}, {"name": "south"}],
}


class Installation:
    """Processes on one database, offline or with a model server."""

    def __init__(self, folder: Path, database: str, server: LLMServer | None = None, **environment: str) -> None:
        url, model = (server.url, "test-model") if server else ("", "")
        self.plumbline = Plumbline(
            folder,
            {
                "DJANGO_SETTINGS_MODULE": "project.settings",
                "DATABASE_URL": database,
                "CELERY_BROKER_URL": "",
                "SENTRY_DSN": "",
                "ANTHROPIC_API_KEY": "sk-test-secret" if server else "",
                "ACTOR_BASE_URL": url,
                "JUDGE_BASE_URL": url,
                "ACTOR_MODEL": model or "offline:scripted-1",
                "JUDGE_MODEL": model or "offline:lexical-1",
                "WORKER_MOST_LOSSES": "1000",
                "WORKER_THREADS": "4",
                **environment,
            },
        )

    def asks(self, code: str, *arguments: Any) -> Any:
        """Return what a script prints, as JSON."""
        done = zygote.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=self.plumbline.environment, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def installation(tmp_path: Path, database_url: str, llm_server: LLMServer) -> Iterator[Installation]:
    models = {"ACTOR_MODEL": "plain-model", "JUDGE_MODEL": "judge-model"}
    installed = Installation(
        tmp_path, database_url, llm_server, WORKER_THREADS=str(THREADS), LLM_MAX_CONCURRENCY="4", **models
    )
    yield installed
    installed.plumbline.stop()


def question(body: dict[str, Any]) -> str:
    """A request without what differs between two experiments that ask the same: fences, times, numbers of rows, ids of calls."""
    own = r"\b[0-9a-f]{12}\b|\d{4}-\d\d-\d\d \d\d:\d\d|toolu_\w+|talk-\d+-|\bx\d+-"
    return re.sub(own, "", json.dumps(body, sort_keys=True))


def respond(body: dict[str, Any]) -> dict[str, Any]:
    """Actors and a judge whose answers follow from what they are asked."""
    prompt, text = question(body), json.dumps(body["messages"])
    draw = int(hashlib.sha256(prompt.encode()).hexdigest(), 16) % 1_000
    if body["model"] == "judge-model":
        return {"json": scored(example_of(body["output_config"]["format"]["schema"]), prompt, draw)}
    if "tools" not in body:
        return {"json": {"persona": f"You are one of the street, number {draw}, and build walls."}}
    if "tool_result" in text:
        return {"text": "done"}
    channel = re.search(r"talk-\d+-\d+", text)
    assert channel is not None
    return {"tool_calls": [("send_message", {"channel": channel.group(), "text": f"Number {draw}: I would wait."})]}


def differing(expected: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {key: (expected[key], result[key]) for key in expected if expected[key] != result[key]}


def killed_again_and_again(installation: Installation, experiment: int, moments: Sequence[int]) -> None:
    """Play it in one process after the other, each killed before so many writes; then in one that ends it."""
    start: Callable[..., Any] = installation.plumbline.start
    for writes in moments:
        ended = start("killed", "-c", PLAY, str(experiment), str(writes)).wait(120)
        assert ended == -signal.SIGKILL, installation.plumbline.log_of("killed")
    assert start("last", "-c", PLAY, str(experiment), "0").wait(120) == 0, installation.plumbline.log_of("last")


def played_in_peace(installation: Installation, experiment: int) -> int:
    """Play it in one process; returns how often that writes."""
    start: Callable[..., Any] = installation.plumbline.start
    assert start("calm", "-c", PLAY, str(experiment), "0").wait(120) == 0, installation.plumbline.log_of("calm")
    return int(re.findall(r"writes: (\d+)", installation.plumbline.log_of("calm"))[-1])


def moments(worker_losses: int, writes: int) -> list[int]:
    """When to die so often before so much is written: while personas are written, people talk, evaluations are planned and judged."""
    chance = random.Random(20)
    return [chance.randint(1, writes // worker_losses) for _ in range(worker_losses)]


@pytest.mark.slow
def test_killed_while_models_think_only_the_lost_calls_are_made_again(
    installation: Installation, llm_server: LLMServer
) -> None:
    llm_server.respond = respond
    calm = installation.asks(MAKE, json.dumps(EQUAL))
    killed = installation.asks(MAKE, json.dumps(EQUAL))
    writes = played_in_peace(installation, calm)
    wanted = Counter(map(question, llm_server.bodies))
    llm_server.bodies.clear()

    killed_again_and_again(installation, killed, moments(DEATHS, writes))

    asked = Counter(map(question, llm_server.bodies))
    assert asked.keys() == wanted.keys()
    assert set(wanted.values()) == {1}
    assert asked.total() - wanted.total() <= DEATHS * THREADS, "a call in flight, or an answer that was not stored yet"
    assert differing(installation.asks(LOOK, calm), installation.asks(LOOK, killed)) == {}
