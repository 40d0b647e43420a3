"""OTLP over HTTP as exporters of OpenTelemetry send it: protobuf in, protobuf out. Its JSON is read as any JSON is.

The classes of protobuf are imported where they are used: they cost a tenth of a second, and most processes never meet a span.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.response import Response

from agents.kit.api.requests import read_bounded

PROTOBUF = "application/x-protobuf"
# Spans, attributes and what is in them: two bytes may be one, so that a small body makes a large object.
MOST_VALUES = 100_000


class ProtobufParser(BaseParser):
    """Reads an ``ExportTraceServiceRequest`` as the object that its JSON would be."""

    media_type = PROTOBUF

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """Return the message; a ParseError where it is not understood or holds too many values. The size is bounded by the route."""
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = read_bounded(stream, parser_context)
        try:
            request = ExportTraceServiceRequest.FromString(body)
        except DecodeError:
            allowed = "a protobuf message ExportTraceServiceRequest of OTLP"
            raise ParseError(f"the body of {len(body):,} bytes is not understood; allowed: {allowed}") from None
        return _Batch().read(request)


class ProtobufRenderer(BaseRenderer):
    """Answers with an ``ExportTraceServiceResponse``; what is no answer of the route, such as a problem, stays JSON."""

    media_type = PROTOBUF
    format = "protobuf"
    charset = None
    render_style = "binary"

    def render(self, data: Any, media_type: str | None = None, renderer_context: Any = None) -> bytes:
        from google.protobuf.json_format import ParseDict
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        if "partialSuccess" not in data:
            return bytes(JSONRenderer().render(data))
        fields = {"partialSuccess": data["partialSuccess"]} if data["partialSuccess"] else {}  # not set: all was taken
        renderer_context["response"].add_post_render_callback(_set_content_type)
        return bytes(ParseDict(fields, ExportTraceServiceResponse()).SerializeToString())


def _set_content_type(response: Response) -> None:
    """Name the type of a message in which nothing is set: it has no bytes, of which Django REST framework names none."""
    response["Content-Type"] = PROTOBUF


class _Batch:
    """A request that is being read, and how many more values it may have."""

    def __init__(self) -> None:
        self.values_left = MOST_VALUES

    def read(self, request: Any) -> dict[str, Any]:
        return {"resourceSpans": [self._resource(resource) for resource in self._counted(request.resource_spans)]}

    def _resource(self, resource: Any) -> dict[str, Any]:
        scopes = []
        for scope in self._counted(resource.scope_spans):
            scopes.append({"spans": [self._span(span) for span in self._counted(scope.spans)]})
        return {"resource": {"attributes": self._attributes(resource.resource.attributes)}, "scopeSpans": scopes}

    def _span(self, span: Any) -> dict[str, Any]:
        """Return the parts of a span that messages are read from, as OTLP's JSON has them; its name, status and links are left out."""
        events = []
        for event in self._counted(span.events):
            events.append({"name": event.name, "attributes": self._attributes(event.attributes)})
        return {
            "traceId": span.trace_id.hex(),
            "spanId": span.span_id.hex(),
            "parentSpanId": span.parent_span_id.hex(),
            "startTimeUnixNano": str(span.start_time_unix_nano),
            "endTimeUnixNano": str(span.end_time_unix_nano),
            "attributes": self._attributes(span.attributes),
            "events": events,
        }

    def _attributes(self, pairs: Sequence[Any]) -> list[dict[str, Any]]:
        return [{"key": pair.key, "value": self._value(pair.value)} for pair in self._counted(pairs)]

    def _value(self, value: Any) -> dict[str, Any]:
        """Return a value as OTLP's JSON has it: integers as texts, bytes in base64; an empty object for one that is not set."""
        match value.WhichOneof("value"):
            case "array_value":
                return {"arrayValue": {"values": [self._value(p) for p in self._counted(value.array_value.values)]}}
            case "kvlist_value":
                return {"kvlistValue": {"values": self._attributes(value.kvlist_value.values)}}
            case "string_value":
                return {"stringValue": value.string_value}
            case "bool_value":
                return {"boolValue": value.bool_value}
            case "int_value":
                return {"intValue": str(value.int_value)}
            case "double_value":
                return {"doubleValue": value.double_value}
            case "bytes_value":
                return {"bytesValue": b64encode(value.bytes_value).decode()}
        return {}

    def _counted(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Return these values, after counting them; a ParseError where the request has too many."""
        self.values_left -= len(parts)
        if self.values_left < 0:
            raise ParseError(
                f"more than {MOST_VALUES:,} spans, events and attributes in one request; set your exporter's batch size lower"
            )
        return parts
