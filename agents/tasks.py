"""Thin Celery door to the work queues. The rows are the queue; a message only wakes a worker up."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings

from agents.models import owner_name
from agents.work_queues import work_queues


@shared_task(ignore_result=True)
def work() -> int:
    """Claim and do what is waiting now; returns how many pieces. A lost or doubled message does no harm."""
    owner, done = owner_name(), 0
    while worked := sum(queue(owner=owner) for queue in work_queues()):
        done += worked
    return done


def nudge() -> bool:
    """Wake a Celery worker up, where there is a broker; whether a message was sent."""
    if not settings.CELERY_BROKER_URL:
        return False
    work.delay()
    return True
