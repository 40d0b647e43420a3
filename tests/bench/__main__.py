"""``make bench``: how fast judging and importing are, against a loopback server with a fixed latency.

Prints what was measured, on what, beside the floor it is compared with. Writes only to a temporary database.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

LATENCY = 0.2
MESSAGES, CLAIMS = 20, 4
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--base-url", help="measure against this server instead of the built-in one (no fault trial then)"
    )
    parser.add_argument("--skip-import", action="store_true", help="leave out the import of 100,000 messages")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            DATABASE_URL=f"sqlite:///{folder}/bench.sqlite3",
            DJANGO_SETTINGS_MODULE="project.settings",
            JUDGE_MODEL="claude-haiku-5-5",
            ANTHROPIC_API_KEY="bench",
            LLM_MAX_CONCURRENCY="20",
            LLM_EVALUATION_DEADLINE="3",
            PROPOSITION_DIRS="",
        )
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        measure(options, Path(folder))


def measure(options: argparse.Namespace, folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from tests.bench.capture import capturing
    from tests.bench.gate import gating
    from tests.bench.server import ServerProcess

    table = Table(title="Measured", title_justify="left")
    for heading in ("What", "Measured", "Floor"):
        table.add_column(heading, justify="left")
    server = None if options.base_url else ServerProcess()
    try:
        for row in judging(options.base_url or (server.url if server else ""), server):
            table.add_row(*row)
        if server:
            for row in capturing(server.url, server, latency=LATENCY):
                table.add_row(*row)
            for row in gating(server.url, server, latency=LATENCY):
                table.add_row(*row)
    finally:
        if server:
            server.stop()
    for row in repetition():
        table.add_row(*row)
    if not options.skip_import:
        table.add_row(*importing(folder))
    console = Console(width=150)
    console.print(table)
    console.print(
        f"On {platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, SQLite; "
        f"server on loopback in its own process, {LATENCY * 1000:.0f} ms per call, concurrency 20, median of {REPEATS} after a warm-up."
    )


def propositions() -> list[Any]:
    from evaluation.propositions import Proposition

    return [
        Proposition(dimension="adherence", id=f"claim-{n}", claim="{{agent_name}} keeps to character")
        for n in range(CLAIMS)
    ]


def questions(per_call: int) -> Iterator[Any]:
    from agents.llm import Label
    from agents.text.fences import new_nonce
    from evaluation.judge import Question
    from evaluation.prompts import Context
    from evaluation.trajectory import Event, Window

    events = tuple(
        Event("action", "Ada", f"Message number {n} with a few more words in it, as people write.") for n in range(30)
    )
    window, nonce, claims = Window(events, 0, ()), new_nonce(), propositions()
    for event in events[:MESSAGES]:
        context = Context(agent_name="Ada", persona="You are Ada. " * 100, window=window, message=event)
        for start in range(0, CLAIMS, per_call):
            chosen = tuple(claims[start : start + per_call])
            yield Question(
                propositions=chosen, context=context, label=Label(purpose="bench", work_id="bench"), nonce=nonce
            )


def judge(per_call: int) -> tuple[float, float, list[Any]]:
    """Wall seconds, CPU seconds and verdicts of judging all messages."""
    from evaluation.judge import ask_all

    wall, cpu = time.perf_counter(), time.process_time()
    verdicts = [v for answer in ask_all(questions(per_call), deadline=3) for v in answer.verdicts]
    return time.perf_counter() - wall, time.process_time() - cpu, verdicts


def cpu_of(runs: list[tuple[float, float, list[Any]]]) -> float:
    """The median CPU seconds."""
    return sorted(cpu for _, cpu, _ in runs)[len(runs) // 2]


def judging(url: str, server: Any) -> Iterator[tuple[str, str, str]]:
    from django.test import override_settings

    total = MESSAGES * CLAIMS
    with override_settings(JUDGE_BASE_URL=url):
        if server:
            server.program({"latency": LATENCY})
        judge(CLAIMS)  # imports the SDK, opens the connections
        for per_call, floor in ((1, "<= 1.1 s"), (CLAIMS, "<= 0.5 s, 20 calls")):
            runs, seen = [], {"calls": total // per_call, "peak_inflight": 0}
            for _ in range(REPEATS):
                if server:
                    server.program({"latency": LATENCY})
                runs.append(judge(per_call))
                seen = server.stats() if server else seen
            walls = sorted(wall for wall, _, _ in runs)
            scored = min(sum(v.status == "scored" for v in verdicts) for _, _, verdicts in runs)
            yield (
                f"{MESSAGES} messages x {CLAIMS} claims, {per_call} per call",
                f"{walls[REPEATS // 2]:.2f} s ({walls[0]:.2f} to {walls[-1]:.2f}), {seen['calls']} calls, "
                f"at most {seen['peak_inflight']} in flight, {scored} of {total} scored",
                floor,
            )
            yield "   CPU per judgement, ledger rows included", f"{cpu_of(runs) / total * 1000:.2f} ms", "-"
            with mock.patch("agents.llm.ledger.record", return_value=None):
                judge(per_call)
                bare = [judge(per_call) for _ in range(REPEATS)]
            yield "   CPU per judgement before the database", f"{cpu_of(bare) / total * 1000:.2f} ms", "<= 2 ms"
        if server:
            yield faults(server, total)


def faults(server: Any, total: int) -> tuple[str, str, str]:
    """10 % 429, 10 % malformed and 2 hung calls, mixed at random (seeded) among 80."""
    trouble = [{"status": 429}] * 8 + [{"text": "seven, I would say"}] * 8 + [{"hang": True}] * 2
    mixed = trouble + [{"latency": LATENCY}] * (total - len(trouble))
    random.Random(7).shuffle(mixed)
    server.program({"latency": LATENCY}, mixed)
    wall, _, verdicts = judge(1)
    scored = sum(v.status == "scored" for v in verdicts)
    reasons = sorted({v.reason.split(":")[0] for v in verdicts if v.status == "unscored"})
    return (
        "80 calls with 8 x 429, 8 malformed, 2 hung (deadline 3 s)",
        f"{scored} scored, {total - scored} unscored ({', '.join(reasons)}), {server.stats()['calls']} calls, {wall:.1f} s",
        "all but the hung ones scored",
    )


def repetition() -> Iterator[tuple[str, str, str]]:
    """Five messages of 2,000 characters, compared: fresh ones, ones that repeat a good half, and the section made of them."""
    from correction.repetition import build_repetition_context, detect_repetition

    for what, share in (("fresh", 0.0), ("repetitive", 0.8)):
        texts = five_messages(share)
        found = detect_repetition(texts, threshold=0.3)
        median, most = milliseconds(partial(detect_repetition, texts, threshold=0.3))
        yield (
            f"repetition in 5 {what} messages of 2,000 characters",
            f"{median:.2f} ms (95 % within {most:.2f}), overlap {found.overlap:.2f}",
            "<= 2 ms",
        )
    median, most = milliseconds(partial(build_repetition_context, found))
    yield "   the section shown to an agent that repeats itself", f"{median:.2f} ms (95 % within {most:.2f})", "-"


def five_messages(share: float) -> list[str]:
    """Messages of 2,000 characters, of whose words `share` stand at the same place in all of them."""
    chance = random.Random(7)
    words = [f"{chance.choice('bcdfgklmnprst')}{chance.choice('aeiou')}{n:x}" for n in range(2_000)]
    common = [chance.choice(words) for _ in range(600)]
    made = ((word if chance.random() < share else chance.choice(words) for word in common) for _ in range(5))
    return [" ".join(text)[:2_000] for text in made]


def milliseconds(work: Callable[[], Any], times: int = 400) -> tuple[float, float]:
    """Median and 95th percentile of a piece of work."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append((time.perf_counter() - begun) * 1000)
    taken.sort()
    return taken[times // 2], taken[times * 95 // 100]


def importing(folder: Path) -> tuple[str, str, str]:
    """100,000 messages through the command, in a process of its own; its peak memory is read when it ends."""
    import json
    import resource

    path = folder / "transcript.jsonl"
    with path.open("w") as out:
        for n in range(100_000):
            line = {"id": f"m{n}", "speaker": f"Speaker {n % 7}", "text": f"Message {n}: " + "some words " * 12}
            out.write(json.dumps(line) + "\n")
    started = time.perf_counter()
    command = [sys.executable, "manage.py", "import_transcript", str(path), "--channel", "bench", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    seconds = time.perf_counter() - started
    if done.returncode:
        return "import of 100,000 messages", f"failed: {done.stderr[-200:]}", "bounded memory"
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return (
        "import of 100,000 messages",
        f"{seconds:.1f} s, {100_000 / seconds:,.0f} messages/s, peak memory {peak:.0f} MB",
        "bounded memory",
    )


if __name__ == "__main__":
    main()
