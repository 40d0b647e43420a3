"""Whole conversations in and out, in the formats of docs/reference/transcripts.md."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any, ClassVar

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from pydantic import ConfigDict, Field
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api.filters import of_agent
from agents.api.otlp import MOST_VALUES, PROTOBUF, ProtobufParser, ProtobufRenderer
from agents.bodies import the_channel
from agents.kit.api import filters
from agents.kit.api.filters import Filters
from agents.kit.api.requests import INGESTS, TRANSCRIPTS, BoundedJSONParser
from agents.kit.api.schema import answers
from agents.kit.api.views import View, or_404
from agents.kit.bodies import MOST_TAGS, Body, OneOf, Reads, Tags, Verbatim
from agents.kit.files.source import FileError
from agents.models import Message
from agents.transcripts.exporter import EXPORTS, export_transcript
from agents.transcripts.importer import AUTO, DAY_FIRST, MONTH_FIRST, ImportReport, ReadOptions, import_transcript
from agents.transcripts.ingest import IngestRefused
from agents.transcripts.readers import FORMATS
from agents.transcripts.records import OptionError
from agents.transcripts.spans import IngestedSpans, ingest_spans
from agents.transcripts.store import NotEntitled, rights_of

MOST_BYTES = 10 * 1024 * 1024
TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv", "openai": "application/json"}
SHAPES = {"application/json": OpenApiTypes.OBJECT}  # the others are texts


class NewTranscript(Body):
    """A file of messages. Importing it again adds nothing."""

    content: Annotated[str, Reads(str, "the text of the file", strip=False)] = Field(description="the text of the file")
    format: Annotated[str, OneOf(AUTO, *FORMATS)] = Field(AUTO, description="default auto")
    channel: str = Field(
        "",
        max_length=120,
        pattern="^[-a-zA-Z0-9_]+$",
        description="several conversations become NAME, NAME-2 …; default as the file says",
    )
    speakers: dict[Verbatim, Verbatim] = Field(
        {}, max_length=1_000, description="speaker or role to agent slug; an empty slug keeps an outsider"
    )
    tags: Tags = Field({}, description="put on every message, over those of the file")
    columns: dict[Verbatim, Verbatim] = Field(
        {}, max_length=MOST_TAGS, description="for CSV and JSON Lines: our field to the file's column or key"
    )
    time_zone: str = Field("", min_length=1, max_length=64, description="for times without an offset; default UTC")
    dates: Annotated[str, OneOf("", DAY_FIRST, MONTH_FIRST)] = Field(
        "", description="for logs with dates such as 01/02/2026; default as the file suggests"
    )
    dry_run: bool = Field(False, description="check and count, store nothing")


class TranscriptFilters(Filters):
    channel = filters.Parameter(
        required=True,
        allowed="the slug of a channel",
        schema={"pattern": "^[-a-zA-Z0-9_]+$"},
        about="the slug of a channel",
    )
    vars()["as"] = filters.choice(EXPORTS, about="default jsonl, which can be imported again exactly")
    agent = of_agent()
    tag = filters.tag()


class Transcripts(View):
    """Conversations as files: GET gives one back, POST takes one in."""

    queryset = Message.objects.all()
    filterset_class = TranscriptFilters
    bodies: ClassVar = {"create": NewTranscript}
    throttle_scope = TRANSCRIPTS
    most_bytes = MOST_BYTES
    raw = ("content",)  # replaced on import, and counted
    pagination_class = None

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """A GET answers in the form that `as` names and not in that of its `Accept`."""
        return super().perform_content_negotiation(request, force=force or request.method == "GET")

    @answers({(200, kind): SHAPES.get(kind, OpenApiTypes.STR) for kind in sorted(TYPES.values())}, 404)
    def list(self, request: Request) -> HttpResponseBase:
        """Stream the messages of `channel` in the form that `as` names.

        `tag` (`KEY=VALUE`) leaves out messages without it, `agent` says whose are `assistant` in `openai`.
        """
        query = self.query
        channel = or_404(the_channel, query["channel"])
        form = query["as"] or "jsonl"
        slug = query["agent"].slug if query["agent"] else ""
        tags = {}
        if query["tag"]:
            key, value = query["tag"]
            tags[key] = value
        try:
            pieces = export_transcript(channel=channel, format=form, agent=slug, where=tags)
        except OptionError as error:
            # It is written for the command `export_transcript`.
            raise ValidationError({"agent": [str(error).replace("Say --agent", "Say agent=SLUG")]}) from None
        encoded = (piece.encode("utf-8", "replace") for piece in pieces)
        response = StreamingHttpResponse(encoded, content_type=f"{TYPES[form]}; charset=utf-8")
        ending = "json" if form == "openai" else form
        response["Content-Disposition"] = f'attachment; filename="{channel.slug}.{ending}"'
        return response

    @answers({200: ImportReport})
    def create(self, request: Request) -> Response:
        """Upload a file of conversations. The whole file is checked before anything is stored: one bad line, and nothing is.

        A channel that does not exist is made, an agent that is no member joins, and other users' words are accepted: from users who may add
        channels, add members, change channels. From others that is a 403 that names who, where, and the permission.
        """
        body: NewTranscript = self.read_body()
        content = body.content.encode("utf-8", "surrogatepass")
        options = ReadOptions(
            format=body.format,
            channel=body.channel,
            speaker_map=body.speakers,
            tags=body.tags,
            columns=body.columns,
            time_zone=body.time_zone,
            dates=body.dates,
        )
        if b"\xed" in content:  # perhaps half of a surrogate pair, which is replaced
            content = content.decode("utf-8", "replace").encode()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "transcript"
            path.write_bytes(content)
            try:
                report = import_transcript(
                    path, options, name="transcript", dry_run=body.dry_run, rights=rights_of(request.user)
                )
            except NotEntitled as error:
                raise PermissionDenied(str(error)) from None
            except FileError as error:
                where = f"line {error.line}: " if error.line else ""
                raise ValidationError({"content": [f"{where}{error.reason}"]}) from None
            except OptionError as error:
                # It names options of the command `import_transcript`, which are fields here.
                raise ValidationError({"non_field_errors": [str(error).replace("--", "")]}) from None
        return Response(report)


class NewSpans(Body):
    """An export of traces (OTLP, `ExportTraceServiceRequest`) as JSON. Fields beside these are ignored, as OTLP wants."""

    model_config = ConfigDict(extra="ignore", strict=True)

    resourceSpans: list[dict[str, Any]] = Field(max_length=MOST_VALUES, description="the spans, by resource and scope")

    @classmethod
    def unknown(cls, data: dict[str, Any]) -> dict[str, str]:
        return {}


class Spans(View):
    """OTLP over HTTP as protobuf or JSON, for an exporter or a collector whose endpoint is ``…/api/otlp``."""

    queryset = Message.objects.all()
    parser_classes = (BoundedJSONParser, ProtobufParser)
    bodies: ClassVar = {"create": NewSpans}
    throttle_scope = INGESTS
    most_bytes = MOST_BYTES
    raw = ("resourceSpans",)  # replaced on import
    pagination_class = None

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Answer in the form in which the spans came, as OTLP wants; a problem is JSON."""
        if _is_protobuf(request):
            return ProtobufRenderer(), PROTOBUF
        return super().perform_content_negotiation(request, force=force)

    @answers(
        {(200, "application/json"): IngestedSpans, (200, PROTOBUF): OpenApiTypes.BINARY},
        request={"application/json": NewSpans, PROTOBUF: OpenApiTypes.BINARY},
    )
    def create(self, request: Request) -> Response:
        """Store what GenAI spans of OpenTelemetry say: all messages of the batch, or none. No agent answers.

        A conversation (`gen_ai.conversation.id`, `session.id`, else the trace) is a channel; an agent is known by its slug or display name
        in `gen_ai.agent.name`. What is stored already, and the history that each call repeats, is not stored again.
        """
        nothing = _is_protobuf(request) and not request.data  # a message in which nothing is set has no bytes
        spans = [] if nothing else self.read_body().resourceSpans
        try:
            done = ingest_spans({"resourceSpans": spans}, rights=rights_of(request.user))
        except NotEntitled as error:
            raise PermissionDenied(str(error)) from None
        except FileError as error:
            raise ValidationError({"resourceSpans": [error.reason]}) from None
        except IngestRefused as error:
            raise ValidationError({name: [text] for name, text in error.errors.items()}) from None
        done.channels = {slug: reverse("channel-detail", [slug], request=request) for slug in done.channels}
        return Response(done)


def _is_protobuf(request: Request) -> bool:
    return bool(request.content_type.partition(";")[0].strip() == PROTOBUF)
