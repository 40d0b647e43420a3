"""Behaviour requests: what a person asked an agent to do differently, tier by tier, and what was decided (specification 002)."""

from __future__ import annotations

from enum import nonmember
from typing import Any, ClassVar

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from agents.kit.models import Leasable, LLMCall
from agents.models import Agent, Message, PersonaVersion, Trait

MESSAGES, MOST_MESSAGES = 10, 100  # judged before a change and after it


def _call() -> models.ForeignKey[LLMCall | None, LLMCall | None]:
    return models.ForeignKey(LLMCall, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")


def _version(help_text: str) -> models.ForeignKey[PersonaVersion | None, PersonaVersion | None]:
    return models.ForeignKey(
        PersonaVersion, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text=help_text
    )


def _tier(help_text: str) -> models.JSONField[object, object]:
    return models.JSONField(null=True, blank=True, help_text=f"{help_text}; empty = not asked yet")


class BehaviorRequest(Leasable):
    """One message read for one agent: did it ask for a change, for which, and was it made? Work, leased like all work.

    The text is the message's. Outlives message and agent, for a persona version may refer to it.
    """

    class Status(models.TextChoices):  # it ends in more ways than other work
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        NO_REQUEST = "no_request", "no request"
        DETECTED = "detected", "detected, no change"
        APPLIED = "applied", "applied"
        PENDING_REVIEW = "pending_review", "pending review"
        REJECTED = "rejected", "rejected"
        REVERTED = "reverted", "reverted"
        FAILED = "failed", "failed"
        ERRORED = "errored", "errored"
        CANCELLED = "cancelled", "cancelled"
        PAUSED_BUDGET = "paused_budget", "paused (budget)"
        PENDING = nonmember("queued")  # what all work calls it

    class Confidence(models.TextChoices):
        """The gate's confidence, in its own three levels."""

        HIGH = "high", "high"
        MEDIUM = "medium", "medium"
        LOW = "low", "low"

    class Operation(models.TextChoices):
        ADD = "add", "add"
        UPDATE = "update", "update"
        STOP = "stop", "stop"
        NONE = "none", "none"

    deleted_with_chat: ClassVar = True  # what was asked for in a chat holds in that chat (`agents.chat.delete_chat`)
    OPEN: ClassVar[tuple[str, ...]] = (Status.QUEUED, Status.RUNNING)
    FINAL: ClassVar[tuple[str, ...]] = (
        Status.NO_REQUEST,
        Status.DETECTED,
        Status.APPLIED,
        Status.PENDING_REVIEW,  # the machine's part has ended
        Status.REJECTED,
        Status.REVERTED,
        Status.FAILED,
        Status.ERRORED,
        Status.CANCELLED,
    )
    WITHOUT_REQUEST: ClassVar[tuple[str, ...]] = (Status.QUEUED, Status.RUNNING, Status.NO_REQUEST)  # none, or none yet
    WHOSE: ClassVar = F("whose")

    status = models.CharField(
        max_length=16,
        choices=Status.choices,
        default=Status.QUEUED,
        help_text="detected = a request that changes nothing; failed = a model call failed, can be tried again; errored = a crash",
    )
    whose = models.BigIntegerField(
        default=0, editable=False, help_text="key of the agent when it was queued: agents come in turn; never empty"
    )
    message = models.ForeignKey(
        Message, null=True, on_delete=models.SET_NULL, related_name="behavior_requests", db_index=False,
        help_text="where it was asked; empty when the message was deleted",
    )  # fmt: skip
    agent = models.ForeignKey(
        Agent, null=True, on_delete=models.SET_NULL, related_name="behavior_requests", db_index=False,
        help_text="who was asked; empty when the agent was deleted",
    )  # fmt: skip
    gate_result = _tier("has_request, confidence, reason")
    gate_call = _call()
    extract_result = _tier("behavior_name, current_state, requested_change")
    extract_call = _call()
    map_result = _tier("the trait as the model would have it; {} = no change needed")
    map_call = _call()
    map_digest = models.CharField(
        max_length=64, blank=True, default="", editable=False,
        help_text="digest of the persona that the map tier was shown; if it differs now, the tier is asked again",
    )  # fmt: skip
    judge = models.CharField(
        max_length=200, blank=True, default="", help_text="model asked; offline ones are heuristic"
    )
    confidence = models.CharField(max_length=6, choices=Confidence.choices, blank=True, default="")
    operation = models.CharField(max_length=6, choices=Operation.choices, blank=True, default="")
    trait = models.ForeignKey(
        Trait, null=True, blank=True, on_delete=models.SET_NULL, related_name="+",
        help_text="the row that was changed or made; its name may differ now",
    )  # fmt: skip
    trait_name = models.CharField(max_length=120, blank=True, default="", help_text="its name after the change")
    scope_key = models.CharField(
        max_length=80, blank=True, default="", editable=False,
        help_text="where it holds: empty = the whole persona; channel:ID, user:ID or outsider:CHANNEL:DIGEST = there only",
    )  # fmt: skip
    trait_before = models.JSONField(
        null=True, blank=True, help_text="name, description, sentiment, strength; empty = there was none"
    )
    trait_after = models.JSONField(null=True, blank=True, help_text="the same after the change, made or proposed")
    persona_version_before = _version("what the change was made to")
    persona_version = _version("what the change made")
    automatic = models.BooleanField(default=False, help_text="applied automatically; counts against the daily limit")
    why = models.TextField(blank=True, default="", help_text="why it waits for a person, or why nothing was changed")
    warnings = models.JSONField(default=list, blank=True, help_text="what was odd about the answer, a list of texts")
    reviewed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+",
        help_text="who applied, rejected or reverted it last",
    )  # fmt: skip
    reviewed_at = models.DateTimeField(null=True, blank=True)
    applied_at = models.DateTimeField(null=True, blank=True)
    reverted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "behavior_requests"
        ordering: ClassVar = ["-pk"]
        verbose_name = "behaviour request"
        indexes: ClassVar = [
            models.Index(fields=["agent", "created_at"], name="behavior_agent_created"),
            models.Index(fields=["status", "created_at"], name="behavior_status_created"),
            models.Index(fields=["created_at", "id"], name="behavior_created"),
            models.Index(fields=["agent", "status", "applied_at"], name="behavior_agent_status"),
            models.Index(Lower("trait_name"), "created_at", condition=~Q(trait_name=""), name="behavior_trait_created"),
            models.Index(
                fields=["whose", "created_at", "id"],
                condition=Q(status__in=["queued", "running"]),
                name="behavior_open_of_whom",
            ),
            models.Index(
                fields=["agent", "applied_at"], condition=Q(automatic=True), name="behavior_applied_by_itself"
            ),
            models.Index(
                fields=["agent", "scope_key"],
                condition=Q(status="applied") & ~Q(scope_key=""),
                name="behavior_applied_in_scope",
            ),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["message", "agent"], name="behavior_request_once"),
            models.CheckConstraint(
                condition=~Q(status__in=["applied", "reverted"]) | (Q(applied_at__isnull=False) & ~Q(trait_name="")),
                name="behavior_applied_has_trait",
            ),
            models.CheckConstraint(
                condition=~Q(status="reverted") | Q(reverted_at__isnull=False), name="behavior_reverted_has_time"
            ),
        ]

    def __str__(self) -> str:
        return f"behaviour request {self.pk} ({self.get_status_display()})"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self._state.adding:
            self.whose = self.agent_id or 0
        super().save(*args, **kwargs)

    @classmethod
    def leasable(cls) -> Q:
        return cls.leasable_when_due()

    @property
    def work_id(self) -> str:
        """Return the ledger's name for it: every call made for it carries it."""
        return f"behavior_request:{self.pk}"


UNFINISHED = (Leasable.Status.PENDING, Leasable.Status.RUNNING, Leasable.Status.PAUSED_BUDGET)


class BehaviorEffect(Leasable):
    """One evaluation of whether a request changed anything: its trait, judged on messages before and after it.

    Failed with a `result`: the judge scored no message, and the result says of each why.
    """

    WHOSE: ClassVar = F("whose")

    whose = models.BigIntegerField(
        default=0, editable=False, help_text="key of the agent when it was queued: agents come in turn; never empty"
    )
    request = models.ForeignKey(
        BehaviorRequest, on_delete=models.CASCADE, related_name="effects", db_index=False, help_text="what was applied"
    )
    messages = models.PositiveSmallIntegerField(
        default=MESSAGES,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_MESSAGES)],
        help_text=f"most messages before and after, 1 to {MOST_MESSAGES}",
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
        """Return the ledger's name for it: begins with the request's, apart from the calls of its tiers."""
        return f"behavior_request:{self.request_id}/effect:{self.pk}"


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
        return f"description of {self.agent} ({self.status})"

    @classmethod
    def leasable(cls) -> Q:
        return cls.leasable_when_due()

    @property
    def work_id(self) -> str:
        """Return the ledger's name for it."""
        return f"description_update:{self.pk}"
