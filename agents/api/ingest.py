"""Messages that were spoken elsewhere, up to 1,000 in a request."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from agents.api import parameters
from agents.api.bodies import Pairs, StrictBody, _Allowing
from agents.api.fields import Slug, Tags
from agents.api.idempotency import IdempotentPosts
from agents.api.schema import documented
from agents.api.spoken import MOST_ERRORS, read, shown
from agents.api.throttles import Ingests
from agents.ingest import MOST_MESSAGES, IngestRefused, ingest_messages
from agents.models import Message
from agents.transcripts.records import TEXT_LIMIT
from agents.transcripts.store import NotEntitled, rights_of

MOST_BYTES = 10 * 1024 * 1024


class SpokenFields(serializers.Serializer[Any]):
    """A message as it was said. Exactly one of `agent`, `user` and `outsider` says who."""

    external_id = serializers.CharField(
        max_length=200, help_text="its id in its channel; the same again is the same message"
    )
    text = serializers.CharField(max_length=TEXT_LIMIT, allow_blank=True, trim_whitespace=False)
    channel = serializers.CharField(required=False, max_length=120, help_text="slug; default that of the request")
    agent = serializers.CharField(required=False, max_length=120, help_text="slug")
    user = serializers.CharField(required=False, max_length=150, help_text="name of a user")
    outsider = serializers.CharField(required=False, max_length=200, help_text="name of a speaker who is neither")
    sent_at = serializers.DateTimeField(required=False, allow_null=True, help_text="UTC where it says no zone")
    parent = serializers.CharField(  # type: ignore[assignment]  # a declared field is taken off the class
        required=False, max_length=200, help_text="external_id of the message whose thread it is in"
    )
    tags = Pairs(required=False)
    payload = serializers.DictField(required=False, help_text="typed data beside the text")


class SpokenList(_Allowing, serializers.ListField):
    """The messages, unread: `read` looks at them."""

    allowed = f"a list of 1 to {MOST_MESSAGES:,} messages"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=SpokenFields(), min_length=1, max_length=MOST_MESSAGES, **kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        if not isinstance(data, list) or not 1 <= len(data) <= MOST_MESSAGES:
            raise ValidationError([f"messages: {shown(data)}; allowed: {self.allowed}"])
        return data


class NewMessages(StrictBody):
    """Messages of one or several channels, in the order in which they were said."""

    channel = Slug(
        most=120, required=False, help_text="slug, for messages that name none; made where there is none, by who may"
    )
    tags = Tags(required=False, help_text="put on every message, over its own")
    messages = SpokenList()

    def unstorable_in(self, name: str, value: Any) -> str:
        return "" if name == "messages" else super().unstorable_in(name, value)  # told message by message


@extend_schema_serializer(component_name="Ingested")
class IngestedFields(serializers.Serializer[Any]):
    """What became of them; `received` = `imported` + `duplicates`."""

    received = serializers.IntegerField(min_value=0)
    imported = serializers.IntegerField(min_value=0)
    duplicates = serializers.IntegerField(min_value=0, help_text="stored before, and left as they are")
    other_author = serializers.IntegerField(min_value=0, help_text="duplicates that are stored under another author")
    observed = serializers.IntegerField(min_value=0, help_text="of the imported, how many wait to be judged")
    replies_without_parent = serializers.IntegerField(min_value=0, help_text="sent again after it, they are linked")
    channels = serializers.DictField(child=serializers.URLField(), help_text="slug to URL")


class Ingest(IdempotentPosts, APIView):
    """POST hands in messages that were spoken elsewhere, at most 1,000: all are stored, or none.

    A message is known by `external_id` in its channel: what is stored already stays as it is and is counted as a duplicate, so that a
    batch may be sent again. No agent answers and no stage hears of it; where an agent is observed, its sampled share waits to be judged.

    A channel that does not exist is made, an agent that is no member joins, and other users' words are taken: from users who may add
    channels, add members, change channels. From others that is a 403 that names who, where, and the permission.
    """

    queryset = Message.objects.all()
    throttle_classes = (Ingests,)
    serializer_class = NewMessages  # for the browsable form
    most_bytes = MOST_BYTES

    @documented({200: IngestedFields}, body=NewMessages)
    def post(self, request: Request) -> Response:
        parameters.only(request)
        body = NewMessages(data=request.data)
        body.is_valid(raise_exception=True)
        given = body.validated_data
        spoken = read(given["messages"], channel=given.get("channel", ""), tags=given.get("tags", {}))
        try:
            done = ingest_messages(spoken, rights=rights_of(request.user))
        except NotEntitled as error:
            raise PermissionDenied(str(error)) from None
        except IngestRefused as error:
            raise ValidationError({name: [text] for name, text in list(error.errors.items())[:MOST_ERRORS]}) from None
        slugs = dict.fromkeys(one.channel for one in spoken)
        links = {slug: reverse("agents:channel", [slug], request=request) for slug in slugs}
        return Response({**asdict(done), "channels": links})
