"""The queues of work that workers look at, work that is done at regular times (`CHORES`), and how workers learn of new work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal

import sentry_sdk
from django.apps import apps
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.models import Chore
from agents.work.lease import Leasable, owner_is_dead
from agents.work.outages import is_outage

log = logging.getLogger(__name__)


def do_what_is_due() -> None:
    """Do the chores that are due. Called by workers between two pieces of work.

    When one is next due is stored before it is done: a crash, or a worker that dies, costs one time.
    """
    now = timezone.now()
    known = dict(Chore.objects.filter(path__in=settings.CHORES).values_list("path", "next_at"))
    for path, seconds in settings.CHORES.items():
        if path in known and known[path] > now:
            continue
        if _claim(path, known.get(path), now + timedelta(seconds=seconds)):
            _do(path)


def _claim(path: str, was_due: datetime | None, following: datetime) -> bool:
    if was_due is not None:
        return bool(Chore.objects.filter(path=path, next_at=was_due).update(next_at=following, last_at=timezone.now()))
    try:
        with transaction.atomic():
            Chore.objects.create(path=path, next_at=following, last_at=timezone.now())
    except IntegrityError:  # another worker was faster
        return False
    return True


def _do(path: str) -> None:
    try:
        done = import_string(path)()
        outcome = "" if done is None else str(done)
    except Exception as error:
        if is_outage(error):
            raise
        log.exception("chore %s", path)
        sentry_sdk.capture_exception(error)
        outcome = f"{type(error).__name__}: {error}"
    Chore.objects.filter(path=path).update(last_outcome=outcome[:500])


WorkQueue = Callable[..., bool]
Group = Literal["interactive", "bulk"]
GROUPS: tuple[Group, ...] = ("interactive", "bulk")  # also the names of the Celery queues

logger = logging.getLogger(__name__)


def name_of(path: str) -> str:
    """What a queue is called for people: where it lives, e.g. ``evaluation runs`` for ``evaluation.runs.work_one``."""
    parts = path.split(".")[:-1]
    return " ".join((parts[0], parts[-1])).replace("_", " ")


def group_of(path: str) -> Group:
    """Whether somebody waits for what is in this queue (`INTERACTIVE_QUEUES`), or it is bulk."""
    return "interactive" if path in settings.INTERACTIVE_QUEUES else "bulk"


def work_queues(*, groups: Iterable[str] = GROUPS, names: Iterable[str] = ()) -> Mapping[str, WorkQueue]:
    """The queues by name, in their order. Each takes ``owner``, claims one piece of work, does it, and returns whether there was one.

    Args:
        groups: Only those of these groups.
        names: Only these, by name or group; none = all.

    Raises:
        ValueError: A name is unknown; says which there are.
    """
    paths = [path for path in settings.WORK_QUEUES if group_of(path) in groups]
    wanted = set(names)
    if unknown := wanted - {name_of(path) for path in paths} - set(GROUPS):
        allowed = ", ".join((*GROUPS, *map(name_of, paths)))
        raise ValueError(f"queue {', '.join(sorted(unknown))!r} is unknown; allowed: {allowed}")
    chosen = [path for path in paths if not wanted or {name_of(path), group_of(path)} & wanted]
    return {name_of(path): import_string(path) for path in chosen}


def wake_workers(group: Group = "bulk") -> None:
    """Tell Celery workers, if there are any, that something waits."""
    if settings.CELERY_BROKER_URL:
        from agents.tasks import nudge  # Celery takes half a second to import, which nobody without a broker should pay

        nudge(group)


def wake_for_turns() -> None:
    """The same for what somebody waits for."""
    wake_workers("interactive")


def work_models() -> list[type[Leasable]]:
    """Every table of work."""
    return [model for model in apps.get_models() if issubclass(model, Leasable)]


def release_lost_leases() -> int:
    """Make work pending again whose owner is known to be dead, so that nobody waits for its lease; returns how much.

    What cost too many workers in a row ends as errored instead.
    Only processes of this machine are known to be dead. Elsewhere the lease decides.
    """
    released = 0
    for model in work_models():
        running = model._default_manager.filter(status=model.Status.RUNNING, lease_expires_at__gte=timezone.now())
        owners = set(running.values_list("lease_owner", flat=True))
        dead = [owner for owner in owners if owner_is_dead(owner)]
        if dead:
            released += sum(row.release() for row in running.filter(lease_owner__in=dead))
    if released:
        logger.warning("%d pieces of work were taken from workers that died", released)
    return released
