"""Experiments: what a turn costs in one beside the same turn alone, how near many come to the floor, and what more workers bring."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

AGENTS, STEPS = 5, 4  # a quarter of the paper's plan: 28 environments an arm
QUARTER, ALONE, MANY = 28, 7, 12  # environments of an arm: played, taken one by one, played at 200 ms
WORKERS, THREADS, BY_WORKERS, WORKERS_LATENCY = (
    (1, 2, 4),
    4,
    12,
    0.5,
)  # which four processes and a server can spend waiting
NO_STAGES: dict[str, Any] = {"stages": []}


def experimenting(url: str, server: Any, *, latency: float) -> Iterator[tuple[str, str, str]]:
    """Rows for the table. `server` answers at once, then after `latency` seconds."""
    from django.db import connection
    from django.test import override_settings

    with override_settings(ACTOR_BASE_URL=url, JUDGE_BASE_URL=url, ACTOR_MODEL="claude-haiku-5-5"):
        yield from _beside_turns_alone(server)
        yield from _many(server, latency)
    if connection.vendor == "postgresql":
        yield from _workers(url, server)
    else:
        yield "several workers", "not measured", "on PostgreSQL: --database"


def _beside_turns_alone(server: Any) -> Iterator[tuple[str, str, str]]:
    from evaluation.experiments.play import play

    server.program({}, speaks="I would start with the smallest version.")
    _one_by_one(2)  # whatever is loaded at the first use
    with counting() as statements:
        before = _one_by_one(ALONE)
        alone, n_alone = before, statements[0] / (ALONE * AGENTS * STEPS)
    experiment, turns = _experiment(QUARTER), 2 * QUARTER * AGENTS * STEPS
    grown: list[float] = []
    with counting() as statements:
        cpu = time.process_time()
        play(experiment, progress=lambda _: grown.append(_megabytes()))
        cpu = time.process_time() - cpu
        n_played = statements[0] / turns
    alone = (before + _one_by_one(ALONE)) / 2
    mine = cpu / turns
    yield (
        f"a turn in an experiment: {turns:,} turns, 0 ms a call",
        f"{mine * 1000:.1f} ms CPU, {mine / alone:.2f} x that of {alone * 1000:.1f} ms alone, its evaluations planned",
        "<= 1.5 x",
    )
    yield (
        "   statements a turn",
        f"{n_played:.1f}, alone {n_alone:.1f}",
        "a few more",
    )
    begun = grown[len(grown) // 10]
    yield "   memory, from a tenth of its environments to all", f"+{grown[-1] - begun:.0f} MB", "<= 50 MB"


def _many(server: Any, latency: float) -> Iterator[tuple[str, str, str]]:
    from django.conf import settings

    from evaluation.experiments.play import play

    server.program({"latency": latency}, speaks="I would start with the smallest version.")
    experiment, before = _experiment(MANY), server.stats()["calls"]
    wall, cpu = time.perf_counter(), time.process_time()
    play(experiment)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    calls, slots = server.stats()["calls"] - before, settings.LLM_MAX_CONCURRENCY
    waiting = calls * latency / slots
    yield (
        f"{2 * MANY} environments at {latency * 1000:.0f} ms, {slots} calls at a time",
        f"{wall:.2f} s, {wall / max(waiting, cpu):.2f} x the floor",
        f"<= 1.4 x the larger of {waiting:.1f} s waiting and {cpu:.1f} s CPU",
    )


def _workers(url: str, server: Any) -> Iterator[tuple[str, str, str]]:
    from agents.kit.models import WorkerHeartbeat

    server.program({"latency": WORKERS_LATENCY}, speaks="I would start with the smallest version.")
    own = {"ACTOR_BASE_URL": url, "JUDGE_BASE_URL": url, "ACTOR_MODEL": "claude-haiku-5-5", "DEBUG": "1"}
    command = [sys.executable, "manage.py", "work", "--queues", "experiments", "--threads", str(THREADS)]
    command += ["--poll", "0.1", "--skip-checks"]
    took: dict[int, float] = {}
    for workers in WORKERS:
        known = WorkerHeartbeat.objects.count()
        processes = [
            subprocess.Popen(command, env={**os.environ, **own}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(workers)
        ]
        try:
            while WorkerHeartbeat.objects.count() < known + workers:
                time.sleep(0.1)
            experiment = _experiment(BY_WORKERS, steps=1)
            while experiment.measured_at is None:
                time.sleep(0.1)
                experiment.refresh_from_db()
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)
        rows = list(experiment.environments.values_list("started_at", "finished_at"))
        took[workers] = (max(end for _, end in rows) - min(begin for begin, _ in rows)).total_seconds()
    for workers, floor in ((2, 1.8), (4, 3.0)):
        yield (
            f"{workers} workers with {THREADS} threads, {2 * BY_WORKERS} environments at {WORKERS_LATENCY * 1000:.0f} ms",
            f"{took[workers]:.1f} s, {took[1] / took[workers]:.2f} x as fast as one ({took[1]:.1f} s)",
            f">= {floor} x",
        )


def _experiment(environments: int, *, steps: int = STEPS) -> Any:
    """An experiment whose people have their personas: those are the templates', so that turns alone are measured."""
    from evaluation.experiments.models import Experiment
    from evaluation.experiments.scenario import Scenario
    from evaluation.experiments.starting import start_experiment

    scenario = Scenario.model_validate(
        {
            "name": "bench",
            "population": {"size": environments * AGENTS, "about": "customers of a shop"},
            "environments": environments,
            "agents": AGENTS,
            "steps": [{"says": f"Question {n}: what should the street buy together?"} for n in range(steps)],
            "arms": [{"name": "one", "overrides": NO_STAGES}, {"name": "two", "overrides": NO_STAGES}],
            "dimensions": [{"id": "adherence", "hard": True}, {"id": "fluency"}, {"id": "convergence"}],
        }
    )
    experiment = start_experiment(scenario)
    Experiment.objects.filter(pk=experiment.pk).update(status=Experiment.Status.COMPLETED)
    experiment.refresh_from_db()
    return experiment


def _one_by_one(environments: int) -> float:
    """CPU seconds a turn of the same turns in channels of the same kind, one after the other and outside an experiment."""
    from agents.models import Agent
    from agents.turn.orchestrator import finish_turn, start_turn
    from agents.turn.receive import receive_message

    experiment = _experiment(environments)
    cpu = time.process_time()
    for environment in experiment.environments.filter(arm="one").select_related("channel").order_by("pk"):
        agents = list(Agent.objects.filter(pk__in=environment.agents))
        for step in experiment.scenario["steps"]:
            said = receive_message(channel=environment.channel, outsider="Facilitator", text=step["says"])
            for agent in agents:
                run = start_turn(agent=agent, channel=environment.channel, trigger=said, overrides=NO_STAGES)
                assert finish_turn(run).status == "completed", run.error
    cpu = time.process_time() - cpu
    experiment.delete()
    return cpu / (environments * AGENTS * STEPS)


@contextmanager
def counting() -> Iterator[list[int]]:
    """The number of statements of all threads inside, as the only item of a list."""
    from django.db import connection
    from django.db.backends.signals import connection_created

    counted = [0]

    def count(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        counted[0] += 1
        return execute(sql, params, many, context)

    def watch(connection: Any, **_: Any) -> None:
        if count not in connection.execute_wrappers:
            connection.execute_wrappers.append(count)

    connection_created.connect(watch)
    watch(connection)
    try:
        yield counted
    finally:
        connection_created.disconnect(watch)
        connection.execute_wrappers.remove(count)


def _megabytes() -> float:
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
