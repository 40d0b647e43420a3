"""Where agents speak and what was said: channels, members, messages, reactions."""

from __future__ import annotations

import re
import uuid
from typing import ClassVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from agents.models.personas import Agent, PersonaVersion

TAG_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def validate_tags(value: object) -> None:
    """Tags are an object of texts, e.g. ``{"build": "41", "locale": "en"}``; a key starts with a letter."""
    if not isinstance(value, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise ValidationError('Tags are pairs of texts, e.g. {"build": "41"}; got %(value)r.', params={"value": value})
    for key in value:
        if not TAG_KEY.fullmatch(key):
            raise ValidationError(
                "Tag key %(key)r: a letter, then up to 63 letters, digits, _ . or -.", params={"key": key}
            )


def new_external_id() -> str:
    return uuid.uuid4().hex


class Channel(models.Model):
    """A conversation: its messages have one order, their `position`."""

    class Kind(models.TextChoices):
        PUBLIC = "public", "public"
        PRIVATE = "private", "private"
        DM = "dm", "direct message"
        DEBATE = "debate", "debate"
        EXPERIMENT = "experiment", "experiment"

    slug = models.SlugField(max_length=120, unique=True, help_text="the channel's id in commands, files and the API")
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.PUBLIC)
    topic = models.TextField(blank=True, default="")
    tags = models.JSONField(default=dict, blank=True, validators=[validate_tags], help_text="key -> value, both texts")
    synthetic = models.BooleanField(
        default=False,
        help_text="for simulations and demonstrations: its messages are never mixed with real ones",
    )
    next_position = models.PositiveBigIntegerField(
        default=1, editable=False, help_text="position of the next message; raised by the statement that takes it"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "channels"
        ordering: ClassVar = ["kind", "name"]
        indexes: ClassVar = [models.Index(fields=["kind", "name"], name="channel_kind_name")]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(kind__in=["public", "private", "dm", "debate", "experiment"]), name="channel_kind_known"
            ),
            models.CheckConstraint(condition=~Q(slug=""), name="channel_slug_given"),
        ]

    def __str__(self) -> str:
        return self.name if self.kind == self.Kind.DM else f"#{self.name}"


class ChannelMember(models.Model):
    """An agent or a user who may read and write in a channel."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="memberships")
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    joined_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "channel_members"
        ordering: ClassVar = ["channel", "joined_at", "pk"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(agent__isnull=False, user__isnull=True) | Q(agent__isnull=True, user__isnull=False),
                name="channel_member_agent_or_user",
                violation_error_message="A member is an agent or a user, one of the two.",
            ),
            models.UniqueConstraint(
                fields=["channel", "agent"], condition=Q(agent__isnull=False), name="channel_agent_unique"
            ),
            models.UniqueConstraint(
                fields=["channel", "user"], condition=Q(user__isnull=False), name="channel_user_unique"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.agent or self.user} in {self.channel}"


class Message(models.Model):
    """What was really said, once. Drafts that were rejected are not messages."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="messages")
    position = models.PositiveBigIntegerField(help_text="place in the channel's order, from 1")
    external_id = models.CharField(
        max_length=200,
        default=new_external_id,
        help_text="the message's id in its channel, from the source it was imported from",
    )
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.PROTECT, related_name="messages")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    outsider = models.CharField(
        max_length=200, blank=True, default="", help_text="name of a speaker who is neither agent nor user"
    )
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="replies")
    text = models.TextField(blank=True)
    payload = models.JSONField(default=dict, blank=True, help_text="typed data beside the text")
    sent_at = models.DateTimeField(null=True, blank=True, help_text="empty when the source gives no time")
    run = models.ForeignKey("agents.Run", null=True, blank=True, on_delete=models.SET_NULL, related_name="messages")
    persona_version = models.ForeignKey(
        PersonaVersion,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="empty for imported messages",
    )
    synthetic = models.BooleanField(default=False, help_text="from a simulation; never mixed with real messages")
    idempotency_key = models.CharField(max_length=200, null=True, blank=True, unique=True)
    tags = models.JSONField(
        default=dict, blank=True, validators=[validate_tags], help_text="e.g. build, actor model, locale"
    )
    imported_by = models.ForeignKey(
        "agents.Import",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="messages",
        db_index=False,
        help_text="the import in the console that stored it",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "messages"
        ordering: ClassVar = ["channel", "position"]
        indexes: ClassVar = [
            models.Index(fields=["agent", "sent_at"], name="message_agent_sent_at"),
            models.Index(fields=["imported_by"], condition=Q(imported_by__isnull=False), name="message_imported_by"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["channel", "position"], name="message_position_unique"),
            models.UniqueConstraint(fields=["channel", "external_id"], name="message_external_id_unique"),
            models.CheckConstraint(
                condition=(
                    Q(agent__isnull=False, user__isnull=True, outsider="")
                    | Q(agent__isnull=True, user__isnull=False, outsider="")
                    | (Q(agent__isnull=True, user__isnull=True) & ~Q(outsider=""))
                ),
                name="message_one_author",
                violation_error_message="A message has exactly one author: an agent, a user or a named outsider.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.author_name}: {self.text[:60]}"

    @property
    def author_name(self) -> str:
        """The speaker's name as people read it."""
        if self.agent is not None:
            return self.agent.display_name
        if self.user is not None:
            return self.user.get_full_name() or self.user.get_username()
        return self.outsider


class Reaction(models.Model):
    """An emoji that an agent or a user put on a message."""

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="reactions")
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    emoji = models.CharField(max_length=32)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "reactions"
        ordering: ClassVar = ["message", "created_at"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(agent__isnull=False, user__isnull=True) | Q(agent__isnull=True, user__isnull=False),
                name="reaction_agent_or_user",
            ),
            models.UniqueConstraint(
                fields=["message", "agent", "emoji"], condition=Q(agent__isnull=False), name="reaction_agent_once"
            ),
            models.UniqueConstraint(
                fields=["message", "user", "emoji"], condition=Q(user__isnull=False), name="reaction_user_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.emoji} by {self.agent or self.user}"
