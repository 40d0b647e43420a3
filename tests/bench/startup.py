"""How long processes take from nothing to done: commands, and a cold process that judges."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPEATS = 5
DJANGO = "import django; django.setup()"
JUDGE_80 = f"""
{DJANGO}
from tests.bench.judging import judge
_, _, verdicts = judge(1)
assert all(verdict.status == "scored" for verdict in verdicts) and len(verdicts) == 80
"""
SPEAKER = """
from agents.models import Agent, Channel
from agents.personas.persona import save_persona
agent = Agent(slug="early", display_name="Early", system_prompt="You are Early, a dry and careful clerk. " * 50)
save_persona(agent=agent, note="bench")
for slug in ("off", "gated"):
    Channel.objects.create(slug=slug, name=slug).memberships.create(agent=agent)
"""


def starting(url: str, server: Any, *, folder: Path, latency: float) -> Iterator[tuple[str, str, str]]:
    """Rows for the table: medians of five processes, compiled, on SQLite."""
    from tests.bench.gate import VERDICT

    server.program({"latency": latency, "json": VERDICT})
    database = folder / "startup.sqlite3"
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "DATABASE_URL": f"sqlite:///{database}",
        "JUDGE_BASE_URL": url,
        "TRAIT_PROPOSITIONS": "false",
    }

    def seconds(*command: str, repeats: int = REPEATS, fresh: bool = False) -> list[float]:
        """Of a process each, after one that compiles."""
        took = []
        for _ in range(repeats + 1):
            if fresh:
                database.unlink(missing_ok=True)
            begun = time.perf_counter()
            done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)
            took.append(time.perf_counter() - begun)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)[:80]}: {done.stderr[-300:]}")
        return sorted(took[1:])

    def row(what: str, took: Sequence[float], floor: str) -> tuple[str, str, str]:
        return what, f"{took[len(took) // 2]:.2f} s ({took[0]:.2f} to {took[-1]:.2f})", floor

    bare = seconds("-c", "import django, pydantic, anthropic, anthropic.resources.messages")
    yield row("bare imports: django, pydantic, anthropic", bare, "-")
    yield row("manage.py --help", seconds("manage.py", "--help"), "<= 0.6 s")
    yield row("manage.py migrate, empty database", seconds("manage.py", "migrate", "-v0", fresh=True), "<= 4 s")
    seconds("manage.py", "shell", "-v0", "-c", SPEAKER, repeats=0)
    say = ("manage.py", "say", "early")
    yield row("manage.py say, everything off", seconds(*say, "off", "Filed."), "<= 0.9 s")
    seconds("manage.py", "configure", "early", "gate_mode=enforce", "gate_adherence_enabled=true", repeats=0)
    gated = seconds(*say, "gated", "Filed.")
    yield row(f"manage.py say, one dimension gated at {latency * 1000:.0f} ms", gated, "<= 1.6 s")
    yield row(
        f"a cold process judges 80 times one by one at {latency * 1000:.0f} ms", seconds("-c", JUDGE_80), "<= 2.1 s"
    )
