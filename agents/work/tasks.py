"""Celery tasks that do queued work, in standard workers with a thread pool. The rows are the queue; a message only wakes a worker up.

A message brings at most one piece of work and is sent on when there was one. So no task is long, a new worker gets its share, and a
message that is delivered twice finds nothing, or work that was waiting anyway.
"""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import Any

from celery import current_app, shared_task, signals
from django.conf import settings
from django.db import DatabaseError, close_old_connections
from kombu.exceptions import LimitExceeded, OperationalError
from redis.exceptions import RedisError

from agents.models import WorkerHeartbeat
from agents.work.outages import OUTAGE
from agents.work.queues import GROUPS, Group, release_lost_leases, work_queues
from agents.work.worker import FIRST_PAUSE, LONGEST_PAUSE, Worker

log = logging.getLogger(__name__)

BROKER_SECONDS = 2.0  # that a request which queues work waits for a connection to the broker
MOST_MESSAGES = 64  # that wait in a Celery queue: enough for as many idle threads, however many rows wait


@cache
def this_worker() -> Worker:
    """The worker of this process; its threads share it."""
    return Worker(WorkerHeartbeat.Kind.CELERY, work_queues())


@shared_task(name="agents.work.tasks.work", ignore_result=True)
def work(group: Group = "bulk") -> bool:
    """Do one piece of work of a group; return whether there was one. While the database is away, try again for WORKER_PATIENCE."""
    worker, pause, give_up_at = this_worker(), FIRST_PAUSE, time.monotonic() + settings.WORKER_PATIENCE
    while not worker.stop.requested and (piece := worker.work_once(group)).outage and time.monotonic() < give_up_at:
        log.warning("%s; trying again in %g s", piece.error, pause)
        worker.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    if worker.stop.requested:
        nudge(group)  # for another worker
        return False
    if piece.handed_back:
        log.warning("a piece of work of %s was handed back after its slice of time", piece.queue)
    if piece.queue:
        nudge(group, 1 if piece.handed_back else 2)  # after an outage that lost messages they double again
    return bool(piece.queue)


@shared_task(name="agents.work.tasks.sweep", ignore_result=True)
def sweep() -> None:
    """Release the work of workers that died, and wake workers up in case a message was lost. Beat asks for it."""
    try:
        release_lost_leases()
    except OUTAGE as error:
        log.warning("database: %s", error)
    for group in GROUPS:
        nudge(group)


def nudge(group: Group = "bulk", times: int = 1) -> bool:
    """Wake Celery workers up, where there is a broker; return whether the broker was reached.

    A broker that does not answer costs only time: the work is a row already, and the sweep finds it.
    """
    if not settings.CELERY_BROKER_URL:
        return False
    pool: Any = current_app.pool
    try:
        with pool.acquire(block=True, timeout=BROKER_SECONDS) as connection:
            for _ in range(min(times, MOST_MESSAGES - _messages_waiting(connection, group))):
                work.apply_async(args=(group,), queue=group, retry=False, connection=connection)  # type: ignore[call-arg]
    except (OperationalError, RedisError, LimitExceeded, OSError) as error:
        log.warning("broker not reached, the work waits for the next sweep: %s", error)
        return False
    return True


def _messages_waiting(connection: Any, group: Group) -> int:
    """Messages of a queue that no worker has taken; 0 for brokers that cannot say."""
    if connection.transport.driver_type != "redis":
        return 0
    return int(connection.default_channel.client.llen(group))


@signals.worker_ready.connect
def _look_once(**kwargs: Any) -> None:
    """For the work that waited while no worker ran."""
    for group in GROUPS:
        nudge(group)


@signals.heartbeat_sent.connect
def _beat(**kwargs: Any) -> None:
    close_old_connections()
    try:
        this_worker().beat()
    except DatabaseError as error:
        log.warning("heartbeat not written: %s", str(error).partition("\n")[0])


@signals.worker_shutting_down.connect
def _stop(**kwargs: Any) -> None:
    """Let the threads finish the work in hand; what is not done after WORKER_GRACE is handed back."""
    this_worker().stop.request(grace=settings.WORKER_GRACE)


@signals.worker_shutdown.connect
def _stopped(**kwargs: Any) -> None:
    this_worker().beat(stopped=True)
