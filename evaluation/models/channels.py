"""What evaluations of channels add: their part in an agent's evaluation, and the ideas found (S-6.6)."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from agents.models import Channel, Leasable


class ChannelShare(models.Model):
    """A channel's evaluation as part of an agent's, with how much of the conversation is the agent's."""

    agent_run = models.ForeignKey("evaluation.EvaluationRun", on_delete=models.CASCADE, related_name="channel_shares")
    channel_run = models.ForeignKey("evaluation.EvaluationRun", on_delete=models.CASCADE, related_name="agent_shares")
    messages = models.PositiveIntegerField(help_text="the agent's messages there: its weight in the agent's mean")

    class Meta:
        db_table = "evaluation_channel_shares"
        ordering: ClassVar = ["agent_run", "-messages", "pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent_run", "channel_run"], name="channel_share_once"),
        ]

    def __str__(self) -> str:
        return f"{self.channel_run.channel} in evaluation {self.agent_run_id}"


class IdeaPart(models.Model):
    """A stretch of a conversation whose ideas were listed; what is stored here is not asked again."""

    evaluation_score = models.ForeignKey(
        "evaluation.EvaluationScore", on_delete=models.CASCADE, related_name="idea_parts"
    )
    number = models.PositiveIntegerField(help_text="from 1, in order of the conversation")
    first_position = models.PositiveBigIntegerField()
    last_position = models.PositiveBigIntegerField()
    listed = models.BooleanField(default=False, help_text="whether the judge listed its ideas")

    class Meta:
        db_table = "evaluation_idea_parts"
        ordering: ClassVar = ["evaluation_score", "number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation_score", "number"], name="idea_part_once"),
        ]

    def __str__(self) -> str:
        return f"part {self.number} of judgement {self.evaluation_score_id}"


class Idea(models.Model):
    """One idea the judge listed. One that says the same as another points to it and is not counted."""

    part = models.ForeignKey(IdeaPart, on_delete=models.CASCADE, related_name="ideas")
    number = models.PositiveIntegerField(help_text="from 1, in order within the part")
    idea = models.TextField()
    description = models.TextField(blank=True, default="")
    positions = models.JSONField(default=list, blank=True, help_text="where in the channel it was said")
    same_as = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="variants", help_text="empty = counted"
    )

    class Meta:
        db_table = "evaluation_ideas"
        ordering: ClassVar = ["part", "number"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["part", "number"], name="idea_once")]

    def __str__(self) -> str:
        return self.idea[:80]


class LineUpRun(Leasable):
    """A voice line-up of a channel, made by a worker: it takes seconds, which no page should wait for."""

    WHOSE: ClassVar = F("channel_id") * -1

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="line_ups")
    window = models.CharField(max_length=32, default="all", help_text="all, last:N, or a duration such as 7d or 24h")
    where = models.JSONField(default=dict, blank=True, help_text="tags a message must have to be compared")
    result = models.JSONField(default=dict, blank=True, help_text="what `manage.py lineup --json` prints")
    last_position = models.PositiveBigIntegerField(
        default=0, help_text="the channel's newest message when it was measured"
    )

    class Meta:
        db_table = "evaluation_line_ups"
        verbose_name = "voice line-up"
        ordering: ClassVar = ["-created_at", "-pk"]
        indexes: ClassVar = [models.Index(fields=["channel", "-created_at"], name="line_up_channel_created")]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["channel"], condition=Q(status__in=["pending", "running"]), name="line_up_one_waiting"
            ),
        ]

    def __str__(self) -> str:
        return f"voices in {self.channel}"
