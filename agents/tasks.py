"""Thin Celery door to the work queues. The rows are the queue; a message only wakes a worker up.

A message brings at most one piece of work and is sent on when there was one, so that no task is long, a worker that joins gets its
share, and a message that is delivered twice finds nothing, or work that was waiting anyway.
"""

from __future__ import annotations

import logging
import signal
import time
from contextlib import nullcontext
from threading import current_thread, main_thread
from typing import Any

from celery import current_app, shared_task
from django.conf import settings
from kombu.exceptions import LimitExceeded, OperationalError
from redis.exceptions import RedisError

from agents.celery_worker import this_worker
from agents.stopping import Stopped, stopping_on
from agents.work.outages import OUTAGE
from agents.work.queues import GROUPS, Group, release_lost_leases
from agents.worker import Piece, Worker

log = logging.getLogger(__name__)

POOL_SECONDS = 2.0  # that somebody who queues work waits for a connection to the broker
MOST_MESSAGES = 64  # that wait in a Celery queue: enough for as many idle processes, however many rows wait


@shared_task(name="agents.tasks.work", ignore_result=True)
def work(group: Group = "bulk") -> bool:
    """Claim and do one piece of work of a group; whether there was one. A lost or doubled message does no harm.

    At the soft time limit, and when the worker is to stop, the model calls in flight are cancelled and the work is handed back.
    """
    worker = this_worker(group)
    in_main_thread = current_thread() is main_thread()  # else no signal reaches us: a pool of threads
    try:
        with stopping_on(signal.SIGUSR1) if in_main_thread else nullcontext():
            piece = _outlasting_outages(worker)
    except Stopped:
        log.warning("a piece of work of %s was handed back: time limit, or the worker stops", group)
        nudge(group)
        return True
    if piece.queue:
        nudge(group, 2)  # one message that came through an outage is many again in a moment
    return bool(piece.queue)


def _outlasting_outages(worker: Worker) -> Piece:
    """A piece of work, tried again with growing pauses while the database is away; after long, the sweep tries."""
    give_up_at = time.monotonic() + settings.WORKER_PATIENCE
    while (piece := worker.piece()).outage and time.monotonic() < give_up_at:
        log.warning("%s; trying again in %g s", piece.error, piece.pause)
        time.sleep(piece.pause)
    return piece


@shared_task(name="agents.tasks.sweep", ignore_result=True)
def sweep() -> None:
    """What beat asks for: work of dead workers is free again, and whatever waits without a message is looked at."""
    try:
        release_lost_leases()
    except OUTAGE as error:
        log.warning("database: %s", error)
    for group in GROUPS:
        nudge(group)


def nudge(group: Group = "bulk", times: int = 1) -> bool:
    """Wake Celery workers up, where there is a broker; whether a message was sent, or enough of them wait.

    A broker that does not answer costs nothing but time: the work is a row already, and the sweep finds it.
    """
    if not settings.CELERY_BROKER_URL:
        return False
    pool: Any = current_app.pool
    try:
        with pool.acquire(block=True, timeout=POOL_SECONDS) as connection:
            for _ in range(min(times, MOST_MESSAGES - _messages_waiting(connection, group))):
                work.apply_async(args=(group,), queue=group, retry=False, connection=connection)  # type: ignore[call-arg]
    except (OperationalError, RedisError, LimitExceeded, OSError) as error:
        log.warning("broker not reached, the work waits for the next sweep: %s", error)
        return False
    return True


def _messages_waiting(connection: Any, group: Group) -> int:
    """Messages in a queue that no worker has taken; 0 for brokers that cannot say."""
    if connection.transport.driver_type != "redis":
        return 0
    return int(connection.default_channel.client.llen(group))
