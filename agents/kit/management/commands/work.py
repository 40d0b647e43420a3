"""``manage.py work``: do queued work on this machine, in a few threads, with no broker."""

from __future__ import annotations

import signal
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connections

from agents.kit.commands import FAILED, BaseCommand, wrong
from agents.kit.llm.runtime import warm_up_all
from agents.kit.models import WorkerHeartbeat
from agents.kit.running import POLL_SECONDS
from agents.kit.work.queues import Group, declared_queues, work_queues
from agents.kit.work.worker import Piece, Worker, alive_here

HANG = 5.0  # seconds past the grace period after which the process ends without a thread that does not look at the flag


class Command(BaseCommand):
    help = (
        "Do queued work (turns of agents, evaluations) until stopped. Start as many as you like: a row is leased by one. "
        "After SIGTERM or Ctrl-C it finishes the work in hand, or returns it to the queue when the grace period is over (WORKER_GRACE); "
        "the second signal does not wait."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="stop as soon as nothing is waiting")
        parser.add_argument(
            "--poll", type=float, default=2.0, metavar="SECONDS", help="pause when nothing is waiting (default: 2)"
        )
        parser.add_argument(
            "--queues",
            default="",
            metavar="NAMES",
            help=f"only these, separated by commas: interactive, bulk, {', '.join(declared_queues())} (default: all)",
        )
        parser.add_argument(
            "--threads",
            type=int,
            default=settings.WORKER_THREADS,
            metavar="N",
            help="threads that work side by side; one of several only does work that a person waits for (default: WORKER_THREADS)",
        )
        parser.add_argument(
            "--grace",
            type=float,
            default=settings.WORKER_GRACE,
            metavar="SECONDS",
            help="to finish the work in hand after SIGTERM (default: WORKER_GRACE)",
        )
        parser.add_argument(
            "--check", action="store_true", help="exit with 0 if a worker of this machine is alive, else with 1"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Work until stopped, or with ``--once`` until nothing waits, and print what was done; ``--check`` only says if a worker lives."""
        if options["check"]:
            if not alive_here():
                raise CommandError("no worker of this machine was heard of lately", returncode=FAILED)
            self.stdout.write("A worker of this machine is alive.")
            return
        if options["threads"] < 1:
            raise wrong(f"--threads {options['threads']}: allowed 1 or more")
        try:
            queues = work_queues(filter(None, map(str.strip, options["queues"].split(","))))
        except ValueError as error:
            raise wrong(f"--queues: {error}") from None
        self.handed_back = False  # whether any work went back to the queue unfinished
        worker = Worker(WorkerHeartbeat.Kind.WORK, queues)
        names = ", ".join(queues)
        if not options["once"]:
            self._say(f"Working as {worker.name} on {names}. Stop with Ctrl-C.")
        warm_up_all()
        with self._stopping_by_signals(worker, options["grace"]):
            self._work(worker, options["threads"], once=options["once"], poll=options["poll"])
        if worker.stop.requested:
            self._say("Stopped; unfinished work is back in the queue." if self.handed_back else "Stopped.")
        worker.beat(stopped=True)
        did = ", ".join(f"{name}: {count}" for name, count in worker.done.items())
        nothing = "Nothing was done." if worker.stop.requested else "Nothing was waiting."
        self._say(f"Done: {did}." if did else nothing)

    def _work(self, worker: Worker, count: int, *, once: bool, poll: float) -> None:
        """Work in `count` threads until the worker is stopped or, with `once`, nothing waits.

        One of several threads does only work that a person waits for, where there are queues of both groups. A thread that does not end
        HANG seconds after the grace period is left behind. A crash of a thread stops the others and is raised here.
        """
        if count == 1:
            worker.work_until_stopped(None, once=once, poll=poll, report=self._report)
            return
        crashes: list[BaseException] = []

        def thread(group: Group | None) -> None:
            try:
                worker.work_until_stopped(group, once=once, poll=poll, report=self._report)
            except BaseException as crash:  # noqa: BLE001 (raised by the main thread)
                crashes.append(crash)
                worker.stop.request()
            finally:
                connections.close_all()

        connections.close_all()  # this thread only waits
        has_both_groups = len({name in settings.INTERACTIVE_QUEUES for name in worker.queues}) == 2
        # None: a thread for queues of both groups.
        groups: list[Group | None] = ["interactive" if has_both_groups else None, *[None] * (count - 1)]
        threads = [threading.Thread(target=thread, args=(group,), daemon=True) for group in groups]
        for each in threads:
            each.start()
        while any(each.is_alive() for each in threads) and time.monotonic() < worker.stop.at + HANG:
            time.sleep(POLL_SECONDS)
        for crash in crashes:
            raise crash

    @contextmanager
    def _stopping_by_signals(self, worker: Worker, grace: float) -> Iterator[None]:
        """Let SIGTERM and Ctrl-C stop the worker inside; a second signal does not wait for the work in hand."""

        def stop(number: int, frame: FrameType | None) -> None:
            if worker.is_busy and not worker.stop.requested:
                self._say("Stopping after the work in hand.")
            worker.stop.request(grace=grace)

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _report(self, piece: Piece, pause: float) -> None:
        """Print a line about a piece of work or an outage, and note whether any work was handed back.

        For example ``turns: done in 1.2 s``, or ``database: connection refused; trying again in 4 s``.
        """
        if piece.error:
            self.stderr.write(
                f"{piece.error}; trying again in {pause:g} s" if piece.outage else f"{piece.queue}: {piece.error}"
            )
            return
        self.handed_back = self.handed_back or piece.handed_back
        what = "back in the queue after" if piece.handed_back else "done in"
        self._say(f"{piece.queue}: {what} {piece.seconds:.1f} s")

    def _say(self, words: str) -> None:
        self.stdout.write(words)
        self.stdout.flush()
