"""Do the jobs that pages of the console ask for. The app that queues a kind of job also does it (`job_kinds` in its `apps.py`)."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from agents.kit.capability import declared
from agents.kit.work.queues import do_next
from evaluation.models import Job

MOST_TRIES = 3  # of a job whose worker crashed


def work_one(*, owner: str) -> bool:
    """Do the job that has waited longest; return whether there was one."""
    return do_next(Job, partial(_do, owner=owner), owner=owner, lease=lease(), attempts=MOST_TRIES)


def lease() -> timedelta:
    """Return a lease that is longer than asking about the agents of one round takes, with all tries."""
    return timedelta(seconds=4 * (settings.LLM_EVALUATION_RETRIES + 1) * settings.LLM_EVALUATION_DEADLINE + 60)


def _do(job: Job, *, owner: str) -> dict[str, Any]:
    """Call the function declared for the job's kind; return the columns of the job's end."""
    do_kind = import_string(declared("job_kinds")[job.kind])
    columns: dict[str, Any] = do_kind(job, owner=owner)
    return columns
