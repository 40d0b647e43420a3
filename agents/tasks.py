"""Thin Celery door to the work queues. The rows are the queue; a message only wakes a worker up."""

from __future__ import annotations

import logging

from celery import shared_task
from django.conf import settings
from kombu.exceptions import OperationalError

from agents.models import owner_name
from agents.work_queues import work_queues

log = logging.getLogger(__name__)


@shared_task(ignore_result=True)
def work() -> int:
    """Claim and do what is waiting now; returns how many pieces. A lost or doubled message does no harm."""
    owner, done = owner_name(), 0
    while worked := sum(queue(owner=owner) for queue in work_queues()):
        done += worked
    return done


def nudge() -> bool:
    """Wake a Celery worker up, where there is a broker; whether a message was sent.

    A broker that does not answer costs nothing but time: the work is a row already, and the sweep finds it.
    """
    if not settings.CELERY_BROKER_URL:
        return False
    try:
        work.apply_async(retry=False)
    except OperationalError as error:
        log.warning("broker not reached, the work waits for the next sweep: %s", error)
        return False
    return True
