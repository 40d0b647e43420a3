"""Messages that were spoken elsewhere, up to 1,000 in a request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.core.validators import slug_re
from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from agents.api.bodies import (
    MOST_OBJECT,
    MOST_TAGS,
    Anything,
    Pairs,
    Slug,
    StrictBody,
    Tags,
    _Allowing,
    read_body,
    unstorable,
)
from agents.api.headers import IdempotentPosts
from agents.api.requests import Ingests
from agents.api.schema import documented
from agents.models import Message
from agents.models.conversations import TAG_KEY
from agents.transcripts.ingest import MOST_MESSAGES, IngestRefused, Spoken, ingest_messages
from agents.transcripts.records import TEXT_LIMIT, parse_time, to_utc
from agents.transcripts.store import NotEntitled, rights_of

MOST_ERRORS = 20
_TEXTS = {  # field: most characters
    "channel": 120, "external_id": 200, "text": TEXT_LIMIT,
    "agent": 120, "user": 150, "outsider": 200, "parent": 200,
}  # fmt: skip
_FIELDS = (*_TEXTS, "sent_at", "tags", "payload")
_AUTHORS = ("agent", "user", "outsider")


def read(rows: list[Any], *, channel: str, tags: dict[str, str]) -> list[Spoken]:
    """The messages of a body.

    Raises:
        ValidationError: Names the message by its number, the field, the value and what is allowed; the first 20 mistakes.
    """
    spoken: list[Spoken] = []
    errors: dict[str, list[str]] = {}
    for number, row in enumerate(rows):
        place = f"messages[{number}]"
        if not isinstance(row, dict):
            errors[place] = [f"{shown(row)}: allowed: an object; its fields: {', '.join(_FIELDS)}"]
        elif wrong := list(_mistakes(row, channel)):
            for name, text in wrong:
                errors.setdefault(f"{place}.{name}", []).append(text)
        else:
            names = {name: row[name] for name in (*_AUTHORS, "parent") if row.get(name) is not None}
            spoken.append(
                Spoken(
                    channel=row.get("channel") or channel, external_id=row["external_id"], text=row["text"],
                    sent_at=_moment(row.get("sent_at")), tags={**(row.get("tags") or {}), **tags},
                    payload=row.get("payload") or {}, **names,
                )
            )  # fmt: skip
        if len(errors) >= MOST_ERRORS:
            break
    if errors:
        raise ValidationError(errors)
    return spoken


def _mistakes(row: dict[Any, Any], channel: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a message: field and sentence."""
    for name in row.keys() - set(_FIELDS):
        spelt = name[:100].encode("utf-8", "backslashreplace").decode()
        yield spelt, f"there is no such field; allowed: {', '.join(_FIELDS)}"
    texts = {name: row[name] for name in _TEXTS if row.get(name) is not None}
    for name, value in texts.items():
        most = _TEXTS[name]
        if not isinstance(value, str) or len(value) > most or not (value.strip() or name == "text"):
            yield name, f"{name} {shown(value)}: allowed: a text of 1 to {most:,} characters"
        elif fault := unstorable(value):
            yield name, f"{name} {fault}"
    authors = [name for name in _AUTHORS if name in texts]
    if len(authors) != 1:
        yield "agent", f"give exactly one of {', '.join(_AUTHORS)}; {' and '.join(authors) or 'none'} given"
    for name in ("external_id", "text"):
        if name not in texts:
            yield name, f"{name} is missing; allowed: a text of 1 to {_TEXTS[name]:,} characters"
    where = texts.get("channel", channel)
    if not where:
        yield "channel", "channel is missing; allowed: a slug, here or for the whole request"
    elif isinstance(where, str) and not slug_re.fullmatch(where):
        yield "channel", f"channel {shown(where)}: allowed: 1 to 120 letters a-z and A-Z, digits, - and _"
    try:
        _moment(row.get("sent_at"))
    except (ValueError, OverflowError):
        yield "sent_at", f"sent_at {shown(row['sent_at'])}: allowed: a time such as 2026-11-22T14:30:00Z, or null"
    if (payload := row.get("payload")) is not None:
        if not Anything().is_allowed(payload):
            yield "payload", f"payload: allowed: a JSON object of at most {MOST_OBJECT:,} characters, numbers finite"
        elif fault := unstorable(payload):
            yield "payload", f"payload {fault}"
    if (tags := row.get("tags")) is not None:
        if not Pairs().is_allowed(tags) or not all(TAG_KEY.fullmatch(key) for key in tags):
            allowed = f'at most {MOST_TAGS} texts under keys of a letter, then up to 63 letters, digits, _ . or -, e.g. {{"build": "41"}}'
            yield "tags", f"tags {shown(tags)}: allowed: {allowed}"
        elif fault := unstorable(tags):
            yield "tags", f"tags {fault}"


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    moment = parse_time(value) if isinstance(value, str) else None
    if moment is None:
        raise ValueError(value)
    return to_utc(moment, UTC)


def shown(value: Any) -> str:
    """A value as an error names it."""
    text = "an object" if isinstance(value, dict) else repr(value)
    if isinstance(value, list):
        text = f"{len(value):,} of them"
    return (text if len(text) <= 60 else text[:59] + "…").encode("utf-8", "backslashreplace").decode()


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
    outsider = serializers.CharField(
        required=False, max_length=200, help_text="name of a speaker who is neither agent nor user"
    )
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
        given = read_body(request, NewMessages)
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
