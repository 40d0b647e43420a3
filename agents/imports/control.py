"""What a person does with an import: hand files in, choose, agree, cancel, try again, discard."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.core.files import File
from django.db import transaction
from django.utils import timezone

from agents.imports.checking import PERSONA_ENDINGS, without_other_speakers
from agents.imports.choices import Choices, choices_of
from agents.imports.uploads import are_kept, drop, store
from agents.imports.work import LEASE, carry_out
from agents.models import Import, owner_name
from agents.work_queues import wake_workers

Status, Step = Import.Status, Import.Step
AT_ONCE = 1024 * 1024
"""Files of at most so many bytes are checked where they come in, within about a second, not by a worker."""


class NotNow(Exception):
    """It is at another point than whoever asked for this knew. Says what it does."""


def hand_in(*, uploads: Sequence[File[bytes]], user: User, choices: Choices | None = None) -> Import:
    """Store files and have them checked: small ones at once, others by a worker.

    Args:
        uploads: At least one.
        user: With whose permissions they are to be imported.
        choices: How they are read, where that is known already.
    """
    personas = len(uploads) > 1 or str(uploads[0].name).lower().endswith(PERSONA_ENDINGS)
    kind = Import.Kind.PERSONAS if personas else Import.Kind.TRANSCRIPT  # the check settles it
    with transaction.atomic():
        job: Import = Import.objects.create(kind=kind, created_by=user, choices=(choices or Choices()).as_json())
        store(job, uploads)
    _begin(job)
    return job


def check_again(job: Import, choices: Choices) -> None:
    """Check the files with other choices.

    Raises:
        NotNow: It is being worked on, or imported already.
    """
    wanted = without_other_speakers(choices, choices_of(job.choices))
    _move(job, Step.CHECK, from_status=Import.FINAL, choices=wanted.as_json())
    _begin(job)


def agree(job: Import) -> None:
    """Have a worker import what was checked.

    Raises:
        NotNow: It is not checked, refused, or being imported already.
    """
    if not job.waits_for_decision:
        raise NotNow(f"{job} is not waiting for a decision any more")
    if job.found.get("refusal"):
        raise NotNow(job.found["refusal"])
    if job.found.get("undecided"):
        raise NotNow("first say who the speakers are for whom there is no agent")
    _move(job, Step.IMPORT, from_status=(Status.COMPLETED,), started_at=None)
    wake_workers()


def try_again(job: Import) -> None:
    """Have a worker go on with what failed, crashed or was cancelled; what is stored is not stored twice.

    Raises:
        NotNow: It is neither.
    """
    _move(job, job.step, from_status=(Status.FAILED, Status.ERRORED, Status.CANCELLED))
    wake_workers()


def cancel(job: Import) -> None:
    """Stop it, whatever is done with it now. What is stored stays; it can be tried again while the files are kept.

    Raises:
        NotNow: Nothing is done with it now.
    """
    open_ones = Import.objects.filter(pk=job.pk, status__in=Import.OPEN)
    ended = {"status": Status.CANCELLED, "claimed_by": "", "lease_expires_at": None, "finished_at": timezone.now()}
    if not open_ones.update(**ended):
        job.refresh_from_db()
        raise NotNow(f"{job} is not being worked on: it is {job.get_status_display()}")
    job.refresh_from_db()


def discard(job: Import) -> None:
    """Forget the files of an import that is not done; what is stored stays.

    Raises:
        NotNow: It is being worked on.
    """
    if job.status in Import.OPEN:
        cancel(job)
    if job.is_done:
        raise NotNow(f"{job} is done: its files are gone already")
    Import.objects.filter(pk=job.pk).update(status=Status.CANCELLED, found={}, finished_at=timezone.now())
    drop(job)
    job.refresh_from_db()


def _move(job: Import, step: str, *, from_status: Sequence[str], **fields: object) -> None:
    """Put it at the beginning of a step, unless somebody else was faster or its files are gone."""
    if not are_kept(job):
        raise NotNow("the files are not kept any more: hand them in again")
    rows = Import.objects.filter(pk=job.pk, step=job.step, status__in=from_status)
    if job.is_done:
        rows = rows.none()
    begun = {
        "step": step,
        "status": Status.PENDING,
        "error": "",
        "finished_at": None,
        "doing": "",
        "done": 0,
        "total": 0,
    }
    if not rows.update(**begun, **fields):
        job.refresh_from_db()
        raise NotNow(f"{job} is {job.get_status_display()} by now")
    job.refresh_from_db()


def _begin(job: Import) -> None:
    if sum(file.size for file in job.files.all()) > AT_ONCE:
        wake_workers()
        return
    owner = owner_name()
    if job.claim(owner=owner, lease=LEASE):
        carry_out(job, owner=owner)
        job.refresh_from_db()
