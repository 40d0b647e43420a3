"""A worker's sign of life: a row that says when it was last heard of and what it does."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Q, QuerySet
from django.utils import timezone

from agents.llm.loop import slots_in_use
from agents.models import WorkerHeartbeat
from agents.work.queues import work_models

EVERY = 10.0  # seconds between two signs of life
KEPT = timedelta(days=1)


def silence_allowed() -> timedelta:
    """How long a worker may be silent: one model call and a margin, like a lease."""
    return timedelta(seconds=max(settings.LLM_EVALUATION_DEADLINE, settings.TURN_STEP_DEADLINE) + 60)


def alive() -> QuerySet[WorkerHeartbeat]:
    """The workers that were heard of lately, or keep the lease of a long piece of work, and did not say that they stop."""
    now = timezone.now()
    holding: set[str] = set()
    for model in work_models():
        held = model._default_manager.filter(status=model.Status.RUNNING, lease_expires_at__gte=now)
        holding.update(held.values_list("lease_owner", flat=True))
    heard_of = Q(seen_at__gte=now - silence_allowed()) | Q(name__in=holding)
    return WorkerHeartbeat.objects.filter(heard_of, stopped_at=None)


def alive_here() -> bool:
    """Whether a worker of this machine is alive (what a container's health check asks)."""
    return alive().filter(host=socket.gethostname()).exists()


@dataclass(slots=True)
class Heartbeat:
    """Writes the row, at most every few seconds. One that cannot be written is nobody's trouble: it is written later."""

    name: str
    kind: WorkerHeartbeat.Kind
    queues: str = ""
    doing: str = ""
    pieces: int = 0
    _written: float = float("-inf")
    _shown: str = ""

    def begin(self, queue: str) -> None:
        """About to look into a queue."""
        self.doing = queue
        self.beat()

    def idle(self) -> None:
        self.doing = ""
        self.beat(at_once=bool(self._shown))

    def done(self) -> None:
        self.pieces += 1
        self.beat()

    def beat(self, *, at_once: bool = False) -> None:
        """Say that this process lives."""
        if at_once or time.monotonic() - self._written >= EVERY:
            self._write()

    def stop(self) -> None:
        """Say that it stops."""
        self.doing = ""
        self._write(stopped=True)

    def _write(self, *, stopped: bool = False) -> None:
        now = timezone.now()
        used, most = slots_in_use()
        values = {
            "queues": self.queues[:500],
            "doing": self.doing[:80],
            "done": self.pieces,
            "slots_in_use": used,
            "slots": most,
            "seen_at": now,
            "stopped_at": now if stopped else None,
        }
        try:
            if not WorkerHeartbeat.objects.filter(name=self.name).update(**values):
                WorkerHeartbeat.objects.filter(Q(seen_at__lt=now - KEPT)).delete()
                WorkerHeartbeat.objects.create(
                    name=self.name, host=socket.gethostname(), pid=os.getpid(), kind=self.kind, started_at=now, **values
                )
        except DatabaseError:
            if not stopped:
                raise
        self._written, self._shown = time.monotonic(), self.doing
