"""What the gate did: a session per message, its attempts, one row per dimension judged in each; messages waiting to be observed."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from agents.kit.models import Leasable, LLMBatch, LLMCall
from agents.models import Agent, Channel, Message, PersonaVersion, Run


class Outcome(models.TextChoices):
    """How an attempt ended; docs/explanation/correction.md says what each means."""

    PASSED = "passed", "passed"
    CORRECTED = "corrected", "sent back with feedback"
    PASSED_AFTER_RETRY = "passed_after_retry", "passed after retry"
    FORCED_THROUGH = "forced_through", "forced through (best attempt sent)"
    TIMEOUT_PASSED = "timeout_passed", "passed: judged too late"
    OVERLOAD_PASSED = "overload_passed", "passed: judge overloaded"
    ERROR_PASSED = "error_passed", "passed: judge failed"
    UNSCORED_PASSED = "unscored_passed", "passed: could not be judged"
    BUDGET_PASSED = "budget_passed", "passed: budget used up"
    OBSERVED = "observed", "observed (sent before it was judged)"
    ABANDONED = "abandoned", "abandoned by the agent"


def synthetic_logs(prefix: str = "") -> Q:
    """Return the condition for logs of synthetic channels: of a simulation or a demonstration, in no figure of real drafts.

    Args:
        prefix: Path from the filtered model to the log, e.g. ``log__``.
    """
    return Q(**{f"{prefix}session__channel__in": Channel.objects.filter(synthetic=True).values("pk")})


class GateSession(models.Model):
    """The drafts of one message: whose they are, and how it ended. Made with its first attempt, and ended once.

    `attempts` are those logged so far, oldest first, where `correction.gate.sessions` loaded them.
    """

    attempts: tuple[CorrectionLog, ...] = ()

    class Source(models.TextChoices):
        GATE = "gate", "gate"
        OBSERVE = "observe", "observed"
        EXTERNAL = "external", "external"

    uuid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False, help_text="what other programs know it by")
    source = models.CharField(max_length=8, choices=Source.choices, default=Source.GATE)
    agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="gate_sessions", db_index=False,
        help_text="empty for an external check with a persona of its own",
    )  # fmt: skip
    channel = models.ForeignKey(Channel, null=True, blank=True, on_delete=models.SET_NULL, related_name="gate_sessions")
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="gate_sessions")
    message = models.ForeignKey(
        Message, null=True, blank=True, on_delete=models.SET_NULL, related_name="gate_sessions",
        help_text="what was said in the end",
    )  # fmt: skip
    speaker = models.CharField(
        max_length=120, blank=True, default="", db_default="", help_text="who spoke, where it is no agent of ours"
    )
    tags = models.JSONField(
        default=dict, blank=True, db_default=models.Value({}, models.JSONField()),
        help_text="what another program said of its draft: key -> value, both texts",
    )  # fmt: skip
    outcome = models.CharField(
        max_length=20, choices=Outcome.choices, blank=True, default="",
        help_text="how it ended; empty = open: each draft so far was sent back",
    )  # fmt: skip
    sent = models.PositiveSmallIntegerField(null=True, blank=True, help_text="the attempt whose text was said")
    inclusion_weight = models.FloatField(
        default=1.0,
        db_default=1.0,
        help_text="for how many messages an observed one stands in means: 1 ÷ the chance with which its conversation was kept and observed",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "gate_sessions"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(fields=["agent", "created_at"], name="gate_session_agent_created"),
            models.Index(fields=["source", "created_at"], name="gate_session_source_created"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=~Q(outcome="") | Q(sent__isnull=True, message__isnull=True),
                name="gate_session_open_said_nothing",
            )
        ]

    def __str__(self) -> str:
        return f"gate session {self.uuid}"

    @property
    def work_id(self) -> str:
        """Return the ledger's name for the session: every call made for it carries it."""
        return f"gate_session:{self.uuid}"

    @property
    def next_number(self) -> int:
        """Return the number of the next attempt, from 1."""
        return self.attempts[-1].attempt + 1 if self.attempts else 1

    @property
    def spent_seconds(self) -> float:
        """Return the seconds of judging so far."""
        return sum(attempt.duration_ms for attempt in self.attempts) / 1000


class CorrectionLog(models.Model):
    """One attempt at a message as the gate saw it. Never edited but for its outcome, when its session ends by it.

    `results` are its dimensions, where it was just judged or `correction.gate.sessions` loaded it.
    """

    results: tuple[GateDimensionResult, ...] = ()

    session = models.ForeignKey(GateSession, on_delete=models.CASCADE, related_name="logs", db_index=False)
    attempt = models.PositiveSmallIntegerField(help_text="1 = the first draft")
    draft_key = models.CharField(
        max_length=200, null=True, blank=True, unique=True,
        help_text="idempotency key of the send: the same draft is not judged twice",
    )  # fmt: skip
    original_text = models.TextField(help_text="the draft as the agent wrote it")
    judged_text = models.TextField(help_text="the draft as it was judged and would be said")
    payload = models.JSONField(default=dict, blank=True, help_text="typed data beside the draft, sent with it")
    outcome = models.CharField(max_length=20, choices=Outcome.choices)
    feedback = models.TextField(blank=True, default="", help_text="feedback to the agent")
    score_sum = models.FloatField(null=True, blank=True, help_text="sum of the dimensions' scores; empty = none scored")
    judge = models.CharField(
        max_length=200, blank=True, default="", help_text="model asked; offline ones are heuristic"
    )
    persona_version = models.ForeignKey(
        PersonaVersion, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    duration_ms = models.PositiveIntegerField(default=0, help_text="milliseconds of judging")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "gate attempt"
        db_table = "correction_logs"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(fields=["created_at"], name="correction_created"),
            models.Index(fields=["outcome", "created_at"], name="correction_outcome_created"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["session", "attempt"], name="correction_attempt_once"),
            models.CheckConstraint(condition=Q(attempt__gte=1), name="correction_attempt_positive"),
        ]

    def __str__(self) -> str:
        return f"attempt {self.attempt}"

    @property
    def committed(self) -> bool:
        """Return whether this attempt's text is the one that was sent."""
        return self.session.sent == self.attempt

    def blank_quotes(self) -> None:
        """Blank draft, feedback and payload, to show the row to a user who may not read messages; it must not be saved afterwards."""
        self.original_text = self.judged_text = self.feedback = ""
        self.payload = {}


class GateDimensionResult(models.Model):
    """One dimension of one attempt: score, threshold, and what people say of the verdict."""

    class Status(models.TextChoices):
        SCORED = "scored", "scored"
        TRIVIAL = "trivial", "trivial"
        UNSCORED = "unscored", "unscored"
        TIMEOUT = "timeout", "too late"
        OVERLOAD = "overload", "judge overloaded"
        ERROR = "error", "judge failed"
        BUDGET = "budget", "budget used up"

    class Mark(models.TextChoices):
        RIGHT = "right", "right"
        FALSE_ALARM = "false_alarm", "false alarm"

    log = models.ForeignKey(CorrectionLog, on_delete=models.CASCADE, related_name="dimension_results")
    dimension = models.CharField(max_length=32)
    status = models.CharField(max_length=10, choices=Status.choices)
    score = models.FloatField(
        null=True, blank=True, help_text="0 to 9, the worst of judge, rules and cues; empty = not judged"
    )
    threshold = models.DecimalField(
        max_digits=3, decimal_places=1, help_text="lowest score that passes, as it was then"
    )
    passed = models.BooleanField(help_text="also true when it could not be judged (fail-open)")
    reasoning = models.TextField(blank=True, default="")
    recommendations = models.TextField(blank=True, default="")
    reason = models.CharField(max_length=300, blank=True, default="", help_text="why it was not judged")
    judge = models.CharField(
        max_length=200, blank=True, default="", help_text="rule, or the model that decided the score"
    )
    proposition_id = models.CharField(
        max_length=120, blank=True, default="", help_text="the one that decided the score"
    )
    parts = models.JSONField(
        default=list, blank=True, help_text="every rule, cue and claim looked at: id, judge, status, score, reasoning"
    )
    call = models.ForeignKey(LLMCall, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    duration_ms = models.PositiveIntegerField(default=0)
    mark = models.CharField(
        max_length=12, choices=Mark.choices, blank=True, default="", help_text="what a person says of a failed check"
    )
    marked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    marked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "correction_dimension_results"
        ordering: ClassVar = ["log", "dimension"]
        indexes: ClassVar = [
            models.Index(fields=["dimension", "mark"], condition=~Q(mark=""), name="gate_result_marked")
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["log", "dimension"], name="gate_result_once"),
            models.CheckConstraint(
                condition=Q(status="scored", score__isnull=False, score__gte=0, score__lte=9)
                | Q(status="trivial")
                | (~Q(status__in=["scored", "trivial"]) & Q(score__isnull=True, passed=True)),
                name="gate_result_score_matches_status",
            ),
            models.CheckConstraint(condition=Q(mark="") | Q(passed=False), name="gate_result_marks_failures_only"),
        ]

    def __str__(self) -> str:
        return f"{self.dimension}: {self.score if self.score is not None else self.status}"

    def blank_quotes(self) -> None:
        """Blank what quotes the draft, to show the row to a user who may not read messages; it must not be saved afterwards."""
        self.reasoning = self.recommendations = self.reason = ""
        self.parts = []


class ObservedMessage(Leasable):
    """A message already said that is to be judged afterwards (observe mode). Work, leased like all work."""

    WHOSE: ClassVar = F("whose")

    whose = models.BigIntegerField(
        default=0, editable=False, help_text="who said it, as it was queued: agents come in turn; 0 = no agent"
    )
    message = models.OneToOneField(Message, on_delete=models.CASCADE, related_name="observation")
    session = models.UUIDField(unique=True)
    inclusion_weight = models.FloatField(
        default=1.0,
        db_default=1.0,
        help_text="for how many messages it stands in means: 1 ÷ the chance with which its conversation was kept and observed",
    )
    dimensions = models.JSONField(
        default=list, blank=True, help_text="asked for by a person, also while the gate is off; empty = as configured"
    )
    waits_since = models.DateTimeField(
        null=True,
        blank=True,
        help_text="since when it waits for a batch: to be put in one, or for its answers; empty = a worker judges it as soon as it can",
    )
    batch = models.ForeignKey(
        LLMBatch,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="observed_messages",
        help_text="in which its judge was asked last",
    )
    batches = models.PositiveSmallIntegerField(default=0, help_text="in how many batches its judge was asked")

    class Meta:
        db_table = "observed_messages"
        ordering: ClassVar = ["pk"]
        indexes: ClassVar = [
            models.Index(fields=["status", "created_at"], name="observed_status_created"),
            models.Index(
                fields=["whose", "created_at", "id"],
                condition=Q(status__in=["pending", "running"], waits_since=None),
                name="observed_open_of_whom",
            ),
            models.Index(
                fields=["whose", "waits_since"],
                condition=Q(waits_since__isnull=False, batch=None),
                name="observed_waits_for_batch",
            ),
        ]

    def __str__(self) -> str:
        return f"observation of message {self.message_id}"

    @classmethod
    def leasable(cls) -> Q:
        """Return the condition of all work, for messages that wait for no batch."""
        return super().leasable() & Q(waits_since=None)

    @property
    def work_id(self) -> str:
        """Return the name of its session in the ledger."""
        return GateSession(uuid=self.session).work_id
