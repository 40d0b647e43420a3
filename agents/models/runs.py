"""An agent's turn and what happened in it: runs, steps, and the messages exchanged with the model."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from django.db import models
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from agents.kit.models.lease import Leasable, owner_is_dead
from agents.models.conversations import Agent, Channel, Message


class Run(Leasable):
    """One turn of an agent, claimed like all work."""

    class StopReason(models.TextChoices):
        END_TURN = "end_turn", "ended its turn"
        ERROR = "error", "error"
        MAX_STEPS = "max_steps", "step limit"
        NO_TOOL_CALL = "no_tool_call", "no tool call"
        CANCELLED = "cancelled", "cancelled"

    WHOSE: ClassVar = F("agent_id")

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="runs")
    channel = models.ForeignKey(Channel, null=True, blank=True, on_delete=models.SET_NULL, related_name="runs")
    trigger = models.ForeignKey(
        Message,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="triggered_runs",
        help_text="the message it answers",
    )
    prompt = models.TextField(
        blank=True,
        default="",
        help_text="what an operator asks of this turn; shown to the agent, not said in the channel",
    )
    depth = models.PositiveSmallIntegerField(
        default=0,
        help_text="how many agents' replies led to this one without a person; limited by TURN_MAX_REPLY_DEPTH",
    )
    cancel_requested = models.BooleanField(default=False, help_text="stop before the next step")
    idempotency_key = models.CharField(max_length=200, null=True, blank=True, unique=True)
    stop_reason = models.CharField(max_length=16, choices=StopReason.choices, blank=True, default="")
    overrides = models.JSONField(
        default=dict, blank=True, help_text="settings for this run only, read by the stages above"
    )
    trace = models.JSONField(
        default=list,
        blank=True,
        help_text="per stage: ran, running, interrupted, skipped or failed, milliseconds, counters",
    )

    class Meta:
        verbose_name = "turn"
        db_table = "runs"
        ordering: ClassVar = ["-created_at"]
        indexes: ClassVar = [
            models.Index(fields=["status", "created_at"], name="run_status_created"),
            models.Index(
                fields=["agent", "created_at", "id"],
                condition=Q(status__in=["pending", "running"]),
                name="run_open_of_agent",
            ),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent"], condition=Q(status="running"), name="run_one_running_per_agent"),
        ]

    def __str__(self) -> str:
        return f"turn {self.pk} of {self.agent}"

    @classmethod
    def in_turn(cls, free: QuerySet[Any] | None = None, *, lost_first: bool = True) -> list[Self]:
        """Return the turns that may begin or go on now, those that were lost first: they hold their agent until they end.

        Turns of an agent that is busy with another one wait, and do not hold up other agents'. Turns whose process is known to be dead may
        go on before their lease ends.

        Args:
            free: What may be leased; None = what `leasable` says, and the turns of dead processes.
        """
        now = timezone.now()
        dead = []
        busy = []
        for run in cls.objects.filter(status=cls.Status.RUNNING).only("agent_id", "lease_owner", "lease_expires_at"):
            if owner_is_dead(run.lease_owner):
                dead.append(run.pk)
            elif run.lease_expires_at is not None and run.lease_expires_at >= now:
                busy.append(run.agent_id)
        rows = cls.objects.filter(cls.leasable() | Q(pk__in=dead)) if free is None else free
        return super().in_turn(rows.exclude(agent_id__in=busy), lost_first=lost_first)

    def given_up(self, why: str) -> None:
        type(self).objects.filter(pk=self.pk).update(stop_reason=self.StopReason.ERROR)


class RunStep(models.Model):
    """One model call of a run and the tools it used."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="steps")
    number = models.PositiveIntegerField(help_text="from 1")
    kind = models.CharField(max_length=32, help_text="model_call or tool_call")
    detail = models.JSONField(default=dict, blank=True)
    duration_ms = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "run_steps"
        ordering: ClassVar = ["run", "number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "number"], name="run_step_number_unique")]

    def __str__(self) -> str:
        return f"step {self.number} of run {self.run_id}"


class RunMessage(models.Model):
    """One entry of the exchange with the model. That of a sent message links to its `Message`."""

    class Role(models.TextChoices):
        SYSTEM = "system", "system"
        USER = "user", "user"
        ASSISTANT = "assistant", "assistant"
        TOOL = "tool", "tool"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="run_messages")
    step = models.ForeignKey(RunStep, null=True, blank=True, on_delete=models.SET_NULL, related_name="run_messages")
    number = models.PositiveIntegerField(help_text="order in the exchange, from 1")
    role = models.CharField(max_length=12, choices=Role.choices)
    tool_name = models.CharField(max_length=64, blank=True, default="")
    content = models.JSONField(default=dict)
    message = models.ForeignKey(Message, null=True, blank=True, on_delete=models.SET_NULL, related_name="run_messages")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "run_messages"
        ordering: ClassVar = ["run", "number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "number"], name="run_message_number_unique")]

    def __str__(self) -> str:
        return f"{self.role} {self.number} of run {self.run_id}"
