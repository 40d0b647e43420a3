"""Transcripts that people upload in the console: how they are to be imported, and the files themselves until that is done."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce

from agents.kit.models.lease import Leasable


class Import(Leasable):
    """An uploaded transcript: a person chooses how it is read, a worker imports it, and can undo it."""

    WAITING, UNDONE = "waiting", "undone"
    STATES: ClassVar = [(WAITING, "waits for your choices"), *Leasable.Status.choices, (UNDONE, "undone")]
    FINAL: ClassVar = (*Leasable.FINAL, UNDONE)
    EDITABLE: ClassVar = (WAITING, Leasable.Status.FAILED, Leasable.Status.ERRORED, Leasable.Status.CANCELLED)
    WHOSE: ClassVar = Coalesce(F("created_by"), Value(0))

    status = models.CharField(
        max_length=16, choices=STATES, default=WAITING, help_text="what it waits for, or how it ended"
    )
    name = models.CharField(max_length=255, help_text="of the file, as it was called where it came from")
    size = models.PositiveBigIntegerField(default=0, help_text="of the file, in bytes")
    undoing = models.BooleanField(default=False, help_text="a worker is to undo it, or did")
    choices = models.JSONField(
        default=dict,
        blank=True,
        help_text="what was chosen: format, channel, speakers, tags, columns, time zone",
    )
    answers = models.JSONField(
        default=dict, blank=True, help_text="which questions about the file were answered, and how"
    )
    contents = models.JSONField(default=dict, blank=True, help_text="what is in the file, as far as it was read")
    result = models.JSONField(default=dict, blank=True, help_text="what was imported")
    doing = models.CharField(max_length=60, blank=True, default="", help_text="what the worker does with it")
    done = models.PositiveBigIntegerField(default=0, help_text="how much of that is done")
    total = models.PositiveBigIntegerField(default=0, help_text="how much of that there is; 0 = not known")
    stored = models.PositiveBigIntegerField(
        default=0, help_text="messages stored, each counted in the transaction that stored it"
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="with whose permissions it is imported",
    )

    class Meta:
        db_table = "imports"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(
                fields=["created_by", "created_at", "id"],
                condition=Q(status__in=["pending", "running"]),
                name="import_open_of_user",
            ),
            models.Index(fields=["status", "finished_at"], name="import_status_finished"),
        ]

    def __str__(self) -> str:
        return f"import {self.pk}"


class ImportChunk(models.Model):
    """A piece of the file, until it is imported or discarded, or for IMPORT_KEEP_DAYS: rows, so that any worker on any machine has it."""

    of = models.ForeignKey(Import, on_delete=models.CASCADE, related_name="chunks", db_index=False)
    number = models.PositiveIntegerField(help_text="from 0")
    content = models.BinaryField()

    class Meta:
        db_table = "import_chunks"
        ordering: ClassVar = ["of", "number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["of", "number"], name="import_chunk_number_unique"),
        ]

    def __str__(self) -> str:
        return f"piece {self.number} of {self.of}"
