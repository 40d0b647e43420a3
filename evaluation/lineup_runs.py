"""Voice line-ups that a worker makes: queued from the console, kept as rows, the newest one shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import sentry_sdk
from django.db import IntegrityError, transaction
from django.db.models import Max

from agents.models import Channel, Message
from agents.work.outages import is_outage
from agents.work.queues import wake_workers
from evaluation.lineup import line_up
from evaluation.models import LineUpRun
from evaluation.scorers.windows import parse_window

Status = LineUpRun.Status
WAITING = (Status.PENDING, Status.RUNNING)
LEASE = timedelta(minutes=10)  # it takes seconds, whatever the channel


def queue_line_up(
    *, channel: Channel, window: str = "all", where: Mapping[str, str] | None = None
) -> tuple[LineUpRun, bool]:
    """Have a worker measure the voices of a channel.

    Args:
        channel: Whose lines.
        window: As `parse_window` reads it.
        where: Tags they must have.

    Returns:
        The line-up, and whether it is new: one at a time waits for a channel.

    Raises:
        ValueError: The window is not understood.
    """
    parse_window(window)
    try:
        with transaction.atomic():
            queued = LineUpRun.objects.create(channel=channel, window=window, where=dict(where or {}))
            transaction.on_commit(wake_workers)
    except IntegrityError:
        waiting = LineUpRun.objects.filter(channel=channel, status__in=WAITING).first()
        if waiting is None:  # it ended between the two statements
            return queue_line_up(channel=channel, window=window, where=where)
        return waiting, False
    return queued, True


def work_one(*, owner: str) -> bool:
    """Claim and make the oldest line-up that waits; whether there was one. What `manage.py work` calls."""
    waiting = LineUpRun.acquire_next(owner=owner, lease=LEASE)
    if waiting is None:
        return False
    try:
        measure(waiting, owner=owner)
    except Exception as error:
        if is_outage(error):
            waiting.finish(owner=owner, status=Status.PENDING)
            raise
        sentry_sdk.capture_exception(error)
        waiting.finish(owner=owner, status=Status.ERRORED, error=f"{type(error).__name__}: {error}"[:1000])
    except BaseException:  # told to stop: handed back at once
        waiting.finish(owner=owner, status=Status.PENDING)
        raise
    return True


def measure(waiting: LineUpRun, *, owner: str) -> None:
    """Make a claimed line-up and store it. One without a figure is completed, too: its result says why."""
    channel = waiting.channel
    newest = Message.objects.filter(channel=channel).aggregate(n=Max("position"))["n"] or 0
    found = line_up(channel=channel, window=parse_window(waiting.window, now=waiting.created_at), where=waiting.where)
    waiting.finish(owner=owner, status=Status.COMPLETED, result=found.as_json(), last_position=newest)


def newest_line_up(channel: Channel) -> LineUpRun | None:
    """The newest line-up of a channel that was made."""
    return LineUpRun.objects.filter(channel=channel, status=Status.COMPLETED).first()


def said_since(made: LineUpRun) -> int:
    """How many messages were stored in the channel after it was measured."""
    return Message.objects.filter(channel=made.channel_id, position__gt=made.last_position).count()
