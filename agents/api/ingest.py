"""Messages that were spoken elsewhere, up to 1,000 in a request."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.reverse import reverse

from agents.api.bodies import Anything, Body, Reads, Tags, fault
from agents.api.filters import read_moment
from agents.transcripts.ingest import MOST_MESSAGES, Ingested, IngestRefused, Spoken, ingest_messages
from agents.transcripts.records import TEXT_LIMIT
from agents.transcripts.store import NotEntitled, rights_of

_AUTHORS = ("agent", "user", "outsider")
Exact = Annotated[str, StringConstraints(strip_whitespace=False, pattern=r"\S", max_length=200)]
Slug = Annotated[str, StringConstraints(pattern="^[-a-zA-Z0-9_]+$", max_length=120)]
Moment = Annotated[datetime, Reads(read_moment, "a time such as 2026-11-22T14:30:00Z, or null", format="date-time")]


class SpokenBody(Body):
    """A message as it was said. Exactly one of `agent`, `user` and `outsider` says who."""

    external_id: Exact = Field(description="its id in its channel; the same again is the same message")
    text: Annotated[str, StringConstraints(strip_whitespace=False, max_length=TEXT_LIMIT)]
    channel: Slug = Field("", description="slug; default that of the request")
    agent: str = Field("", min_length=1, max_length=120, description="slug")
    user: str = Field("", min_length=1, max_length=150, description="name of a user")
    outsider: str = Field(
        "", min_length=1, max_length=200, description="name of a speaker who is neither agent nor user"
    )
    sent_at: Moment | None = Field(None, description="UTC where it says no zone")
    parent: Exact = Field("", description="external_id of the message whose thread it is in")
    tags: Tags = Field({})
    payload: Anything = Field({}, description="typed data beside the text")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _one_author(self) -> SpokenBody:
        authors = [name for name in _AUTHORS if getattr(self, name)]
        if len(authors) != 1:
            text = f"give exactly one of {', '.join(_AUTHORS)}; {' and '.join(authors) or 'none'} given"
            raise fault("agent", text)
        return self


class NewMessages(Body):
    """Messages of one or several channels, in the order in which they were said."""

    channel: Slug = Field("", description="slug, for messages that name none; made where there is none, by who may")
    tags: Tags = Field({}, description="put on every message, over its own")
    messages: list[SpokenBody] = Field(min_length=1, max_length=MOST_MESSAGES)

    @model_validator(mode="after")
    def _placed(self) -> NewMessages:
        for number, message in enumerate(self.messages):
            if not (message.channel or self.channel):
                raise fault(
                    f"messages[{number}].channel", "channel is missing; allowed: a slug, here or for the whole request"
                )
        return self


class IngestAnswer(Ingested):
    """What became of them; `received` = `imported` + `duplicates`."""

    channels: dict[str, str] = Field(description="slug to URL")


def ingest(given: NewMessages, request: Request) -> dict[str, Any]:
    """Store the messages of a body; what became of them."""
    spoken = [
        Spoken(**{**dict(row), "channel": row.channel or given.channel, "tags": {**row.tags, **given.tags}})
        for row in given.messages
    ]
    try:
        done = ingest_messages(spoken, rights=rights_of(request.user))
    except NotEntitled as error:
        raise PermissionDenied(str(error)) from None
    except IngestRefused as error:
        raise ValidationError({name: [text] for name, text in error.errors.items()}) from None
    slugs = dict.fromkeys(one.channel for one in spoken)
    return {**dict(done), "channels": {slug: reverse("channel-detail", [slug], request=request) for slug in slugs}}
