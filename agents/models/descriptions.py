"""Descriptions that are to be written again because the persona changed."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from agents.models.conversations import Agent, PersonaVersion
from agents.models.ledger import LLMCall
from agents.work.lease import Leasable


class DescriptionUpdate(Leasable):
    """One agent's description that is to be written again. Completed with an `error`: it was left as it is, and why.

    It is written for the persona as it is when its turn comes.
    """

    WHOSE: ClassVar = F("agent_id")

    agent = models.ForeignKey(
        Agent, on_delete=models.CASCADE, related_name="description_updates", db_index=False, help_text="whose"
    )
    persona_version = models.ForeignKey(
        PersonaVersion,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="the change that asked for it",
    )
    written = models.BooleanField(default=False, help_text="whether the description was replaced")
    judge = models.CharField(max_length=200, blank=True, default="", help_text="model asked")
    call = models.ForeignKey(LLMCall, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        db_table = "description_updates"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(fields=["agent", "created_at", "id"], name="description_of_agent"),
            models.Index(
                fields=["agent", "created_at", "id"],
                condition=Q(status__in=["pending", "running"]),
                name="description_open_of_agent",
            ),
        ]

    def __str__(self) -> str:
        return f"description of {self.agent.slug} ({self.status})"

    @classmethod
    def leasable(cls) -> Q:
        return cls.leasable_when_due()

    @property
    def work_id(self) -> str:
        """The ledger's name for it."""
        return f"description_update:{self.pk}"
