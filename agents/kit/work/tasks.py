"""Celery tasks that do queued work, in standard workers with a thread pool. The rows are the queue; a message only wakes a worker up.

A message brings at most one piece of work and is sent on when there was one. So no task is long, a new worker gets its share, and a
message that is delivered twice finds nothing, or work that was waiting anyway.
"""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import Any

from celery import shared_task, signals
from django.conf import settings
from django.db import DatabaseError, close_old_connections

from agents.kit.llm.runtime import warm_up_all
from agents.kit.models import WorkerHeartbeat
from agents.kit.running import OUTAGE
from agents.kit.work.queues import GROUPS, WORK_TASK, Group, release_lost_leases, wake_workers, work_queues
from agents.kit.work.worker import FIRST_PAUSE, LONGEST_PAUSE, Worker

log = logging.getLogger(__name__)


@cache
def this_worker() -> Worker:
    """Return the worker of this process; its threads share it."""
    return Worker(WorkerHeartbeat.Kind.CELERY, work_queues())


@shared_task(name=WORK_TASK, ignore_result=True)
def work(group: Group = "bulk") -> bool:
    """Do one piece of work of a group; return whether there was one. While the database is away, try again for WORKER_PATIENCE.

    Work that was done sends two messages on, so that idle threads wake up while work waits; work that was handed back sends one. With
    nothing to do none is sent, nor while the database stays away: the sweep wakes workers up later. A worker that is to stop passes the
    message on and returns False.
    """
    worker = this_worker()
    pause = FIRST_PAUSE
    give_up_at = time.monotonic() + settings.WORKER_PATIENCE
    while not worker.stop.requested and (piece := worker.work_once(group)).outage and time.monotonic() < give_up_at:
        log.warning("%s; trying again in %g s", piece.error, pause)
        worker.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    if worker.stop.requested:
        wake_workers(group)  # for another worker
        return False
    if piece.handed_back:
        log.warning("work of %s went back to the queue after its slice of time", piece.queue)
    if piece.queue:
        wake_workers(group, 1 if piece.handed_back else 2)  # after an outage that lost messages they double again
    return bool(piece.queue)


@shared_task(name="agents.kit.work.tasks.sweep", ignore_result=True)
def sweep() -> None:
    """Release the work of workers that died, and wake workers up in case a message was lost. Beat asks for it."""
    try:
        release_lost_leases()
    except OUTAGE as error:
        log.warning("database: %s", error)
    for group in GROUPS:
        wake_workers(group)


@signals.worker_init.connect
def _prepare(**kwargs: Any) -> None:
    try:
        warm_up_all()
    except Exception:
        log.exception("the worker could not be prepared; the first piece of work tries again")


@signals.worker_ready.connect
def _check_for_work(**kwargs: Any) -> None:
    """Look for work that waited while no worker ran."""
    for group in GROUPS:
        wake_workers(group)


@signals.heartbeat_sent.connect
def _beat(**kwargs: Any) -> None:
    close_old_connections()
    try:
        this_worker().beat()
    except DatabaseError as error:
        log.warning("heartbeat not written: %s", str(error).partition("\n")[0])


@signals.worker_shutting_down.connect
def _stop(**kwargs: Any) -> None:
    """Let the threads finish the work in hand; what is not done after WORKER_GRACE goes back to the queue."""
    this_worker().stop.request(grace=settings.WORKER_GRACE)


@signals.worker_shutdown.connect
def _stopped(**kwargs: Any) -> None:
    this_worker().beat(stopped=True)
