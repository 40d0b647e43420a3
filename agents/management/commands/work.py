"""``manage.py work``: claim queued work and do it, on this machine, with no broker."""

from __future__ import annotations

import json
import os
import time
from argparse import ArgumentParser
from collections import Counter
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from agents.llm import warm_up
from agents.log_formats import json_time
from agents.models import WorkerHeartbeat, owner_name
from agents.stopping import Grace, Stopped
from agents.work.queues import work_queues
from agents.worker import Piece, Worker
from agents.worker_heartbeat import Heartbeat, alive_here
from agents.worker_processes import several


class Command(BaseCommand):
    help = (
        "Claim queued work (turns of agents, evaluations) and do it, until stopped. Start as many as you like: a row is claimed by one. "
        "After SIGTERM or Ctrl-C it finishes what it has in hand, or hands it back when the grace period is over (WORKER_GRACE); "
        "the second does not wait."
    )

    parent: int | None = None

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="stop as soon as nothing is waiting")
        parser.add_argument(
            "--poll", type=float, default=2.0, metavar="SECONDS", help="pause when nothing is waiting (default: 2)"
        )
        parser.add_argument(
            "--queues",
            default="",
            metavar="NAMES",
            help=f"only these, separated by commas: interactive, bulk, {', '.join(work_queues())} (default: all)",
        )
        parser.add_argument(
            "--concurrency", type=int, default=1, metavar="N", help="processes that work side by side (default: 1)"
        )
        parser.add_argument(
            "--grace",
            type=float,
            default=settings.WORKER_GRACE,
            metavar="SECONDS",
            help="to finish what is in hand after SIGTERM (default: WORKER_GRACE)",
        )
        parser.add_argument("--json", action="store_true", help="a JSON object per line, for logs")
        parser.add_argument(
            "--check", action="store_true", help="exit with 0 if a worker of this machine is alive, else with 1"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["check"]:
            if not alive_here():
                raise CommandError("no worker of this machine was heard of lately", returncode=1)
            self.stdout.write("A worker of this machine is alive.")
            return
        if options["concurrency"] < 1:
            raise CommandError(f"--concurrency {options['concurrency']}: allowed 1 or more")
        try:
            queues = work_queues(names=filter(None, map(str.strip, options["queues"].split(","))))
        except ValueError as error:
            raise CommandError(f"--queues: {error}") from None
        if options["concurrency"] > 1:
            self.parent = os.getpid()  # children end with it, however it ends
            several(options["concurrency"], lambda: self._work(queues, options), grace=options["grace"])
        else:
            self._work(queues, options)

    def _work(self, queues: Any, options: dict[str, Any]) -> None:
        owner, self.as_json = owner_name(), bool(options["json"])
        names = ", ".join(queues)
        heartbeat = Heartbeat(owner, WorkerHeartbeat.Kind.WORK, names)
        grace = Grace(options["grace"], on_ask=lambda: self._say("Stopping after what is in hand.", event="stopping"))
        worker = Worker(owner, queues, heartbeat, slicing=lambda: grace.slice(settings.WORKER_SLICE))
        if not options["once"]:
            self._say(f"Working as {owner} on {names}. Stop with Ctrl-C.", event="started", owner=owner, queues=names)
        try:
            with grace.installed():
                warm_up("judge")
                warm_up("actor")
                self._go_on(worker, grace, once=options["once"], poll=options["poll"])
        except KeyboardInterrupt as stopped:
            waited = isinstance(stopped, Stopped) and grace.asked
            words = "Stopped; unfinished work was handed back." if heartbeat.doing else "Stopped."
            self._say(words, event="stopped", asked=waited)
        heartbeat.stop()
        self._summary(worker.done, asked=grace.asked)

    def _go_on(self, worker: Worker, grace: Grace, *, once: bool, poll: float) -> None:
        while not grace.asked and self.parent in (None, os.getppid()):
            with grace.busy():
                piece = worker.piece()
            if piece.queue:
                self._report(piece)
            elif piece.outage:
                self._complain(piece, f"{piece.error}; trying again in {piece.pause:g} s")
                time.sleep(piece.pause)
            elif once:
                return
            else:
                time.sleep(poll)

    def _report(self, piece: Piece) -> None:
        if piece.error:
            self._complain(piece, f"{piece.queue}: {piece.error}")
            return
        if piece.handed_back:
            words = f"{piece.queue}: handed back after {piece.seconds:.1f} s, for others to have their turn"
            self._say(words, event="handed back", **_as_json(piece))
            return
        self._say(f"{piece.queue}: done in {piece.seconds:.1f} s", event="done", **_as_json(piece))

    def _complain(self, piece: Piece, words: str) -> None:
        if self.as_json:
            self._say(words, event="outage" if piece.outage else "crashed", **_as_json(piece), error=piece.error)
        else:
            self.stderr.write(words)

    def _summary(self, done: Counter[str], *, asked: bool) -> None:
        did = ", ".join(f"{name}: {count}" for name, count in done.items())
        self._say(
            f"Done: {did}." if did else "Nothing was done." if asked else "Nothing was waiting.",
            event="ended",
            done=dict(done),
        )

    def _say(self, words: str, **fields: Any) -> None:
        if self.as_json:
            words = json.dumps({"time": json_time(timezone.now()), **fields})
        self.stdout.write(words)
        self.stdout.flush()


def _as_json(piece: Piece) -> dict[str, Any]:
    return {"queue": piece.queue, "seconds": round(piece.seconds, 3), **piece.about}
