"""Messages that were spoken elsewhere, up to 1,000 in a request."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_serializer
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.reverse import reverse
from rest_framework.serializers import (
    CharField,
    DateTimeField,
    DictField,
    IntegerField,
    Serializer,
    SlugField,
    URLField,
)

from agents.api.bodies import Anything, Body, Tags, many, says
from agents.transcripts.ingest import MOST_MESSAGES, IngestRefused, Spoken, ingest_messages
from agents.transcripts.records import TEXT_LIMIT
from agents.transcripts.store import NotEntitled, rights_of

_AUTHORS = ("agent", "user", "outsider")


def _not_blank(value: str) -> None:
    if not value.strip():
        raise ValidationError("blank")


class SpokenFields(Body):
    """A message as it was said. Exactly one of `agent`, `user` and `outsider` says who."""

    needed: ClassVar[tuple[str, ...]] = ("external_id", "text")

    external_id = CharField(
        max_length=200,
        trim_whitespace=False,
        validators=[_not_blank],
        help_text="its id in its channel; the same again is the same message",
    )
    text = CharField(
        max_length=TEXT_LIMIT,
        allow_blank=True,
        trim_whitespace=False,
        error_messages=says(f"a text of 1 to {TEXT_LIMIT:,} characters"),
    )
    channel = SlugField(max_length=120, help_text="slug; default that of the request")
    agent = CharField(max_length=120, help_text="slug")
    user = CharField(max_length=150, help_text="name of a user")
    outsider = CharField(max_length=200, help_text="name of a speaker who is neither agent nor user")
    sent_at = DateTimeField(
        allow_null=True,
        help_text="UTC where it says no zone",
        error_messages=says("a time such as 2026-11-22T14:30:00Z, or null"),
    )
    parent = CharField(  # type: ignore[assignment]  # a declared field is taken off the class
        max_length=200,
        trim_whitespace=False,
        validators=[_not_blank],
        help_text="external_id of the message whose thread it is in",
    )
    tags = Tags()
    payload = Anything(help_text="typed data beside the text")

    def to_internal_value(self, data: Any) -> Any:
        given = {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data
        return super().to_internal_value(given)

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        authors = [name for name in _AUTHORS if name in given]
        if len(authors) != 1:
            text = f"give exactly one of {', '.join(_AUTHORS)}; {' and '.join(authors) or 'none'} given"
            raise ValidationError({"agent": [text]})
        return given


class NewMessages(Body):
    """Messages of one or several channels, in the order in which they were said."""

    needed: ClassVar[tuple[str, ...]] = ("messages",)

    channel = SlugField(
        max_length=120, help_text="slug, for messages that name none; made where there is none, by who may"
    )
    tags = Tags(help_text="put on every message, over its own")
    messages = many(
        SpokenFields,
        most=MOST_MESSAGES,
        allow_empty=False,
        error_messages=says(f"a list of 1 to {MOST_MESSAGES:,} messages"),
    )

    def unstorable_in(self, name: str, value: Any) -> str:
        return "" if name == "messages" else super().unstorable_in(name, value)  # said message by message

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        text = "channel is missing; allowed: a slug, here or for the whole request"
        placed = [bool(row.get("channel") or given.get("channel")) for row in given["messages"]]
        if not all(placed):
            raise ValidationError({"messages": [{} if there else {"channel": [text]} for there in placed]})
        return given


@extend_schema_serializer(component_name="Ingested")
class IngestedFields(Serializer[Any]):
    """What became of them; `received` = `imported` + `duplicates`."""

    received = IntegerField(min_value=0)
    imported = IntegerField(min_value=0)
    duplicates = IntegerField(min_value=0, help_text="stored before, and left as they are")
    other_author = IntegerField(min_value=0, help_text="duplicates that are stored under another author")
    observed = IntegerField(min_value=0, help_text="of the imported, how many wait to be judged")
    replies_without_parent = IntegerField(min_value=0, help_text="sent again after it, they are linked")
    channels = DictField(child=URLField(), help_text="slug to URL")


def ingest(given: dict[str, Any], request: Request) -> dict[str, Any]:
    """Store the messages of a body; what became of them."""
    own = {"channel": given.get("channel", ""), "tags": {}, "payload": {}}
    spoken = [
        Spoken(**{**own, **row, "tags": {**row.get("tags", {}), **given.get("tags", {})}}) for row in given["messages"]
    ]
    try:
        done = ingest_messages(spoken, rights=rights_of(request.user))
    except NotEntitled as error:
        raise PermissionDenied(str(error)) from None
    except IngestRefused as error:
        raise ValidationError({name: [text] for name, text in error.errors.items()}) from None
    slugs = dict.fromkeys(one.channel for one in spoken)
    return {**asdict(done), "channels": {slug: reverse("channel-detail", [slug], request=request) for slug in slugs}}
