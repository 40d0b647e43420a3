"""Deliveries: what is sent to a receiver until it takes it or it is given up, and how long a receiver that is down is left alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import F
from django.utils import timezone

from agents.kit.models.lease import Leasable

# Minutes until the next try; after the last one it is given up: seven tries in about 18 hours.
PAUSES = (1, 5, 30, 120, 300, 600)
MOST_TRIES = len(PAUSES) + 1
MOST_RECEIVER_PAUSE = timedelta(minutes=30)  # so that it is soon noticed that a receiver works again
MOST_DAYS_WAITING = 7  # for a receiver that takes nothing: its queue does not grow for ever


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one try to deliver.

    Attributes:
        code: HTTP status of the answer; None where there was none, and for e-mail.
        problem: Why it was not delivered; empty where it was.
        is_receiver_up: Whether the receiver, and what leads to it, takes deliveries: none is sent to it for a while where it does not.
            It does not decide whether this delivery is tried again.
        is_final: Whether a problem is one that no further try would solve.
        pause: How long a receiver that limits its rate asks to be left alone: it did not fail. None where it does not ask.
    """

    code: int | None = None
    problem: str = ""
    is_receiver_up: bool = True
    is_final: bool = False
    pause: timedelta | None = None


class ReceiverState(models.Model):
    """Whether a receiver is down, and until when it is left alone."""

    failures = models.PositiveIntegerField(default=0, editable=False, help_text="tries in a row that did not reach it")
    retry_at = models.DateTimeField(null=True, editable=False, help_text="nothing is sent before")

    class Meta:
        abstract = True

    def note_try(self, outcome: Outcome) -> None:
        """Store whether the receiver is up. One that is not is left alone, for a pause that grows with its failures in a row.

        One that limits its rate is left alone as long as it asks, up to `MOST_RECEIVER_PAUSE`.
        """
        stored = type(self)._default_manager.filter(pk=self.pk)
        if outcome.pause is not None:
            self.failures = 0
            stored.update(failures=0, retry_at=timezone.now() + min(outcome.pause, MOST_RECEIVER_PAUSE))
            return
        if outcome.is_receiver_up:
            self.failures = 0
            stored.update(failures=0, retry_at=None)
            return
        self.failures += 1
        pause = timedelta(minutes=PAUSES[min(self.failures, len(PAUSES)) - 1])
        retry_at = timezone.now() + min(pause, MOST_RECEIVER_PAUSE)
        stored.update(failures=F("failures") + 1, retry_at=retry_at)


class Deliverable(Leasable):
    """Work that sends something to a receiver, at least once; see `columns_after`."""

    tries = models.PositiveIntegerField(default=0)
    tried_at = models.DateTimeField(null=True, blank=True, help_text="when the last try ended")
    answer_code = models.PositiveIntegerField(null=True, blank=True, help_text="HTTP status of the last answer")

    class Meta:
        abstract = True

    @classmethod
    def give_up_old(cls, receiver: ReceiverState) -> None:
        """Give up what was queued for a receiver more than `MOST_DAYS_WAITING` ago. Call it where the receiver is not up."""
        now = timezone.now()
        oldest = now - timedelta(days=MOST_DAYS_WAITING)
        rows: models.QuerySet[Any] = cls._default_manager.all()
        rows.filter(receiver=receiver, status=cls.Status.PENDING, created_at__lt=oldest).update(
            status=cls.Status.FAILED,
            error=f"waited more than {MOST_DAYS_WAITING} days for its receiver",
            lease_expires_at=None,
            finished_at=now,
        )

    def columns_after(self, outcome: Outcome) -> dict[str, Any]:
        """Return the columns with which one try ends.

        A delivery that failed is tried again after a pause, unless no try would help or it was the seventh.
        """
        now = timezone.now()
        tries = self.tries + 1
        columns: dict[str, Any] = {
            "status": self.Status.COMPLETED,
            "error": outcome.problem,
            "tries": tries,
            "tried_at": now,
            "answer_code": outcome.code,
        }
        is_given_up = outcome.is_final or tries >= MOST_TRIES
        if outcome.problem and is_given_up:
            columns["status"] = self.Status.FAILED
        elif outcome.problem:
            columns["status"] = self.Status.PENDING
            columns["lease_expires_at"] = now + timedelta(minutes=PAUSES[tries - 1])  # no worker takes it before
        return columns
