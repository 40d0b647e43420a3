"""What the database knows of propositions: who may see and change them, and how often their patterns took too long."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import ClassVar

from django.db import models
from django.db.models import F
from django.utils import timezone

from agents.text.patterns import TIMED_OUT
from evaluation.models.evaluations import Dimension


class _NoRows(models.Manager["Proposition"]):
    def get_queryset(self) -> models.QuerySet[Proposition]:
        return super().get_queryset().none()  # so that nothing that goes through all models asks for the table


class Proposition(models.Model):
    """Permissions and log entries of the propositions, which are in YAML files: there is no table.

    Everything else works with `evaluation.propositions.schema.Proposition`.
    """

    objects: ClassVar[_NoRows] = _NoRows()

    class Meta:
        managed = False
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return "proposition"


class PatternTimeout(models.Model):
    """How often a pattern of a proposition took too long, in evaluations and at the gate. What it judged is unscored each time.

    Nothing is switched off for it: a sender could disable a rule that way.
    """

    dimension = models.CharField(max_length=32, choices=Dimension.choices)
    proposition_id = models.CharField(max_length=120)
    pattern = models.CharField(max_length=200, help_text="as the reason names it: a long one is cut")
    times = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField()

    class Meta:
        db_table = "evaluation_pattern_timeouts"
        ordering: ClassVar = ["dimension", "proposition_id", "pattern"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["dimension", "proposition_id", "pattern"], name="pattern_timeout_once"),
        ]

    def __str__(self) -> str:
        return f"{self.proposition_id}: {self.times} × {self.pattern}"

    @classmethod
    def count(cls, unscored: Iterable[tuple[str, str, str]]) -> None:
        """Add the time-outs among these (dimension, proposition id, reason); no statement where there are none."""
        timeouts = Counter(
            (dimension, proposition_id, reason.removeprefix(TIMED_OUT)[:200])
            for dimension, proposition_id, reason in unscored
            if reason.startswith(TIMED_OUT)
        )
        now = timezone.now()
        for (dimension, proposition_id, pattern), times in sorted(timeouts.items()):  # in one order, against deadlocks
            row, _ = cls.objects.get_or_create(
                dimension=dimension, proposition_id=proposition_id, pattern=pattern, defaults={"last_at": now}
            )
            cls.objects.filter(pk=row.pk).update(times=F("times") + times, last_at=now)

    @classmethod
    def of(cls, proposition_ids: Iterable[str]) -> dict[tuple[str, str], list[PatternTimeout]]:
        """Return the counted time-outs by dimension and proposition, in one statement."""
        timeouts: dict[tuple[str, str], list[PatternTimeout]] = defaultdict(list)
        for row in cls.objects.filter(proposition_id__in=set(proposition_ids)):
            timeouts[row.dimension, row.proposition_id].append(row)
        return timeouts
