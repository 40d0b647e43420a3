"""Messages as the API shows them. By hand, without the serializer's machinery: sending a message must cost little more than saving it."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.reverse import reverse

from agents.models import Message

_MOMENT = serializers.DateTimeField()


def shown_messages() -> QuerySet[Message]:
    """Messages with what their rows show, without the long texts of those who said them."""
    found = Message.objects.select_related("channel", "agent", "user")
    return found.defer(
        *("agent__system_prompt", "agent__sample_lines", "agent__description"),
        *("channel__topic", "channel__tags", "user__password", "user__email"),
    )


def shown_message(message: Message, request: Request) -> dict[str, Any]:
    """A message as JSON. Its channel, agent and user should be loaded."""
    link = reverse("agents:message", [message.pk], request=request)
    return {
        "id": message.pk,
        "url": link,
        "channel": message.channel.slug,
        "position": message.position,
        "external_id": message.external_id,
        "author": message.author_name,
        "agent": message.agent.slug if message.agent is not None else None,
        "user": message.user.get_username() if message.user is not None else None,
        "outsider": message.outsider,
        "parent": message.parent_id,
        "text": message.text,
        "payload": message.payload,
        "sent_at": _MOMENT.to_representation(message.sent_at) if message.sent_at is not None else None,
        "run": message.run_id,
        "run_url": reverse("agents:run", [message.run_id], request=request) if message.run_id else None,
        "persona_version": message.persona_version_id,
        "synthetic": message.synthetic,
        "tags": message.tags,
    }


class MessageRow(serializers.Serializer[Message]):
    """What was really said, once."""

    id = serializers.IntegerField()
    url = serializers.URLField()
    channel = serializers.CharField(help_text="slug")
    position = serializers.IntegerField(help_text="place in the channel, from 1")
    external_id = serializers.CharField(help_text="its id in its channel, from where it was imported")
    author = serializers.CharField(help_text="the speaker's name as people read it")
    agent = serializers.CharField(allow_null=True, help_text="slug of the agent that said it")
    user = serializers.CharField(allow_null=True, help_text="name of the user who said it")
    outsider = serializers.CharField(allow_blank=True, help_text="name of a speaker who is neither; else empty")
    parent = serializers.IntegerField(  # type: ignore[assignment]  # a declared field is taken off the class
        allow_null=True, help_text="id of the message whose thread it is in"
    )
    text = serializers.CharField(allow_blank=True)
    payload = serializers.JSONField(help_text="typed data beside the text")
    sent_at = serializers.DateTimeField(allow_null=True, help_text="null = the source gave no time")
    run = serializers.IntegerField(allow_null=True, help_text="id of the turn it was said in")
    run_url = serializers.URLField(allow_null=True)
    persona_version = serializers.IntegerField(allow_null=True, help_text="id; null = imported, or a person's")
    synthetic = serializers.BooleanField(help_text="played for an evaluation; never mixed with real speech")
    tags = serializers.DictField(child=serializers.CharField())

    def to_representation(self, instance: Message) -> dict[str, Any]:
        return shown_message(instance, self.context["request"])


class ReactionFields(serializers.Serializer[Any]):
    emoji = serializers.CharField()
    agent = serializers.CharField(allow_null=True)
    user = serializers.CharField(allow_null=True)


class WholeMessage(MessageRow):
    """A message with the reactions to it and the turns that answer it."""

    reactions = ReactionFields(many=True)
    turns = serializers.ListField(child=serializers.URLField(), help_text="the runs it called forth")

    def to_representation(self, instance: Message) -> dict[str, Any]:
        request = self.context["request"]
        reactions = [
            {
                "emoji": reaction.emoji,
                "agent": reaction.agent.slug if reaction.agent else None,
                "user": reaction.user.get_username() if reaction.user else None,
            }
            for reaction in instance.reactions.select_related("agent", "user").order_by("pk")
        ]
        runs = instance.triggered_runs.order_by("pk").values_list("pk", flat=True)
        turns = [reverse("agents:run", [pk], request=request) for pk in runs]
        return {**shown_message(instance, request), "reactions": reactions, "turns": turns}
