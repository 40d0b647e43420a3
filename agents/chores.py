"""What is to be done every so often (`CHORES`): one worker at a time does what is due, with or without a broker."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

import sentry_sdk
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.models import Chore
from agents.outages import is_outage

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
