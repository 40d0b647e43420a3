"""Voice line-ups that a worker makes: queued from the console, kept as rows, the newest one shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max

from agents.models import Channel, Message
from agents.work.queues import do_next, wake_workers
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
    """Make the line-up that has waited longest; return whether there was one."""
    return do_next(LineUpRun, measure, owner=owner, lease=LEASE)


def measure(waiting: LineUpRun) -> dict[str, Any]:
    """Make a leased line-up; how it ends, as columns. One without a figure is completed, too: its result says why."""
    channel = waiting.channel
    newest = Message.objects.filter(channel=channel).aggregate(n=Max("position"))["n"] or 0
    made = line_up(channel=channel, window=parse_window(waiting.window, now=waiting.created_at), where=waiting.where)
    return {"status": Status.COMPLETED, "result": made.as_json(), "last_position": newest}


def newest_line_up(channel: Channel) -> LineUpRun | None:
    """The newest line-up of a channel that was made."""
    return LineUpRun.objects.filter(channel=channel, status=Status.COMPLETED).first()


def said_since(made: LineUpRun) -> int:
    """How many messages were stored in the channel after it was measured."""
    return Message.objects.filter(channel=made.channel_id, position__gt=made.last_position).count()
