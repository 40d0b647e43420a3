"""Evaluations of what an applied behaviour request changed: queued, judged by a worker, kept with what came out."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q

from agents.models import Leasable
from correction.models.behavior import BehaviorRequest
from evaluation.change.before_after import MESSAGES, MOST_MESSAGES

UNFINISHED = (Leasable.Status.PENDING, Leasable.Status.RUNNING, Leasable.Status.PAUSED_BUDGET)


class BehaviorEffect(Leasable):
    """One look at whether a request changed anything: its trait, judged on the messages before it and on the next ones.

    Failed with a `result`: the judge scored no message, and the result says of each why.
    """

    WHOSE: ClassVar = F("whose")

    whose = models.BigIntegerField(
        default=0, editable=False, help_text="key of the agent as it was queued: agents come in turn; never empty"
    )
    request = models.ForeignKey(
        BehaviorRequest, on_delete=models.CASCADE, related_name="effects", db_index=False, help_text="what was applied"
    )
    messages = models.PositiveSmallIntegerField(
        default=MESSAGES,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_MESSAGES)],
        help_text=f"most messages of each side, 1 to {MOST_MESSAGES}",
    )
    judge = models.CharField(max_length=200, help_text="model asked, as configured when it was queued")
    result = models.JSONField(
        null=True,
        blank=True,
        help_text="means, difference with interval, verdict, each message's score; empty = not judged",
    )
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+",
        help_text="who asked for it",
    )  # fmt: skip

    class Meta:
        db_table = "behavior_effects"
        ordering: ClassVar = ["-pk"]
        verbose_name = "effect of a behaviour request"
        verbose_name_plural = "effects of behaviour requests"
        indexes: ClassVar = [
            models.Index(fields=["request", "created_at"], name="effect_of_request"),
            models.Index(
                fields=["whose", "created_at", "id"],
                condition=Q(status__in=["pending", "running"]),
                name="effect_open_of_whom",
            ),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["request"],
                condition=Q(status__in=["pending", "running", "paused_budget"]),
                name="effect_one_unfinished",
            ),
            models.CheckConstraint(condition=Q(messages__gte=1, messages__lte=100), name="effect_messages"),
            models.CheckConstraint(
                condition=~Q(status="completed") | Q(result__isnull=False), name="effect_completed_has_result"
            ),
        ]

    def __str__(self) -> str:
        return f"effect {self.pk} of behaviour request {self.request_id} ({self.status})"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self._state.adding:
            self.whose = self.request.agent_id or 0
        super().save(*args, **kwargs)

    @property
    def work_id(self) -> str:
        """The ledger's name for it: begins with the request's, apart from the calls of its tiers."""
        return f"behavior_request:{self.request_id}/effect:{self.pk}"
