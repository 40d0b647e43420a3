"""How far raw rows are summed up: one row per kind of rows, and the closed hours that must be summed anew."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Span(models.IntegerChoices):
    """How long a stretch of time one row of sums stands for. All times are UTC."""

    HOUR = 1, "hour"
    DAY = 2, "day"
    MONTH = 3, "month"


class Rollup(models.Model):
    """How far a kind of rows is summed up. One process at a time goes on with it: it holds the claim, as with `Claimable` work."""

    name = models.CharField(max_length=32, unique=True, help_text="what is summed: ledger, or gate")
    closed_before = models.DateTimeField(
        null=True, blank=True, help_text="whole hours before this are summed up; later rows are read themselves"
    )
    seen_pk = models.BigIntegerField(default=0, help_text="newest row when hours were last closed")
    older_pk = models.BigIntegerField(
        default=0, help_text="newest row the time before; rows after it are looked at again, for late ones"
    )

    claimed_by = models.CharField(max_length=200, blank=True, default="", help_text="host:pid:token of the owner")
    lease_expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "rollups"
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return f"sums of the {self.name}"


class StaleHour(models.Model):
    """A closed hour of which a row was changed. Not unique: a mark that is not committed yet must not be lost with an older one."""

    name = models.CharField(max_length=32)
    hour = models.DateTimeField()

    class Meta:
        db_table = "rollup_stale_hours"
        ordering: ClassVar = ["pk"]

    def __str__(self) -> str:
        return f"{self.name} {self.hour:%Y-%m-%d %H}:00"
