"""Send scores to a receiver of OpenTelemetry as events ``gen_ai.evaluation.result``: logs in protobuf, packed by gzip, over HTTP.

Read: https://opentelemetry.io/docs/specs/otlp/#otlphttp and
https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-events.md (event ``gen_ai.evaluation.result``).
The classes of protobuf are imported where they are used: they cost a tenth of a second, and most processes send no score.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from django.conf import settings

from correction.sending.answers import Answer, not_configured, post_scores
from correction.sending.records import Detail, ScoreRecord

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

EVENT = "gen_ai.evaluation.result"
PATH = "/v1/logs"
HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
HEADERS_ALLOWED = (
    "SCORES_OTLP_HEADERS is not understood; allowed: NAME=VALUE separated by commas, values percent-encoded"
)


def is_configured() -> bool:
    """Return whether there is a receiver."""
    return bool(settings.SCORES_OTLP_ENDPOINT)


def send(records: Sequence[ScoreRecord]) -> Answer:
    """Send records in one request."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

    try:
        own_headers = parse_headers(settings.SCORES_OTLP_HEADERS)
    except ValueError as error:
        return not_configured(str(error))
    headers = {
        "user-agent": "Plumbline",
        **own_headers,
        "content-type": "application/x-protobuf",
        "content-encoding": "gzip",
    }
    posted = post_scores(logs_url(settings.SCORES_OTLP_ENDPOINT), gzip.compress(encode(records)), headers)
    rejected = 0
    if not posted.outcome.problem:
        try:
            response = ExportLogsServiceResponse.FromString(posted.body)
            rejected = response.partial_success.rejected_log_records
        except DecodeError:  # a receiver that answers in its own words took them: it said so by the status
            pass
    return Answer(posted.outcome, rejected)


def logs_url(endpoint: str) -> str:
    """Return the address that logs are posted to; the path is added where the setting does not name it."""
    endpoint = endpoint.rstrip("/")
    return endpoint if endpoint.endswith(PATH) else f"{endpoint}{PATH}"


def parse_headers(text: str) -> dict[str, str]:
    """Read headers as OTEL_EXPORTER_OTLP_HEADERS has them, such as ``authorization=Bearer%20key,tenant=7``.

    Raises:
        ValueError: They are not written so; says what is allowed, without what may be secret.
    """
    headers: dict[str, str] = {}
    for pair in text.split(","):
        if not pair.strip():
            continue
        name, separator, value = pair.partition("=")
        name = name.strip()
        value = unquote(value.strip())
        if not separator or not HEADER.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise ValueError(HEADERS_ALLOWED)
        headers[name.lower()] = value
    return headers


def encode(records: Sequence[ScoreRecord]) -> bytes:
    """Return an ``ExportLogsServiceRequest`` with a log record per score."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    scope_logs = ScopeLogs(
        scope=InstrumentationScope(name="plumbline"), log_records=[_log_record(record) for record in records]
    )
    resource = Resource(attributes=_key_values({"service.name": "plumbline"}))
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=resource, scope_logs=[scope_logs])])
    return bytes(request.SerializeToString())


def attributes_of(record: ScoreRecord) -> dict[str, Detail]:
    """Return the attributes of the event. What has no number has no attribute for it."""
    attributes: dict[str, Detail] = {
        "log.record.uid": record.id,
        "gen_ai.evaluation.name": record.name,
        "gen_ai.evaluation.score.label": record.label,
    }
    if record.value is not None:
        attributes["gen_ai.evaluation.score.value"] = record.value
    if record.explanation:
        attributes["gen_ai.evaluation.explanation"] = record.explanation
    if record.error_type:
        attributes["error.type"] = record.error_type
    if record.conversation:
        attributes["gen_ai.conversation.id"] = record.conversation
    if record.message_id and record.place is None:
        attributes["gen_ai.response.id"] = record.message_id
    if record.agent is not None:
        attributes["gen_ai.agent.id"] = record.agent.slug
        attributes["gen_ai.agent.name"] = record.agent.display_name
    for name, value in record.details.items():
        attributes[f"plumbline.{name}"] = value
    return attributes


def _log_record(record: ScoreRecord) -> LogRecord:
    from opentelemetry.proto.logs.v1.logs_pb2 import SEVERITY_NUMBER_INFO, LogRecord

    log_record = LogRecord(
        time_unix_nano=_nanoseconds(record.at),
        observed_time_unix_nano=_nanoseconds(record.at),
        severity_number=SEVERITY_NUMBER_INFO,
        event_name=EVENT,
        attributes=_key_values(attributes_of(record)),
    )
    if record.place is not None:
        trace_id = _id_bytes(record.place.trace, 16)
        span_id = _id_bytes(record.place.span, 8)
        if trace_id and span_id:
            log_record.trace_id = trace_id
            log_record.span_id = span_id
    return log_record


def _key_values(attributes: Mapping[str, Detail]) -> list[KeyValue]:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

    pairs = []
    for name, value in attributes.items():
        wrapped: dict[str, Any]
        if isinstance(value, bool):
            wrapped = {"bool_value": value}
        elif isinstance(value, int):
            wrapped = {"int_value": value}
        elif isinstance(value, float):
            wrapped = {"double_value": value}
        else:
            wrapped = {"string_value": value}
        pairs.append(KeyValue(key=name, value=AnyValue(**wrapped)))
    return pairs


def _id_bytes(text: str, size: int) -> bytes:
    """Return the bytes of an id in hexadecimal; none where it is not one of OpenTelemetry's."""
    try:
        value = bytes.fromhex(text)
    except ValueError:
        return b""
    return value if len(value) == size else b""


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000
