"""The workers themselves: which are alive, and what they do every so often."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class WorkerHeartbeat(models.Model):
    """A process that does queued work, and when it was last heard of. Rows of processes that ended stay for a day."""

    class Kind(models.TextChoices):
        WORK = "work", "manage.py work"
        CELERY = "celery", "Celery worker"

    name = models.CharField(max_length=200, unique=True, help_text="host:pid:token")
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    kind = models.CharField(max_length=8, choices=Kind.choices)
    queues = models.CharField(max_length=500, blank=True, default="", help_text="what it works on")
    doing = models.CharField(max_length=80, blank=True, default="", help_text="the queue of what it has in hand")
    done = models.PositiveBigIntegerField(default=0, help_text="pieces of work since it started")
    slots_in_use = models.PositiveIntegerField(default=0, help_text="model calls in flight")
    slots = models.PositiveIntegerField(default=0, help_text="model calls that may be in flight")
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)
    stopped_at = models.DateTimeField(null=True, blank=True, help_text="when it said that it stops")

    class Meta:
        db_table = "worker_heartbeats"
        verbose_name = "worker"
        ordering: ClassVar = ["-seen_at", "-pk"]

    def __str__(self) -> str:
        return f"worker {self.name}"


class Chore(models.Model):
    """Something that is to be done every so often, by one worker at a time (the setting CHORES)."""

    path = models.CharField(max_length=200, unique=True, help_text="dotted path of the callable")
    next_at = models.DateTimeField()
    last_at = models.DateTimeField(null=True, blank=True)
    last_outcome = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        db_table = "work_chores"
        ordering: ClassVar = ["path"]

    def __str__(self) -> str:
        return self.path
