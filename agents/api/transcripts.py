"""Whole conversations in and out, in the formats of docs/transcripts.md."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api import parameters, requests
from agents.api.bodies import Flag, OneOf, Pairs, Slug, StrictBody, Tags, Text, read_body
from agents.api.headers import IdempotentPosts
from agents.api.parameters import the_channel
from agents.api.schema import AGENT, SLUG, TAG, documented, query
from agents.models import Message
from agents.transcripts.exporter import FORMATS, export_transcript
from agents.transcripts.importer import AUTO, ImportReport, import_transcript
from agents.transcripts.readers import READERS
from agents.transcripts.records import OptionError, TranscriptError
from agents.transcripts.store import NotEntitled, Rights, rights_of

MOST_BYTES = 10 * 1024 * 1024
TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv", "openai": "application/json"}


class Content(Text):
    """The file's text, kept as it is."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(most=MOST_BYTES, allowed="the text of the file", **kwargs)

    def to_internal_value(self, data: Any) -> str:
        super().to_internal_value(data)
        return str(data)


class NewTranscript(StrictBody):
    """A file of messages. Importing it again adds nothing."""

    content = Content(help_text="the text of the file")
    format = OneOf([AUTO, *READERS], required=False, help_text="default auto")
    channel = Slug(
        most=120, required=False, help_text="several conversations become NAME, NAME-2 …; default as the file says"
    )
    speakers = Pairs(
        required=False, most=1_000, help_text="speaker or role to agent slug; an empty slug keeps an outsider"
    )
    tags = Tags(required=False, help_text="put on every message, over those of the file")
    columns = Pairs(required=False, help_text="for CSV: our field to the file's column")
    time_zone = Text(required=False, most=64, help_text="for times without an offset; default UTC")
    dry_run = Flag(required=False, help_text="check and count, store nothing")

    def unstorable_in(self, name: str, value: Any) -> str:
        return "" if name == "content" else super().unstorable_in(name, value)  # replaced on import, and counted


class SpeakerRow(serializers.Serializer[Any]):
    agent = serializers.CharField(allow_null=True, help_text="slug; null = an outsider or a user")
    messages = serializers.IntegerField()


class Imported(serializers.Serializer[Any]):
    """`read` = `imported` + `duplicates` + `skipped` + `system_prompts`."""

    format = serializers.CharField()
    channels = serializers.ListField(child=serializers.CharField(), help_text="slugs")
    read = serializers.IntegerField()
    imported = serializers.IntegerField()
    duplicates = serializers.IntegerField()
    other_author = serializers.IntegerField(help_text="duplicates that are stored under another author")
    skipped = serializers.IntegerField()
    skipped_by_reason = serializers.DictField(child=serializers.IntegerField())
    system_prompts = serializers.IntegerField()
    speakers = serializers.DictField(child=SpeakerRow())
    replaced_characters = serializers.IntegerField()
    cut_texts = serializers.IntegerField()
    replies_without_parent = serializers.IntegerField()
    dry_run = serializers.BooleanField()


class Transcripts(IdempotentPosts, APIView):
    """Conversations as files: GET gives one back, POST takes one in.

    GET streams the messages of `channel` in the form that `as` names; `tag` (`KEY=VALUE`) leaves out messages without it, `agent` says
    whose are `assistant` in `openai`. POST checks the whole file before anything is stored: one bad line, and nothing is.
    A channel that does not exist is made, an agent that is no member joins, and other users' words are taken: from users who may add
    channels, add members, change channels. From others that is a 403 that names who, where, and the permission.
    """

    queryset = Message.objects.all()
    throttle_classes = (requests.Transcripts,)
    serializer_class = NewTranscript  # for the browsable form
    most_bytes = MOST_BYTES

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """A GET answers in the form that `as` names, whatever its `Accept` says."""
        return super().perform_content_negotiation(request, force=force or request.method == "GET")

    @documented(
        {(200, kind): OpenApiTypes.STR for kind in sorted(set(TYPES.values()))},
        parameters=(
            query("channel", "the slug of a channel", required=True, type=SLUG),
            query("as", "default jsonl, which can be imported again exactly", enum=FORMATS),
            *(AGENT, TAG),
        ),
        problems=(404,),
    )
    def get(self, request: Request) -> HttpResponseBase:
        parameters.only(request, "channel", "as", "agent", "tag")
        slug = parameters.text(request, "channel")
        if not slug:
            raise ValidationError({"channel": ["channel is missing; allowed: the slug of a channel"]})
        channel, form = the_channel(slug), parameters.choice(request, "as", FORMATS) or "jsonl"
        agent, tag = parameters.agent(request), parameters.tag(request)
        try:
            pieces = export_transcript(
                channel=channel, format=form, agent=agent.slug if agent else "", where=dict([tag]) if tag else {}
            )
        except OptionError as error:
            raise ValidationError({"agent": [str(error).replace("Say --agent", "Say agent=SLUG")]}) from None
        ending = {"openai": "json", "text": "txt", "chat": "txt"}.get(form, form)
        encoded = (piece.encode("utf-8", "replace") for piece in pieces)
        response = StreamingHttpResponse(encoded, content_type=f"{TYPES.get(form, 'text/plain')}; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{channel.slug}.{ending}"'
        return response

    @documented({200: Imported}, body=NewTranscript, summary="Upload a file of conversations")
    def post(self, request: Request) -> Response:
        return Response(_imported(read_body(request, NewTranscript), rights_of(request.user)).as_json())


def _imported(given: dict[str, Any], rights: Rights) -> ImportReport:
    content = given.pop("content").encode("utf-8", "surrogatepass")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "transcript"
        path.write_bytes(content.decode("utf-8", "replace").encode() if b"\xed" in content else content)
        try:
            return import_transcript(
                path=path,
                format=given.get("format", AUTO),
                channel=given.get("channel", ""),
                speaker_map=given.get("speakers"),
                tags=given.get("tags"),
                columns=given.get("columns"),
                time_zone=given.get("time_zone", ""),
                dry_run=given.get("dry_run", False),
                rights=rights,
            )
        except NotEntitled as error:
            raise PermissionDenied(str(error)) from None
        except TranscriptError as error:
            where = f"line {error.line}: " if error.line else ""
            raise ValidationError({"content": [f"{where}{error.reason}"]}) from None
        except OptionError as error:
            text = str(error).replace(str(path), "the file").replace("--", "")
            raise ValidationError({"non_field_errors": [text]}) from None
