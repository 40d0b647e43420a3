"""Replies of models that pass the gate on their way through LiteLLM."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from agents.kit.models import Leasable
from agents.models import Agent, Channel, Message

IDLE = timedelta(minutes=5)  # without a round, after which a reply counts as over: LiteLLM does not say when it is
WAITING = timedelta(minutes=15)  # for the first round, after which a call counts as failed


class GatedReply(Leasable):
    """A call of a model through LiteLLM: what its replies looked like in the last round. Work once it is over: it is to be stored.

    Any process can answer the next round with it. Its texts are those of the call until it is stored; then what was said is in the
    channel, and the verdicts are in the correction log.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", help_text="whose token LiteLLM uses"
    )
    call_id = models.CharField(max_length=200, help_text="LiteLLM's id of the call, or the client's")
    caller = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="digest of the client's key and its end user: ids of different callers may be the same",
    )
    agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="gated_replies",
        help_text="who speaks; empty where the system message is the persona",
    )  # fmt: skip
    context = models.JSONField(
        default=dict, blank=True, help_text="what was said before the reply; empty once it is stored"
    )
    replies = models.JSONField(default=list, blank=True, help_text="per choice the reply so far, and how far it passed")
    rounds = models.PositiveIntegerField(default=0, help_text="rounds with a reply so far")
    last_round_at = models.DateTimeField(default=timezone.now)
    conversation = models.CharField(
        max_length=120,
        blank=True,
        default="",
        help_text="slug of the channel it is stored in; empty where it is not stored",
    )
    channel = models.ForeignKey(
        Channel, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="where it is stored"
    )
    message = models.ForeignKey(
        Message,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="the reply as it was said",
    )

    class Meta:
        verbose_name = "gated reply"
        verbose_name_plural = "gated replies"
        db_table = "gated_replies"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(
                fields=["created_at", "id"], condition=Q(status__in=["pending", "running"]), name="gated_reply_open"
            ),
            models.Index(fields=["status", "created_at"], name="gated_reply_status_created"),
            models.Index(
                fields=["conversation"], condition=Q(status__in=["pending", "running"]), name="gated_reply_conversation"
            ),
        ]
        constraints: ClassVar = [models.UniqueConstraint(fields=["call_id", "caller", "user"], name="gated_reply_once")]

    def __str__(self) -> str:
        return f"reply of call {self.call_id}"

    @classmethod
    def leasable(cls) -> Q:
        """Return the condition for replies that are over and not stored yet."""
        return cls.leasable_when_due()
