"""Receivers of scores on loopback: one of OpenTelemetry's logs, and one that answers as Langfuse does. Both keep what came."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

PUBLIC_KEY = "pk-lf-1"
SECRET_KEY = "sk-lf-s3cret"


class ScoreServer:
    """A receiver. It answers with `status` where that is set, and does not answer the requests whose numbers `holds` has, from 1.

    Attributes:
        requests: Headers and body of each request, in their order.
        came: Is set when one came that is not answered.
    """

    path = ""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        self.holds: set[int] = set()
        self.came = threading.Event()
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, answer = server.status, b""
                if self.path != server.path:
                    status = 404
                if not status:
                    status, answer = server.take(headers, body)
                server.requests.append((headers, body))
                if len(server.requests) in server.holds:
                    server.came.set()
                    server.over.wait(120)
                    return
                self.send_response(status)
                for name, value in server.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def take(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Keep a request; return status and body of the answer."""
        raise NotImplementedError


Server = TypeVar("Server", bound=ScoreServer)


class LogsServer(ScoreServer):
    """A receiver of OTLP's logs over HTTP.

    Attributes:
        rejects: How many records of each request it says it does not take.
        refuses: Text of an attribute; a request that holds it is answered 400.
    """

    path = "/v1/logs"

    def __init__(self) -> None:
        super().__init__()
        self.records: list[LogRecord] = []
        self.rejects = 0
        self.refuses = ""

    def take(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if headers["content-type"] != "application/x-protobuf":
            return 415, b""
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if self.refuses and self.refuses.encode() in body:
            return 400, b""
        request = ExportLogsServiceRequest.FromString(body)
        for resource_logs in request.resource_logs:
            for scope_logs in resource_logs.scope_logs:
                self.records.extend(scope_logs.log_records)
        rejected = ExportLogsPartialSuccess(rejected_log_records=self.rejects, error_message="too old")
        response = ExportLogsServiceResponse(partial_success=rejected if self.rejects else None)
        return 200, response.SerializeToString()

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return the attributes of each record that came, in their order."""
        return [attributes_of(record) for record in self.records]

    @property
    def ids(self) -> list[str]:
        return [event["log.record.uid"] for event in self.events]


class LangfuseServer(ScoreServer):
    """Answers as Langfuse's ``POST /api/public/scores`` does: scores by id and time, wrong ones rejected."""

    path = "/api/public/scores"

    def __init__(self) -> None:
        super().__init__()
        self.scores: dict[tuple[str, str], dict[str, Any]] = {}
        self.ids: list[str] = []  # also of scores that came again

    def take(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        keys = base64.b64encode(f"{PUBLIC_KEY}:{SECRET_KEY}".encode()).decode()
        if headers.get("authorization") != f"Basic {keys}":
            return 401, b"{}"
        if len(body) > 1_000_000:
            return 413, b"{}"
        rejected = 0
        for score in json.loads(body):
            if not _is_valid(score):
                rejected += 1
                continue
            self.ids.append(score["id"])
            self.scores[score["id"], score["timestamp"]] = score
        if rejected:
            errors = [{"message": "invalid"}] * rejected
            return 207, json.dumps({"accepted": 1, "rejected": rejected, "errors": errors}).encode()
        return 202, b'{"message":"Accepted"}'


def _is_valid(score: dict[str, Any]) -> bool:
    """Return whether Langfuse takes a score: about a trace or a session, and its value of its type."""
    value = score["value"]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    right_type = is_number if score["dataType"] == "NUMERIC" else isinstance(value, str) and bool(value)
    target = ("traceId" in score) != ("sessionId" in score)
    return bool(score["id"]) and bool(score["name"]) and right_type and target


def attributes_of(record: LogRecord) -> dict[str, Any]:
    return {pair.key: _value_of(pair.value) for pair in record.attributes}


def _value_of(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")


@contextmanager
def listening(server: Server) -> Iterator[Server]:
    """Have a receiver answer inside."""
    thread = threading.Thread(target=server.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.server.shutdown()
        server.server.server_close()
