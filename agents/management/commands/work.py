"""``manage.py work``: claim queued work and do it, on this machine, with no broker."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import OperationalError, close_old_connections

from agents.llm import warm_up
from agents.models import owner_name
from agents.work_queues import WorkQueue, stopping_on_sigterm, work_queues


def _name(path: str) -> str:
    """What a queue is called for people: where it lives, e.g. ``evaluation runs`` for ``evaluation.runs.work_one``."""
    parts = path.split(".")[:-1]
    return " ".join((parts[0], parts[-1])).replace("_", " ")


class Command(BaseCommand):
    help = (
        "Claim queued work (turns of agents, evaluations) and do it, until stopped. Start as many as you like: a row is claimed by one. "
        "SIGTERM or Ctrl-C hands unfinished work back."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="stop as soon as nothing is waiting")
        parser.add_argument(
            "--poll", type=float, default=2.0, metavar="SECONDS", help="pause when nothing is waiting (default: 2)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        owner, queues = owner_name(), work_queues()
        if not options["once"]:
            names = ", ".join(dict.fromkeys(map(_name, settings.WORK_QUEUES)))
            self.stdout.write(f"Working as {owner} on {names}. Stop with Ctrl-C.")
        self.done = Counter[str]()
        try:
            with stopping_on_sigterm():
                warm_up("judge")
                warm_up("actor")
                while True:
                    if self._round(queues, owner):
                        continue
                    if options["once"]:
                        break
                    time.sleep(options["poll"])
        except KeyboardInterrupt:
            self.stdout.write("Stopped; unfinished work was handed back.")
        did = ", ".join(f"{name}: {count}" for name, count in self.done.items())
        self.stdout.write(f"Done: {did}." if did else "Nothing was waiting.")

    def _round(self, queues: Sequence[WorkQueue], owner: str) -> bool:
        """One look at every queue; whether any had work. A crash of one item is reported and stays with that item."""
        close_old_connections()
        busy = False
        for path, queue in zip(settings.WORK_QUEUES, queues, strict=True):
            try:
                if queue(owner=owner):
                    busy = True
                    self.done[_name(path)] += 1
            except OperationalError as error:
                self.stderr.write(f"database: {error}; trying again")
            except Exception as error:  # noqa: BLE001 (the item was marked errored; the worker lives on for the others)
                self.stderr.write(f"{type(error).__name__}: {error}")
        return busy
