"""``python -m tests.gateway``: what the gate lets through and costs, with the real LiteLLM in front of a scripted model.

Needs `LITELLM_PYTHON` or `LITELLM=1`. Each part prints how many replies it played and what came of them; a part is named on the command
line, else all are played.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.database_file import make_tables
from tests.gateway.model_server import CHUNKINGS, ModelServer, tokens
from tests.gateway.planted import replies
from tests.gateway.play import Played, play
from tests.gateway.proxy import Proxy, configuration
from tests.gateway.stack import Gateway
from tests.machinery import Postgres
from tests.machinery import running as service

RATES = (1, 5, 10, 20)
LATENCIES = (0.0, 0.2)  # seconds of the judge
PAUSE = 0.02  # seconds between two pieces of four characters: 50 tokens a second
SEED = 20261129


@contextmanager
def gateway(folder: Path, name: str, **changes: object) -> Iterator[Gateway]:
    """A gateway on a database of its own: SQLite, or in a PostgreSQL server of its own with `--postgres`."""
    own = folder / name
    own.mkdir()
    with ExitStack() as running:
        url = f"sqlite:///{own}/db.sqlite3"
        if "MEASURE_POSTGRES" in os.environ:
            server = Postgres()
            running.enter_context(service(server))
            url = server.url
        make_tables(url)
        yield running.enter_context(Gateway(own, url, guardrail=dict(changes)))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def leaks(folder: Path, planted: int) -> None:
    """Count planted sentences that reach a client, over four chunkings."""
    share = planted // len(CHUNKINGS)
    with gateway(folder, "leaks") as running:
        for number, (name, chunking) in enumerate(CHUNKINGS.items()):
            said = replies(share * 4 // 5, planted=share, seed=SEED + number)
            begun = time.monotonic()
            played = play(running.proxy, running.model, said, chunking, at_once=8, timeout=3_000)
            say(f"leaks, by {name}: {played.summary()}; {time.monotonic() - begun:.0f} s for all")
            for example in [*played.examples[:3], *played.errors[:3]]:
                say(f"    {example!r}")


def times(folder: Path, count: int) -> None:
    """Time replies without the gate, and with it at each sampling rate and latency of the judge, one reply at a time."""
    said = replies(count, planted=0, seed=SEED)
    with ModelServer() as model:
        config = configuration(model.url)
        for entry in config["model_list"]:
            entry["litellm_params"].pop("guardrails", None)
        direct = Proxy(folder / "direct", config, plumbline_url="http://127.0.0.1:9", token="none")
        with direct:
            play(direct, model, said[:2], tokens, pause=PAUSE, at_once=1)
            say(f"times, no gate: {play(direct, model, said, tokens, pause=PAUSE, at_once=1).summary()}")
    for rate in RATES:
        with gateway(folder, f"rate-{rate}", streaming_sampling_rate=rate) as running:
            play(running.proxy, running.model, said[:2], tokens, pause=PAUSE, at_once=1)
            for latency in LATENCIES:
                running.judge.latency = latency
                calls = running.judge.calls
                played = play(running.proxy, running.model, said, tokens, pause=PAUSE, at_once=1)
                asked = (running.judge.calls - calls) / count
                say(
                    f"times, every {rate} pieces, judge {latency * 1000:.0f} ms: {played.summary()}; {asked:.1f} judge calls a reply"
                )


def many(folder: Path, count: int) -> None:
    """Play many streams at once, in one process of gunicorn."""
    with gateway(folder, "many") as running:
        play(running.proxy, running.model, replies(4, planted=2, seed=SEED), tokens)
        for latency in LATENCIES:
            running.judge.latency = latency
            said = replies(count, planted=count // 2, seed=SEED)
            used = running.product.cpu_seconds()
            begun = time.monotonic()
            played = play(running.proxy, running.model, said, tokens, pause=PAUSE, at_once=count)
            wall = time.monotonic() - begun
            used = running.product.cpu_seconds() - used
            say(
                f"many, {count} at once, judge {latency * 1000:.0f} ms: {played.summary()}; {wall:.1f} s, {used:.1f} s of CPU"
            )
            for example in [*played.examples[:3], *played.errors[:3]]:
                say(f"    {example!r}")


def killed(folder: Path, count: int) -> None:
    """Kill gunicorn's worker every 15 seconds while replies stream: its successor needs some to start."""
    with gateway(folder, "killed") as running:
        ended = threading.Event()
        kills: list[int] = []

        def kill() -> None:
            while not ended.wait(15):
                kills.extend(running.product.kill_workers())

        killing = threading.Thread(target=kill)
        killing.start()
        played = Played()
        try:
            said = replies(count, planted=0, seed=SEED)
            played = play(running.proxy, running.model, said, tokens, pause=0.04, at_once=4)
        finally:
            ended.set()
            killing.join()
        say(f"killed {len(kills)} times: {played.summary()}")
        for example in [*played.examples[:3], *played.errors[:3]]:
            say(f"    {example!r}")


def hanging(folder: Path, count: int) -> None:
    """Let the judge hang: the stream goes on at its deadline, and at once when the breaker is open."""
    with gateway(folder, "hanging") as running:
        said = replies(count, planted=0, seed=SEED)
        play(running.proxy, running.model, said[:2], tokens)
        running.judge.hangs = True
        for reply in said:
            played = play(running.proxy, running.model, [reply], tokens, pause=PAUSE)
            say(f"hanging: {played.summary()}")


def whole(folder: Path, count: int) -> None:
    """Gate replies that are not streamed."""
    with gateway(folder, "whole") as running:
        said = replies(count, planted=count // 2, seed=SEED)
        play(running.proxy, running.model, said[:2], tokens, stream=False)
        played = play(running.proxy, running.model, said, tokens, at_once=4, stream=False)
        say(f"not streamed: {played.summary()}")


PARTS: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "leaks": (leaks, 1_000),
    "times": (times, 20),
    "many": (many, 50),
    "killed": (killed, 40),
    "hanging": (hanging, 8),
    "whole": (whole, 40),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gateway", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--count", type=int, help="replies, or planted sentences of leaks")
    parser.add_argument("--postgres", action="store_true", help="a PostgreSQL server of its own in place of SQLite")
    options = parser.parse_args()
    if options.postgres:
        os.environ["MEASURE_POSTGRES"] = "1"
    say(f"load {statistics.fmean(os.getloadavg()):.1f} on {os.cpu_count()} cores")
    for name in options.parts or PARTS:
        part, count = PARTS[name]
        with tempfile.TemporaryDirectory() as folder:
            part(Path(folder), options.count or count)
