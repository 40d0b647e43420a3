"""The queues of work that workers look at, work that is done at regular times (`CHORES`), and how workers learn of new work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal

import sentry_sdk
from django.apps import apps
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.models import Chore
from agents.work.lease import Leasable, owner_is_dead
from agents.work.outages import is_outage

WorkQueue = Callable[..., bool]
Group = Literal["interactive", "bulk"]
GROUPS: tuple[Group, ...] = ("interactive", "bulk")  # also the names of the Celery queues

log = logging.getLogger(__name__)


def work_queues(names: Iterable[str] = ()) -> Mapping[str, WorkQueue]:
    """The queues of `WORK_QUEUES` by name, in their order. Each takes ``owner``, does one piece of work and returns whether there was one.

    Args:
        names: Only these, by name or group (`interactive`: a person waits for it; or `bulk`); none = all.

    Raises:
        ValueError: A name is unknown; the message names those that exist.
    """
    wanted = set(names)
    if unknown := wanted - settings.WORK_QUEUES.keys() - set(GROUPS):
        allowed = ", ".join((*GROUPS, *settings.WORK_QUEUES))
        raise ValueError(f"queue {', '.join(sorted(unknown))!r} is unknown; allowed: {allowed}")
    return {
        name: import_string(path)
        for name, path in settings.WORK_QUEUES.items()
        if not wanted or {name, "interactive" if name in settings.INTERACTIVE_QUEUES else "bulk"} & wanted
    }


def wake_workers(group: Group = "bulk") -> None:
    """Tell Celery workers, if there are any, that work waits."""
    if settings.CELERY_BROKER_URL:
        from agents.work.tasks import nudge  # Celery takes half a second to import

        nudge(group)


def wake_for_turns() -> None:
    """Tell them that work waits for which a person waits."""
    wake_workers("interactive")


def do_leased(
    row: Leasable,
    do: Callable[[], Mapping[str, Any] | None],
    *,
    owner: str,
    attempts: int = 1,
    handed_back: Mapping[str, Any] | None = None,
) -> None:
    """Do leased work and end it: as `do` says, as crashed, or handed back because the work is to stop or the database is away.

    Args:
        row: The work, leased by `owner`.
        do: Returns the columns of its end, `status` among them; None when it ended the row itself.
        attempts: Leases after which a crash is final (errored); before that the row waits for another try.
        handed_back: Further columns of work that is handed back.

    Raises:
        DatabaseError: The database is away.
        BaseException: The work is to stop.
    """
    try:
        ended = do()
    except Exception as crash:
        if is_outage(crash):
            row.finish(owner=owner, status=row.Status.PENDING, **handed_back or {})
            raise
        log.exception("%s crashed", row)
        sentry_sdk.capture_exception(crash)
        status = row.Status.PENDING if row.attempt < attempts else row.Status.ERRORED
        row.finish(owner=owner, status=status, error=f"{type(crash).__name__}: {crash}"[:1000])
    except BaseException:
        row.finish(owner=owner, status=row.Status.PENDING, **handed_back or {})
        raise
    else:
        if ended is not None:
            row.finish(owner=owner, **ended)


def work_models() -> list[type[Leasable]]:
    """Every table of work."""
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
        log.warning("%d pieces of work were taken from workers that died", released)
    return released


def run_due_chores() -> None:
    """Do the chores that are due; one worker at a time, with or without a broker.

    The next time is stored before a chore runs: a worker that dies in it costs one time.
    """
    now = timezone.now()
    known = dict(Chore.objects.filter(path__in=settings.CHORES).values_list("path", "next_at"))
    for path, seconds in settings.CHORES.items():
        times = {"next_at": now + timedelta(seconds=seconds), "last_at": now}
        if path not in known:
            try:
                with transaction.atomic():
                    Chore.objects.create(path=path, **times)
            except IntegrityError:  # another worker was faster
                continue
        elif known[path] > now or not Chore.objects.filter(path=path, next_at=known[path]).update(**times):
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
