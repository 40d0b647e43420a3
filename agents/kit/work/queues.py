"""The queues of work that workers look at, work that is done at regular times (chores), and how workers learn of new work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeVar

import sentry_sdk
from django.apps import apps
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.kit.capability import declared
from agents.kit.models import Chore
from agents.kit.models.lease import Leasable, LeaseLost, owner_is_dead
from agents.kit.running import is_outage
from agents.kit.text.storable import storable

WorkQueue = Callable[..., bool]
Row = TypeVar("Row", bound=Leasable)
Group = Literal["interactive", "bulk"]
WORK_TASK = "agents.kit.work.tasks.work"
BROKER_SECONDS = 2.0  # that a request which queues work waits for a connection to the broker
MOST_MESSAGES = 64  # that wait in a Celery queue: enough for as many idle threads, however many rows wait
GROUPS: tuple[Group, ...] = ("interactive", "bulk")  # also the names of the Celery queues

log = logging.getLogger(__name__)


def declared_queues() -> dict[str, str]:
    """Return the queues that the installed apps declare: dotted paths by name, in the order of QUEUE_ORDER."""
    order = {name: number for number, name in enumerate(settings.QUEUE_ORDER)}
    return dict(sorted(declared("work_queues").items(), key=lambda queue: order.get(queue[0], len(order))))


def work_queues(names: Iterable[str] = ()) -> Mapping[str, WorkQueue]:
    """Return the queues that the installed apps declare as functions by name, in the order of QUEUE_ORDER.

    Each takes ``owner``, does one piece of work and returns whether there was one.

    Args:
        names: Only these, by name or group (`interactive`: a person waits for it; or `bulk`); none = all.

    Raises:
        ValueError: A name is unknown; the message names those that exist.
    """
    chosen = set(names)
    paths = declared_queues()
    if unknown := chosen - paths.keys() - set(GROUPS):
        allowed = ", ".join((*GROUPS, *paths))
        raise ValueError(f"queue {', '.join(sorted(unknown))!r} is unknown; allowed: {allowed}")
    queues = {}
    for name, path in paths.items():
        group = "interactive" if name in settings.INTERACTIVE_QUEUES else "bulk"
        if not chosen or name in chosen or group in chosen:
            queues[name] = import_string(path)
    return queues


def wake_workers(group: Group = "bulk", times: int = 1) -> None:
    """Tell the Celery workers of a group, where there is a broker, that work waits.

    A broker that does not answer costs only time: the work is a row already, and the sweep finds it.

    Args:
        times: How many messages to send; fewer where more than MOST_MESSAGES would wait then.
    """
    if not settings.CELERY_BROKER_URL:
        return
    from celery import current_app  # takes half a second to import, which processes without a broker save
    from kombu.exceptions import LimitExceeded, OperationalError
    from redis.exceptions import RedisError

    pool: Any = current_app.pool
    try:
        with pool.acquire(block=True, timeout=BROKER_SECONDS) as connection:
            for _ in range(min(times, MOST_MESSAGES - messages_waiting(connection, group))):
                current_app.send_task(WORK_TASK, args=(group,), queue=group, retry=False, connection=connection)
    except (OperationalError, RedisError, LimitExceeded, OSError) as error:
        log.warning("broker not reached, the work waits for the next sweep: %s", error)


def messages_waiting(connection: Any, group: Group) -> int:
    """Return the number of messages of a queue that no worker has received; 0 for brokers that cannot say."""
    if connection.transport.driver_type != "redis":
        return 0
    return int(connection.default_channel.client.llen(group))


def do_next(
    model: type[Row],
    do: Callable[[Row], Mapping[str, Any] | None],
    *,
    owner: str,
    lease: timedelta,
    attempts: int = 1,
    handed_back: Mapping[str, Any] | None = None,
) -> bool:
    """Lease the row of a table whose turn it is and do it, see `carry_out`; return whether there was one."""
    row = model.acquire_next(owner=owner, lease=lease)
    if row is None:
        return False
    root = model.__module__.partition(".")[0]
    with sentry_sdk.start_transaction(op=f"{root}.work", name=str(model._meta.verbose_name)):
        carry_out(row, do, owner=owner, attempts=attempts, handed_back=handed_back)
    return True


def carry_out(
    row: Row,
    do: Callable[[Row], Mapping[str, Any] | None],
    *,
    owner: str,
    attempts: int = 1,
    handed_back: Mapping[str, Any] | None = None,
) -> None:
    """Do the work of a leased row and store its end. A lease that was lost meanwhile is only logged: the row is another's now.

    Args:
        row: The work, which `owner` leased.
        do: Does it; returns the columns of its end, `status` among them, or None when it ended the row itself.
        owner: Of the lease.
        attempts: Leases after which a crash is final (errored); before that the row waits for another try.
        handed_back: Further columns of a row that goes back to the queue because the work is to stop or the database is away.

    Raises:
        DatabaseError: The database is away; the row waits again.
        BaseException: The work is to stop; the row waits again.
    """
    try:
        if (ended := do(row)) is not None:
            row.finish(owner=owner, **ended)
    except LeaseLost as lost:
        log.warning("%s: %s", row, lost)
    except Exception as crash:
        if is_outage(crash):
            row.finish(owner=owner, status=row.Status.PENDING, **handed_back or {})
            raise
        status = row.Status.PENDING if row.attempt < attempts else row.Status.ERRORED
        row.finish(owner=owner, status=status, error=report_crash(crash, row))
    except BaseException:  # `Stopped`, or Ctrl-C
        row.finish(owner=owner, status=row.Status.PENDING, **handed_back or {})
        raise


def report_crash(crash: Exception, row: Leasable) -> str:
    """Log a crash of the work of a row, send it to Sentry, and return the row's error text, at most 1,000 characters.

    The text of an OSError names a path of this machine, which users should not see: only its reason is kept.
    """
    log.error("%s crashed", row, exc_info=crash)
    sentry_sdk.capture_exception(crash)
    reason = (crash.strerror or "") if isinstance(crash, OSError) else str(crash)
    return str(storable(f"{type(crash).__name__}: {reason}"[:1000]))


def work_models() -> list[type[Leasable]]:
    """Return every table of work."""
    return [model for model in apps.get_models() if issubclass(model, Leasable)]


def release_lost_leases() -> int:
    """Make work pending again whose owner is known to be dead, before its lease runs out; return how much.

    A row that cost too many workers in a row ends as errored instead. Only processes of this machine are known to be dead; for
    others the lease decides.
    """
    released = 0
    for model in work_models():
        running = model._default_manager.filter(status=model.Status.RUNNING, lease_expires_at__gte=timezone.now())
        owners = set(running.values_list("lease_owner", flat=True))
        if dead := [owner for owner in owners if owner_is_dead(owner)]:
            released += sum(row.release() for row in running.filter(lease_owner__in=dead))
    if released:
        log.warning("%d pieces of work of workers that died are back in the queue", released)
    return released


def run_due_chores() -> None:
    """Do the chores that are due, a new one at once; each in one worker only.

    The next time is stored before a chore runs: a worker that dies in it costs one time. What the chore returns, or how it crashed, is
    stored as its last outcome; a crash does not keep the others from running.

    Raises:
        Exception: The database is away (see `is_outage`).
    """
    now = timezone.now()
    next_times = dict(Chore.objects.filter(path__in=declared("chores")).values_list("path", "next_at"))
    for path, seconds in declared("chores").items():
        times = {"next_at": now + timedelta(seconds=seconds), "last_at": now}
        if path not in next_times:
            try:
                with transaction.atomic():
                    Chore.objects.create(path=path, **times)
            except IntegrityError:  # another worker was faster
                continue
        elif next_times[path] > now or not Chore.objects.filter(path=path, next_at=next_times[path]).update(**times):
            continue
        try:
            outcome = str(import_string(path)() or "")
        except Exception as error:
            if is_outage(error):
                raise
            log.exception("chore %s", path)
            sentry_sdk.capture_exception(error)
            outcome = f"{type(error).__name__}: {error}"
        Chore.objects.filter(path=path).update(last_outcome=outcome[:500])
