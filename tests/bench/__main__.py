"""``make bench``: how fast judging and importing are, against a loopback server with a fixed latency.

Prints what was measured, on what, beside the floor it is compared with. Writes only to a temporary database.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.bench.judging import CLAIMS, LATENCY, REPEATS, judge, judging

SECTIONS = (
    "startup",
    "judging",
    "capture",
    "gate",
    "rounds",
    "debates",
    "experiments",
    "repetition",
    "guards",
    "swarm",
    "sampling",
    "web",
    "import",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--base-url", help="measure against this server instead of the built-in one (no fault trial then)"
    )
    parser.add_argument("--skip-import", action="store_true", help="leave out the import of 100,000 messages")
    parser.add_argument("--database", help="an empty PostgreSQL database to measure in; it is filled")
    parser.add_argument(
        "--only",
        choices=(
            *SECTIONS,
            "scale",
            "lists",
            "drift_alarms",
            "coverage",
            "memory",
            "voice",
        ),
        help="measure this alone",
    )
    parser.add_argument(
        "file",
        nargs="*",
        type=Path,
        help="data to measure on: of memory (an example ships with it), edits (guards), or transcripts (voice, repetition)",
    )
    options = parser.parse_args()
    if options.only is None:
        return measure_each(options.skip_import)
    if options.only == "scale":  # on PostgreSQL, and needs no model server
        from tests.bench.scale import measure_scale

        measure_scale()
        return
    if options.only == "lists":  # the same
        from tests.bench.lists import measure_lists

        measure_lists()
        return
    if options.only == "drift_alarms":
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
        import django

        django.setup()
        from tests.bench.drift_alarms import measure_drift_alarms

        measure_drift_alarms()
        return
    if options.only == "coverage":
        from tests.bench.coverage import measure_coverage

        measure_coverage()
        return
    if options.only == "memory":
        with on_a_database_of_its_own():
            from tests.bench.memory import EXAMPLE, measure_memory

            measure_memory(*options.file[:1] or [EXAMPLE])
        return
    if options.only == "voice":
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
        import django

        django.setup()
        from tests.bench.voice import measure_voice

        measure_voice(options.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            DATABASE_URL=options.database or f"sqlite:///{folder}/bench.sqlite3",
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


def measure_each(skip_import: bool) -> None:
    """Every section in a process and a database of its own, so that none is slower for what another left behind."""
    for section in SECTIONS:
        if section == "import" and skip_import:
            continue
        subprocess.run([sys.executable, "-m", "tests.bench", *sys.argv[1:], "--only", section], check=True)


@contextmanager
def on_a_database_of_its_own() -> Iterator[None]:
    """An empty database for the ledger's rows, with the developer's own settings for models."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DATABASE_URL"] = f"sqlite:///{folder}/bench.sqlite3"
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield


def measure(options: argparse.Namespace, folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from tests.bench.capture import capturing
    from tests.bench.debates import debating
    from tests.bench.experiments import experimenting
    from tests.bench.gate import gating
    from tests.bench.rounds import rounding
    from tests.bench.server import ServerProcess
    from tests.bench.startup import starting
    from tests.bench.web import web

    table = Table(title=options.only, title_justify="left")
    for heading in ("What", "Measured", "Floor"):
        table.add_column(heading, justify="left")
    server = None if options.base_url else ServerProcess()
    url = options.base_url or (server.url if server else "")
    try:
        warm_up(url)
        sections = {"judging": judging, "web": web}
        if server:
            sections = {"startup": partial(starting, folder=folder, latency=LATENCY), **sections}
            sections |= {"capture": partial(capturing, latency=LATENCY), "gate": partial(gating, latency=LATENCY)}
            sections["rounds"] = partial(rounding, latency=LATENCY)
            sections["debates"] = partial(debating, latency=LATENCY)
            sections["experiments"] = partial(experimenting, latency=LATENCY)
        if options.only in sections:
            for row in sections[options.only](url, server):
                table.add_row(*row)
    finally:
        if server:
            server.stop()
    if options.only == "sampling":
        from tests.bench.sampling import sampling

        for row in sampling():
            table.add_row(*row)
    if options.only == "repetition":
        from tests.bench.repetition import repetition

        for row in repetition(options.file):
            table.add_row(*row)
    if options.only == "guards":
        from tests.bench.guards import guarding

        for row in guarding(options.file):
            table.add_row(*row)
    if options.only == "swarm":
        from tests.bench.swarm import swarming

        for row in swarming():
            table.add_row(*row)
    if options.only == "import":
        table.add_row(*importing(folder))
    console = Console(width=150)
    console.print(table)
    console.print(
        f"On {platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{'PostgreSQL' if options.database else 'SQLite'}; "
        f"server on loopback in its own process, {LATENCY * 1000:.0f} ms per call, concurrency 20, median of {REPEATS} after a warm-up."
    )


def warm_up(url: str) -> None:
    """Import the SDK and open the connections: what a process does once."""
    from django.test import override_settings

    with override_settings(JUDGE_BASE_URL=url):
        judge(CLAIMS)


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
