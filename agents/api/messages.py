"""Messages: what was said, and a person's message that comes in."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api import headers, parameters
from agents.api.bodies import Note, Said, StrictBody, Tags, Text, Whole, read_body
from agents.api.headers import IdempotentPosts, located
from agents.api.parameters import Log, named_channel, named_message, the_channel, the_row
from agents.api.problems import Conflict
from agents.api.requests import PaidRequests
from agents.api.schema import AGENT, CHANNEL, SEARCH, SINCE, TAG, UNTIL, documented, query
from agents.models import Message
from agents.turn.receive import receive_message
from agents.turn.send_message import SendRefused

_MOMENT = serializers.DateTimeField()


def shown_messages() -> QuerySet[Message]:
    """Messages with what their rows show, without the long texts of those who said them."""
    return Message.objects.select_related("channel", "agent", "user").defer(
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
    outsider = serializers.CharField(
        allow_blank=True, help_text="name of a speaker who is neither agent nor user; else empty"
    )
    parent = serializers.IntegerField(  # type: ignore[assignment]  # a declared field is taken off the class
        allow_null=True, help_text="id of the message whose thread it is in"
    )
    text = serializers.CharField(allow_blank=True)
    payload = serializers.JSONField(help_text="typed data beside the text")
    sent_at = serializers.DateTimeField(allow_null=True, help_text="null = the source gave no time")
    run = serializers.IntegerField(allow_null=True, help_text="id of the turn it was said in")
    run_url = serializers.URLField(allow_null=True)
    persona_version = serializers.IntegerField(allow_null=True, help_text="id; null = imported, or a person's")
    synthetic = serializers.BooleanField(help_text="from a simulation; never mixed with real messages")
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
        return {**shown_message(instance, request), "reactions": reactions, "turns": turns_of(instance, request)}


def turns_of(message: Message, request: Request) -> list[str]:
    """The URLs of the runs that answer a message."""
    runs = message.triggered_runs.order_by("pk").values_list("pk", flat=True)
    return [reverse("agents:run", [pk], request=request) for pk in runs]


LARGEST_ID = 2**63 - 1
NARROWING = ("channel", "agent", "since")  # what an index holds, so that a search need not read every message there is
OF_MESSAGES = ("agent", "user", "outsider", "since", "until", "tag", "search", "synthetic")
MESSAGE_FILTERS = (
    *(
        AGENT,
        query("user", "the name of a user"),
        query("outsider", "the name of a speaker who is neither agent nor user"),
    ),
    *(SINCE, UNTIL, TAG, SEARCH, query("synthetic", "from a simulation", enum=parameters.YES_NO)),
)


class NewMessage(StrictBody):
    """What a person said: the caller, or the outsider that is named."""

    channel = Text(most=120, allowed="the slug of a channel", help_text="slug")
    text = Said()
    outsider = Note(required=False, help_text="name of a speaker who is no user here; else it is you who speaks")
    parent = Whole(  # type: ignore[assignment]  # a declared field is taken off the class
        required=False, least=1, most=LARGEST_ID, help_text="id of the message whose thread it is said in"
    )
    tags = Tags(required=False)


class Received(MessageRow):
    """A message with the turns that it called forth."""

    turns = serializers.ListField(
        child=serializers.URLField(), help_text="the runs that answer it; a worker takes them"
    )


def filtered_messages(request: Request, rows: QuerySet[Message], *more: str) -> QuerySet[Message]:
    """Messages as the parameters of a request narrow them."""
    parameters.only(request, *OF_MESSAGES, *more)
    rows = parameters.narrowed(
        parameters.holding(request, parameters.having_tag(request, rows), "text"),
        agent=parameters.agent(request),
        user=parameters.user(request),
        outsider=parameters.text(request, "outsider"),
        synthetic=parameters.flag(request, "synthetic"),
    )
    return parameters.in_time(request, rows, "sent_at")


class MessagePages(Log):
    """By the index that what is asked for has: in a channel by position, of an agent within a time by time, else by id."""

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        order = super().get_ordering(request, queryset, view)
        back = "-" if order[0].startswith("-") else ""
        if parameters.text(request, "channel"):
            return (f"{back}position",)
        if parameters.text(request, "agent") and any(parameters.text(request, name) for name in ("since", "until")):
            return (f"{back}sent_at", *order)
        return order


@extend_schema_view(get=documented({200: MessageRow(many=True)}, parameters=(CHANNEL, *MESSAGE_FILTERS)))
class Messages(IdempotentPosts, ListAPIView[Message]):
    """What was said, newest first; POST hands in what a person said.

    GET filters: `channel`, `agent`, `user`, `outsider`, `since` and `until` (of when it was said), `tag` (`KEY=VALUE`), `search` (in the
    text; only with `channel`, `agent` or `since`), `synthetic`; `ordering=id` for the oldest first. POST saves the message, lets the
    stages hear of it, and queues the turns of the agents it is addressed to, at most 50: in a direct message all of them, elsewhere
    those it names by `@slug` or name. 201 with the message and its `turns`.
    """

    queryset = shown_messages()
    pagination_class = MessagePages
    throttle_classes = (PaidRequests,)

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return NewMessage if self.request.method == "POST" else MessageRow

    def filter_queryset(self, queryset: QuerySet[Message, Any]) -> QuerySet[Message, Any]:
        request = self.request
        rows = filtered_messages(request, queryset, "channel", "ordering")
        if parameters.text(request, "search") and not any(parameters.text(request, name) for name in NARROWING):
            raise ValidationError({"search": [f"search reads every text; allowed: with one of {', '.join(NARROWING)}"]})
        return parameters.narrowed(rows, channel=parameters.channel(request))

    @documented({201: Received}, body=NewMessage, summary="Say something as a person")
    def post(self, request: Request) -> Response:
        given = read_body(request, NewMessage)
        channel, outsider = named_channel(given["channel"]), given.get("outsider", "")
        try:
            message = receive_message(
                channel=channel,
                user=None if outsider else request.user,  # type: ignore[arg-type]  # no user is anonymous here
                outsider=outsider,
                text=given["text"],
                parent=named_message(given.get("parent"), "parent", channel),
                idempotency_key=headers.of(request, Message),
                tags=given.get("tags"),
            )
        except SendRefused as error:
            raise Conflict(str(error)) from None
        return located({**shown_message(message, request), "turns": turns_of(message, request)})


class OneRow(GenericAPIView[Any]):
    """A GET of the row of ``queryset`` whose id is in the path; `what` names it in a 404."""

    what: ClassVar[str]

    def get(self, request: Request, pk: int) -> Response:
        parameters.only(request)
        return Response(self.get_serializer(the_row(self.get_queryset(), pk, self.what)).data)


@extend_schema_view(get=documented(WholeMessage))
class OneMessage(OneRow):
    """One message with the reactions to it and the turns it called forth."""

    queryset = shown_messages()
    serializer_class = WholeMessage
    what = "message"


class PositionPages(Log):
    """Newest first, or oldest first with ``ordering=position``."""

    orders = MappingProxyType({"-position": ("-position",), "position": ("position",)})


AFTER = query("after", "only messages above this position", type={"type": "integer", "minimum": 0})


@extend_schema_view(get=documented({200: MessageRow(many=True)}, parameters=(AFTER, *MESSAGE_FILTERS)))
class ChannelMessages(ListAPIView[Message]):
    """What was said in one channel, newest first; from the beginning with `ordering=position`.

    `after=POSITION` leaves out what you have: messages are committed in the order of their positions, so none appears below it later.
    Filters: `agent`, `user`, `outsider`, `since` and `until`, `tag` (`KEY=VALUE`), `search` (in the text), `synthetic`.
    """

    queryset = shown_messages()
    serializer_class = MessageRow
    pagination_class = PositionPages

    def filter_queryset(self, queryset: QuerySet[Message, Any]) -> QuerySet[Message, Any]:
        rows = filtered_messages(self.request, queryset, "ordering", "after")
        after = parameters.text(self.request, "after")
        if after and not re.fullmatch("[0-9]{1,9}", after):
            raise ValidationError({"after": [f"after {after[:60]!r}: allowed: a position, a number from 0"]})
        above = int(after) if after else None
        return parameters.narrowed(rows, position__gt=above, channel=the_channel(self.kwargs["slug"]))
