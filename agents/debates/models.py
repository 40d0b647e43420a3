"""Structured debates: the question and its seats, what each round came to, and what became of each seat's turn. Answers are messages."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from agents.kit.models.lease import Leasable
from agents.models.conversations import Agent, Channel, Message
from agents.models.runs import Run

USER = settings.AUTH_USER_MODEL  # `settings` is a column


class Debate(Leasable):
    """A debate. Between rounds it is `waiting`; asking for rounds queues it, and a worker or the caller plays them."""

    TAG: ClassVar = "debate"  # of every message of a debate; its value is the slug of the channel
    WAITING = "waiting"
    STATES: ClassVar = [(WAITING, "waits for its next round"), *Leasable.Status.choices]

    status = models.CharField(
        max_length=16, choices=STATES, default=WAITING, help_text="what it waits for, or how it ended"
    )
    channel = models.OneToOneField(Channel, on_delete=models.CASCADE, related_name="debate")
    mode = models.CharField(max_length=64, help_text="its rules, e.g. delphi")
    topic = models.TextField(help_text="the question that is debated")
    settings = models.JSONField(
        default=dict,
        blank=True,
        help_text="exit criteria, poll, perspectives and the other settings, as they were given",
    )
    rounds_asked = models.PositiveSmallIntegerField(
        default=0, help_text="it plays up to this round, the poll not counted, and then waits"
    )
    exit_reason = models.CharField(
        max_length=16,
        blank=True,
        default="",
        help_text="consensus, convergence, confidence or max_rounds; empty = none",
    )
    exit_details = models.TextField(blank=True, default="", help_text="the figures behind the reason")
    created_by = models.ForeignKey(USER, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        db_table = "debates"
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(
                fields=["created_at", "id"],
                condition=Q(status__in=["pending", "running"]),
                name="debate_open",
            ),
            models.Index(fields=["status", "finished_at"], name="debate_status_finished"),
        ]

    def __str__(self) -> str:
        return f"debate {self.pk}: {self.topic[:60]}"


class DebateSeat(models.Model):
    """An agent's place in a debate."""

    debate = models.ForeignKey(Debate, on_delete=models.CASCADE, related_name="seats", db_index=False)
    number = models.PositiveSmallIntegerField(help_text="from 1, in the order of speaking")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="debate_seats")
    role = models.CharField(
        max_length=64, blank=True, default="", help_text="given by the mode, e.g. opposition or red"
    )
    perspective = models.CharField(max_length=64, blank=True, default="", help_text="in an expert panel, e.g. economic")
    label = models.CharField(
        max_length=64, help_text="what the others call it where names are hidden, e.g. Participant 2"
    )
    model = models.CharField(max_length=200, blank=True, default="", help_text="acts instead of the agent's own model")

    class Meta:
        db_table = "debate_seats"
        ordering: ClassVar = ["debate", "number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["debate", "number"], name="debate_seat_number_unique"),
            models.UniqueConstraint(fields=["debate", "agent"], name="debate_seat_agent_unique"),
        ]

    def __str__(self) -> str:
        return f"seat {self.number} of debate {self.debate_id}"


class DebateRound(models.Model):
    """The results of a round. Written once, when every seat has answered or failed."""

    debate = models.ForeignKey(Debate, on_delete=models.CASCADE, related_name="rounds", db_index=False)
    number = models.PositiveSmallIntegerField(help_text="0 = the blind poll")
    consensus = models.JSONField(
        default=dict, help_text="agreement, clusters, common ground, disagreements, summary, and who judged"
    )
    groupthink = models.JSONField(
        default=dict, help_text="whether it was detected, its indicators, what is recommended"
    )
    statistics = models.JSONField(
        default=dict, help_text="counts of stances, quartiles of confidence, changes since the round before"
    )
    exit = models.JSONField(default=dict, help_text="whether the debate ends here, the reason and its figures")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "debate_rounds"
        ordering: ClassVar = ["debate", "number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["debate", "number"], name="debate_round_number_unique")
        ]

    def __str__(self) -> str:
        return f"round {self.number} of debate {self.debate_id}"


class DebateTurn(models.Model):
    """The outcome of a seat in a round. Its answer is the message."""

    class Status(models.TextChoices):
        PENDING = "pending", "pending"
        ANSWERED = "answered", "answered"
        SILENT = "silent", "said nothing"
        FAILED = "failed", "failed"

    debate = models.ForeignKey(Debate, on_delete=models.CASCADE, related_name="turns", db_index=False)
    round = models.PositiveSmallIntegerField(help_text="0 = the blind poll")
    seat = models.ForeignKey(DebateSeat, on_delete=models.CASCADE, related_name="turns")
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    message = models.ForeignKey(Message, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    violation = models.TextField(blank=True, default="", help_text="the rule that its answer breaks; empty = none")
    error = models.TextField(blank=True, default="", help_text="why there is no answer")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "debate_turns"
        ordering: ClassVar = ["debate", "round", "seat"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["debate", "round", "seat"], name="debate_turn_once_per_round")
        ]

    def __str__(self) -> str:
        return f"turn of seat {self.seat_id} in round {self.round}"
