"""A whole capture: 16 agents in all five dimensions and their 11 channels, from the first row to the last baseline."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from agents.kit.running import side_by_side

DIMENSIONS = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
CONCURRENCY = 20
WORKER_THREADS = 4


def capturing(url: str, server: Any, *, latency: float, repeats: int = 3) -> Iterator[tuple[str, str, str]]:
    """Rows for the table; `server` answers every question after `latency` seconds and imitates the prompt cache."""
    from django.core.management import call_command
    from django.test import override_settings

    from agents.models import Agent
    from evaluation.runs.estimate import estimate_before, estimated
    from evaluation.runs.execute import capture
    from evaluation.runs.spec import RunSpec
    from evaluation.runs.summary import spent_on

    call_command("seed", stdout=io.StringIO())
    agents = list(Agent.objects.filter(is_active=True).order_by("slug"))

    def specs(seed: int) -> list[RunSpec]:
        return [RunSpec(agent=agent, dimensions=DIMENSIONS, is_baseline=True, seed=seed) for agent in agents]

    with override_settings(JUDGE_BASE_URL=url, ACTOR_BASE_URL=url):
        begun = time.process_time()
        before = estimated(estimate_before(specs(0)) or [])
        estimating = time.process_time() - begun
        walls, cpus, ratios = [], [], []
        for seed in range(repeats):
            server.program({"latency": latency}, cache={"minimum": 4096, "delay": latency})
            wall, cpu = time.perf_counter(), time.process_time()
            results = capture(specs(seed))
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
            used = spent_on(result.summary for result in results)
            ratios.append(walls[-1] / (used.calls / CONCURRENCY * latency))
            if seed == 0:
                first = used
        worked = [_one_worker(agents, specs(repeats + n)[0], server, latency=latency) for n in range(repeats)]
    middle = repeats // 2
    scored = sum(d.scored for r in results for d in r.summary.dimensions.values())
    yield (
        f"capture of {len(agents)} agents x {len(DIMENSIONS)} dimensions, and their channels",
        f"{sorted(walls)[middle]:.1f} s ({min(walls):.1f} to {max(walls):.1f}), {sorted(ratios)[middle]:.2f} x calls / "
        f"concurrency x latency ({min(ratios):.2f} to {max(ratios):.2f})",
        "<= 1.3 x",
    )
    yield (
        "   calls, judgements scored, CPU of our process",
        f"{first.calls} calls, {scored:,} scored, {sorted(cpus)[middle]:.1f} s CPU "
        f"({sorted(cpus)[middle] / first.calls * 1000:.1f} ms per call)",
        f"{before.calls} estimated",
    )
    yield (
        "   tokens in, read from the prompt cache (imitated, 4,096 at least)",
        f"{first.input_tokens:,}, {first.cache_read_share or 0:.0%}",
        f"{before.input_tokens:,} estimated, in {estimating:.1f} s CPU",
    )
    yield (
        f"the same queued, judged by one worker with {WORKER_THREADS} threads",
        f"{sorted(worked)[middle][0]:.2f} x calls / concurrency x latency ({min(worked)[0]:.2f} to {max(worked)[0]:.2f}), "
        f"{sorted(cpu for _, cpu, _ in worked)[middle] * 1000:.1f} ms CPU per call",
        "<= 1.25 x",
    )
    waits = sorted(wait for _, _, found in worked for wait in found)
    yield (
        "   an actor's calls beside it, one every 0.3 s",
        f"{waits[len(waits) // 2]:.2f} s, at most {waits[-1]:.2f} s of {len(waits)}",
        "<= 0.6 s",
    )


def _one_worker(agents: Any, spec: Any, server: Any, *, latency: float) -> tuple[float, float, list[float]]:
    """Queue the capture and have one worker do it; returns its ratio to the floor, CPU seconds a call, and what an actor's calls took."""
    from agents.kit.llm import Block, Label, LLMRequest, Turn, complete
    from agents.kit.models import LLMCall, WorkerHeartbeat
    from agents.kit.work.queues import work_queues
    from agents.kit.work.worker import Worker
    from tests.evaluation.measuring import queue_baseline

    queue_baseline(agents=agents, spec=spec)
    server.program({"latency": latency}, cache={"minimum": 4096, "delay": latency})
    request = LLMRequest(
        role="actor",
        task="bench",
        model="claude-haiku-5-5",
        system=(Block("You are a person who waits for an answer."),),
        turns=(Turn("user", (Block("Are you there?"),)),),
        label=Label(purpose="bench"),
        max_tokens=50,
    )
    waits: list[float] = []
    done = threading.Event()

    def actor() -> None:
        while not done.wait(0.3):
            asked = time.perf_counter()
            complete(request, deadline=10)
            waits.append(time.perf_counter() - asked)

    before = LLMCall.objects.filter(purpose="evaluation").count()
    worker = Worker(WorkerHeartbeat.Kind.WORK, work_queues())
    beside = threading.Thread(target=actor)
    wall, cpu = time.perf_counter(), time.process_time()
    beside.start()
    try:
        side_by_side([partial(worker.work_until_stopped, None, once=True, poll=0.1)] * WORKER_THREADS, WORKER_THREADS)
    finally:
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        done.set()
        beside.join()
    calls = LLMCall.objects.filter(purpose="evaluation").count() - before
    return wall / ((calls + len(waits)) / CONCURRENCY * latency), cpu / calls, waits
