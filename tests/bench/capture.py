"""A whole capture: 16 agents in all five dimensions and their 11 channels, from the first row to the last baseline."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from typing import Any

DIMENSIONS = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")
CONCURRENCY = 20


def capturing(url: str, server: Any, *, latency: float, repeats: int = 3) -> Iterator[tuple[str, str, str]]:
    """Rows for the table; `server` answers every question after `latency` seconds and imitates the prompt cache."""
    from django.core.management import call_command
    from django.test import override_settings

    from agents.models import Agent
    from evaluation.runs.capture import capture, estimated, spent_on
    from evaluation.runs.planning import RunSpec, estimate_before

    call_command("seed", stdout=io.StringIO())
    agents = list(Agent.objects.filter(is_active=True).order_by("slug"))

    def specs(seed: int) -> list[RunSpec]:
        return [RunSpec(agent=agent, dimensions=DIMENSIONS, is_baseline=True, seed=seed) for agent in agents]

    with override_settings(JUDGE_BASE_URL=url):
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
            used = spent_on(results)
            ratios.append(walls[-1] / (used.calls / CONCURRENCY * latency))
            if seed == 0:
                first = used
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
