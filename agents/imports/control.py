"""What a person does with an import: hand files in, choose, agree, cancel, try again, discard."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.contrib.auth.models import User
from django.core.files import File
from django.db import transaction
from django.db.models import Exists, OuterRef, Sum
from django.utils import timezone

from agents.imports.checking import PERSONA_ENDINGS, without_other_speakers
from agents.imports.choices import Choices, choices_of
from agents.imports.uploads import are_kept, drop, store
from agents.imports.work import LEASE, carry_out
from agents.models import Import, ImportChunk, ImportFile, owner_name
from agents.personas_io.reader import YAML
from agents.work.queues import wake_workers

Status, Step = Import.Status, Import.Step
AT_ONCE = 1024 * 1024
"""Files of at most so many bytes are checked where they come in, within about a second, not by a worker."""


YAML_AT_ONCE = 64 * 1024
"""The same for YAML, which takes far more time than anything else."""
MOST_UNFINISHED = 10
MOST_KEPT = 5
"""A user's files that wait may be as large as so many of the largest imports together."""


class NotNow(Exception):
    """It is at another point than whoever asked for this knew. Says what it does."""


def hand_in(*, uploads: Sequence[File[bytes]], user: User, choices: Choices | None = None) -> Import:
    """Store files and have them checked: small ones at once, others by a worker.

    Args:
        uploads: At least one.
        user: With whose permissions they are to be imported.
        choices: How they are read, where that is known already.

    Raises:
        NotNow: So much of theirs waits already that something has to be discarded first.
    """
    _check_room(user)
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


def agree(job: Import, *, without_agents: bool = False) -> None:
    """Have a worker import what was checked.

    Args:
        job: The import.
        without_agents: Also a conversation in which no agent speaks, so that nothing in it can be measured.

    Raises:
        NotNow: It is not checked, refused, or being imported already.
    """
    if not job.waits_for_decision:
        raise NotNow(f"{job} is not waiting for a decision any more")
    if job.found.get("refusal"):
        raise NotNow(job.found["refusal"])
    if job.found.get("undecided"):
        raise NotNow("first say who the speakers are for whom there is no agent")
    if lacks_agent(job) and not without_agents:
        raise NotNow("no speaker is an agent: say who is one, or confirm that it is to be imported without")
    _move(job, Step.IMPORT, from_status=(Status.COMPLETED,), started_at=None)
    wake_workers()


def lacks_agent(job: Import) -> bool:
    """Whether no agent speaks in what was checked, not even one that is still to be made."""
    return bool(job.found.get("no_agent")) and not choices_of(job.choices).made


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
    ended = {"status": Status.CANCELLED, "lease_owner": "", "lease_expires_at": None, "finished_at": timezone.now()}
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
    rows = Import.objects.filter(pk=job.pk, status__in=Import.FINAL).exclude(step=Step.IMPORT, status=Status.COMPLETED)
    if not rows.update(status=Status.CANCELLED, found={}, finished_at=timezone.now()):
        job.refresh_from_db()
        raise NotNow(f"{job} is {job.get_status_display()} by now")
    drop(job)
    job.refresh_from_db()


def _check_room(user: User) -> None:
    waiting = Import.objects.filter(created_by=user).exclude(step=Step.IMPORT, status=Status.COMPLETED)
    kept = waiting.filter(Exists(ImportChunk.objects.filter(file__of=OuterRef("pk"))))
    total = ImportFile.objects.filter(of__in=kept).aggregate(total=Sum("size"))["total"] or 0
    oldest = ", ".join(f"import {pk}" for pk in kept.order_by("pk").values_list("pk", flat=True)[:3])
    if (count := kept.count()) >= MOST_UNFINISHED:
        raise NotNow(
            f"you have {count} imports that are not done, the most there may be: import or discard some first, e.g. {oldest}"
        )
    if total > MOST_KEPT * settings.IMPORT_MOST_BYTES:
        most = MOST_KEPT * settings.IMPORT_MOST_BYTES
        raise NotNow(
            f"your imports that are not done keep {total:,} bytes, of at most {most:,}: import or discard some first, e.g. {oldest}"
        )


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
    files = list(job.files.all())
    yaml = sum(file.size for file in files if file.name.lower().endswith(YAML))
    if sum(file.size for file in files) > AT_ONCE or yaml > YAML_AT_ONCE:
        wake_workers()
        return
    owner = owner_name()
    if job.acquire(owner=owner, lease=LEASE):
        carry_out(job, owner=owner)
        job.refresh_from_db()
