"""What a worker does with an import: check it, or import it; with progress, until it is done or somebody cancels it."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import sentry_sdk
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from agents.imports.checking import check, header_of
from agents.imports.choices import choices_of
from agents.imports.importing import import_conversation, import_personas
from agents.imports.problems import NotPossible
from agents.imports.uploads import NotKept, drop, write_into
from agents.log_context import logging_about
from agents.models import Import, Message
from agents.work.outages import is_outage, outlasting

Status, Step = Import.Status, Import.Step
LEASE = timedelta(minutes=5)  # a batch of messages takes a second, one large JSON document some more
TOLD_EVERY = 1.0  # seconds

log = logging.getLogger(__name__)


class Lost(Exception):
    """It was cancelled, or is somebody else's by now."""


def work_one(*, owner: str) -> bool:
    """Claim and do what waits longest; whether there was any. What `manage.py work` calls."""
    job = Import.acquire_next(owner=owner, lease=LEASE)
    if job is None:
        return False
    carry_out(job, owner=owner)
    return True


def carry_out(job: Import, *, owner: str) -> None:
    """Do a claimed import's step."""
    with logging_about(import_id=job.pk):
        try:
            _do(job, owner)
        except Lost:
            return
        except NotPossible as problem:
            found = {**job.found, "problem": problem.as_json()}
            job.finish(owner=owner, status=Status.FAILED, error=str(problem), found=found)
        except Exception as error:
            if is_outage(error):
                job.finish(owner=owner, status=Status.PENDING)
                raise
            log.exception("%s crashed", job)
            sentry_sdk.capture_exception(error)
            job.finish(owner=owner, status=Status.ERRORED, error=_told(error))
        except BaseException:  # told to stop: handed back at once
            job.finish(owner=owner, status=Status.PENDING)
            raise


def _told(error: Exception) -> str:
    """What became of it; without the paths of this machine, which an OSError names."""
    reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
    return f"{type(error).__name__}: {reason}"[:1000]


def _do(job: Import, owner: str) -> None:
    report = _Report(job, owner)
    user = User.objects.filter(pk=job.created_by_id, is_active=True).first() if job.created_by_id else None
    if user is None:
        raise NotPossible("Whoever handed this in has no account here any more: hand it in again.")
    with tempfile.TemporaryDirectory(prefix="plumbline-import-") as place:
        try:
            paths = write_into(Path(place), job, progress=lambda done, total: report("Fetching", done, total))
        except NotKept as error:
            raise NotPossible(str(error)) from None
        if not paths:
            raise NotPossible("No file was handed in.")
        try:
            (_check if job.step == Step.CHECK else _import)(job, owner, paths, user, report)
        except NotPossible as problem:
            raise problem.with_names(paths) from None


def _check(job: Import, owner: str, paths: Mapping[Path, str], user: User, report: _Report) -> None:
    job.found = {
        **job.found,
        "header": header_of(next(iter(paths)), ""),
    }  # helps to choose where it cannot be read as it is
    kind, found = check(paths=paths, choices=choices_of(job.choices), user=user, progress=report)
    told = {"format": found.get("format", ""), "expected": found["imported"]}
    job.finish(owner=owner, status=Status.COMPLETED, kind=kind, found=found, **told, **_at_rest())


def _import(job: Import, owner: str, paths: Mapping[Path, str], user: User, report: _Report) -> None:
    choices = choices_of(job.choices)
    if job.kind == Import.Kind.PERSONAS:
        with transaction.atomic():
            told = import_personas(paths=paths, reset=choices.reset, user=user)
            _end(job, owner, told, stored=told["imported"])
    else:
        told = import_conversation(
            paths=paths,
            choices=choices,
            user=user,
            note=f"import {job.pk}",
            progress=report,
            on_new=report.stored,
        )
        _end(job, owner, told)
    drop(job)


def _end(job: Import, owner: str, result: dict[str, Any], **fields: Any) -> None:
    found = {key: value for key, value in job.found.items() if key not in ("sample", "personas", "problem")}
    if not job.finish(owner=owner, status=Status.COMPLETED, result=result, found=found, **_at_rest(), **fields):
        raise Lost


def _at_rest() -> dict[str, Any]:
    return {"doing": "", "done": 0, "total": 0}


class _Report:
    """Writes down how far it is, once a second, and with it that the worker lives."""

    def __init__(self, job: Import, owner: str) -> None:
        self._pk, self._owner = job.pk, owner
        self._told_at, self._doing = float("-inf"), ""

    def __call__(self, what: str, done: int, total: int) -> None:
        if what == self._doing and time.monotonic() - self._told_at < TOLD_EVERY:
            return
        self._doing, self._told_at = what, time.monotonic()
        self._update(doing=what, done=done, total=total, lease_expires_at=timezone.now() + LEASE)

    def stored(self, messages: Sequence[Message]) -> None:
        """Inside the transaction that stores them: whoever lost the import stores nothing more."""
        self._update(stored=F("stored") + len(messages))

    def _update(self, **fields: Any) -> None:
        mine = Import.objects.filter(pk=self._pk, status=Status.RUNNING, lease_owner=self._owner)
        if not outlasting(lambda: mine.update(**fields)):
            raise Lost
