"""A Celery worker's processes: made ready before their first task, heard of while they are idle, stopped within the grace period."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import suppress
from typing import Any

from celery import signals
from django.conf import settings
from django.db import DatabaseError, connections

from agents.llm import warm_up
from agents.models import WorkerHeartbeat, owner_name
from agents.work.queues import GROUPS, Group, work_queues
from agents.worker import Worker
from agents.worker_heartbeat import Heartbeat

log = logging.getLogger(__name__)

_workers: dict[tuple[int, Group], Worker] = {}  # of this process: a forked child makes its own
_parent: Heartbeat | None = None
_controller: Any = None


def this_worker(group: Group) -> Worker:
    """The worker of this process for a group of queues."""
    key = os.getpid(), group
    if key not in _workers:
        name = owner_name()
        queues = work_queues(groups=(group,))
        _workers[key] = Worker(name, queues, Heartbeat(name, WorkerHeartbeat.Kind.CELERY, group))
    return _workers[key]


@signals.worker_init.connect
def _remember(sender: Any, **kwargs: Any) -> None:
    global _controller
    _controller = sender


@signals.worker_process_init.connect
def _make_ready(**kwargs: Any) -> None:
    """Before the first task of a child: SDK and client, which take seconds, so that no deadline runs meanwhile."""
    for role in ("judge", "actor"):
        try:
            warm_up(role)
        except Exception:
            log.exception("the client of the %s could not be made; the first call tries again", role)


@signals.worker_ready.connect
def _look_once(**kwargs: Any) -> None:
    """Whatever waited while no worker ran."""
    from agents.tasks import nudge

    for group in GROUPS:
        nudge(group)


@signals.heartbeat_sent.connect
def _beat(**kwargs: Any) -> None:
    """The parent lives, also while its children are idle. It forks, so it keeps no connection."""
    global _parent
    if _parent is None:
        _parent = Heartbeat(owner_name(), WorkerHeartbeat.Kind.CELERY, "parent process")
    try:
        _parent.beat()
    except DatabaseError as error:
        log.warning("heartbeat not written: %s", str(error).partition("\n")[0])
    finally:
        connections.close_all()


@signals.worker_shutting_down.connect
def _hand_back_in_time(**kwargs: Any) -> None:
    """A worker that is to stop finishes what it has in hand; what is not done within the grace period is handed back."""
    timer = threading.Timer(settings.WORKER_GRACE, _interrupt_children)
    timer.daemon = True
    timer.start()


def _interrupt_children() -> None:
    for pid in _child_pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)


def _child_pids() -> list[int]:
    """The processes that run tasks: this one, where the pool has none of its own."""
    pool = getattr(_controller, "pool", None)
    try:
        found = list(pool.info.get("processes", ())) if pool is not None else []
    except Exception:  # noqa: BLE001 (the pool is gone already)
        return []
    return found or [os.getpid()]
