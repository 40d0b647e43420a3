"""Spans of OpenTelemetry come in as an exporter sends them: each message once, however often it is sent."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pytest_django.live_server_helper import LiveServer

from agents.api import otlp
from agents.api.transcripts import MOST_BYTES
from agents.kit.models import ApiToken
from agents.models import Channel, Message
from agents.transcripts import spans
from agents.transcripts.spans import ingest_spans
from agents.transcripts.store import NotEntitled, Rights
from correction.config.configure import configure
from correction.models import ObservedMessage
from tests.agents.transcripts.helpers import said
from tests.agents.transcripts.test_exports import attribute, batch, parts, span
from tests.api_client import Program, refused
from tests.console import superuser
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
URL = "/api/otlp/v1/traces"


def call(number: int, *asked: tuple[str, str], answer: str, **fields: Any) -> dict[str, Any]:
    defaults = {"gen_ai__operation__name": "chat", "gen_ai__conversation__id": "desk", "gen_ai__agent__name": "Ada"}
    held = {"gen_ai__input__messages": parts(*asked), "gen_ai__output__messages": parts(("assistant", answer))}
    return span(number, **{**defaults, **held, **fields})


TALK = [("user", "Late?"), ("assistant", "A bit."), ("user", "ok")]
FIRST = call(1, *TALK[:1], answer="A bit.")
SECOND = call(2, *TALK, answer="ok")


def test_a_conversation_that_comes_span_by_span_is_stored_once(client: Program) -> None:
    ada = make_agent("ada")
    first = client.post(URL, batch(FIRST))
    assert first.status_code == 200
    counts = first.json()
    assert counts.pop("channels")["desk"].endswith("/api/channels/desk/")
    assert counts.pop("notes") is not None
    assert counts == {
        "partialSuccess": {}, "spans": 1, "imported": 2, "duplicates": 0, "sampled_out": 0, "observed": 0, "attributed": 0,
        "system_prompts": 0,
        "skipped_by_reason": {},
    }  # fmt: skip
    assert client.post(URL, batch(SECOND)).json()["imported"] == 2
    for again in (batch(FIRST), batch(SECOND), batch(SECOND, FIRST)):
        assert client.post(URL, again).json()["imported"] == 0
    assert said("desk") == [("user", "Late?"), ("Ada", "A bit."), ("user", "ok"), ("Ada", "ok")]
    assert set(Message.objects.filter(agent=ada).values_list("external_id", flat=True)) == {"s1:1", "s2:3"}


def test_a_step_around_calls_that_comes_after_them_adds_nothing(client: Program) -> None:
    make_agent("ada")
    client.post(URL, batch({**FIRST, "parentSpanId": "s9"}))
    around = call(9, ("user", "Late?"), answer="A bit.", gen_ai__operation__name="invoke_agent")
    assert client.post(URL, batch(around)).json()["imported"] == 0
    assert Message.objects.count() == 2


def step(number: int, around: int | None = None, **fields: Any) -> dict[str, Any]:
    """A span of a trace in the conversation desk, inside another one."""
    inside = {} if around is None else {"parentSpanId": f"s{around}"}
    return {**span(number, gen_ai__conversation__id="desk", **fields), **inside}


def answer(number: int, around: int, text: str) -> dict[str, Any]:
    held = {
        "gen_ai__input__messages": parts(("user", f"{text}?")),
        "gen_ai__output__messages": parts(("assistant", text)),
    }
    return step(number, around, gen_ai__operation__name="chat", **held)


TREE = [
    step(1, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="Ada"),
    step(2, 1, gen_ai__operation__name="execute_tool"),
    answer(3, 2, "by ada"),
    step(4, 2, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="bo"),
    answer(5, 4, "by bo"),
]  # fmt: skip


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 4, 0, 3, 1), (1, 2, 3, 0, 4)])
def test_an_answer_is_of_the_agent_around_it_in_any_arrival_order(order: tuple[int, ...]) -> None:
    ada, bo = make_agent("ada"), make_agent("bo")
    for _ in range(2):
        for number in order:
            ingest_spans(batch(TREE[number]))
        agents = dict(Message.objects.values_list("text", "agent"))
        assert agents == {"by ada?": None, "by ada": ada.pk, "by bo?": None, "by bo": bo.pk}
    members = Channel.objects.get().memberships.values_list("agent", flat=True)
    assert {ada.pk, bo.pk} <= set(members)
    assert ingest_spans(batch(*TREE)).attributed == 0


def test_spans_of_other_traces_change_nothing_and_answers_without_agent_are_named(client: Program) -> None:
    make_agent("ada")
    notes = " ".join(client.post(URL, batch(TREE[2])).json()["notes"])
    assert "1 of 'assistant'" in notes
    assert "gen_ai.agent.name" in notes
    assert "2 messages" not in notes
    other = [{**one, "traceId": "u" * 32} for one in TREE[:2]]
    assert client.post(URL, batch(*other)).json()["attributed"] == 0
    assert not Message.objects.filter(agent__isnull=False).exists()
    assert client.post(URL, batch(*TREE[:2])).json()["attributed"] == 1


def test_answers_wait_to_be_judged_once_their_agent_is_known(client: Program) -> None:
    changes = {"gate_mode": "observe", "gate_adherence_enabled": True, "observe_sample_rate": 1.0}
    configure(agent=make_agent("ada"), changes=changes)
    assert client.post(URL, batch(TREE[2])).json()["observed"] == 0
    assert [client.post(URL, batch(*TREE[:2])).json()["observed"] for _ in range(2)] == [1, 0]
    assert ObservedMessage.objects.count() == 1


def test_an_agent_named_later_joins_only_for_who_may_let_it(client: Program) -> None:
    make_agent("ada")
    client.post(URL, batch(TREE[2]))
    with pytest.raises(NotEntitled, match="agent 'ada' is not a member of channel 'desk'"):
        ingest_spans(batch(*TREE[:2]), rights=Rights(add_members=False))
    assert not Message.objects.filter(agent__isnull=False).exists()


def test_an_agent_and_a_conversation_may_be_named_for_the_whole_program(client: Program) -> None:
    make_agent("ada")
    body = batch(span(1, gen_ai__output__messages=parts(("assistant", "Hello."))))
    body["resourceSpans"][0]["resource"] = {
        "attributes": [attribute("gen_ai.agent.name", "ada"), attribute("session.id", "Shop floor/7")]
    }
    (slug,) = client.post(URL, body | {"unknown": 1}).json()["channels"]
    assert slug.startswith("shop-floor7-")
    assert said(slug) == [("Ada", "Hello.")]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "resourceSpans", "is missing"),
        ({"resourceSpans": {}}, "resourceSpans", "list"),
        (
            batch({**FIRST, "startTimeUnixNano": "soon"}),
            "resourceSpans",
            "'soon' is no time; write nanoseconds since 1970",
        ),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [5]}]}]}, "resourceSpans", "a span must be a JSON object, got 5"),
    ],
)
def test_what_is_no_batch_of_spans_is_refused_with_its_place(
    client: Program, body: Any, field: str, words: str
) -> None:
    assert words in refused(client.post(URL, body))[field][0]


def test_nothing_is_stored_in_a_synthetic_channel(client: Program) -> None:
    Channel.objects.create(slug="desk", name="desk", synthetic=True)
    assert "synthetic" in refused(client.post(URL, batch(FIRST)))["resourceSpans"][0]
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    "odd",
    [
        "\x00",
    ],
)
def test_a_span_sent_again_is_recognised_though_no_database_stores_its_id(client: Program, odd: str) -> None:
    make_agent("ada")
    body = json.dumps(batch({**FIRST, "spanId": f"s{odd}"}))
    counts = [client.post(URL, body, content_type="application/json").json()["imported"] for _ in range(2)]
    assert counts == [2, 0]


@pytest.mark.parametrize("bound", ["MOST_SPANS", "MOST_NEW"])
def test_a_batch_that_would_keep_other_writers_waiting_is_refused(
    client: Program, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, bound, 1)
    assert "allowed: 1" in refused(client.post(URL, batch(FIRST, SECOND)))["resourceSpans"][0]
    assert not Message.objects.exists()


def test_a_name_that_two_agents_have_is_an_outsider_with_a_note(client: Program) -> None:
    for slug in ("ada-1", "ada-2"):
        make_agent(slug, display_name="Ada")
    notes = client.post(URL, batch(FIRST)).json()["notes"]
    assert any("ada-1, ada-2" in note for note in notes)
    assert said("desk") == [("user", "Late?"), ("Ada (outsider)", "A bit.")]


# -- as exporters send them
MESSAGES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.conversation.id": "desk",
    "gen_ai.input.messages": json.dumps(parts(("user", "Late?"))),
    "gen_ai.output.messages": json.dumps(parts(("assistant", "A bit."))),
}


@pytest.fixture
def server(transactional_db: None) -> Iterator[LiveServer]:
    """A server over HTTP, which has no certificate."""
    with override_settings(SECURE_SSL_REDIRECT=False, ALLOWED_HOSTS=["127.0.0.1"]):
        server = LiveServer("127.0.0.1")
        yield server
        server.stop()


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_exporter_of_opentelemetry_is_taken_as_it_is(
    compression: str, server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = make_agent("ada")
    _, key = ApiToken.make(user=superuser(), name="exporter", expires_at=None)
    finished = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"gen_ai.agent.name": "ada"}))
    provider.add_span_processor(SimpleSpanProcessor(finished))
    tracer = provider.get_tracer("shop")
    with tracer.start_as_current_span("turn"), tracer.start_as_current_span("chat", attributes=MESSAGES):
        pass
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{server.url}{URL}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", f"authorization=Token%20{key}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", compression)
    exporter = OTLPSpanExporter()

    results = [exporter.export(finished.get_finished_spans()) for _ in range(2)]

    assert results == [SpanExportResult.SUCCESS] * 2
    assert said("desk") == [("user", "Late?"), ("Ada", "A bit.")]
    [message] = Message.objects.filter(agent=ada)
    assert message.external_id == f"{finished.get_finished_spans()[0].context.span_id:016x}:1"


def in_protobuf(*spans: Span) -> bytes:
    batch_of_spans = ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])
    return bytes(ExportTraceServiceRequest(resource_spans=[batch_of_spans]).SerializeToString())


def send(client: Program, body: bytes, **headers: str) -> Any:
    return client.post(URL, body, content_type="application/x-protobuf", headers=headers)


def test_what_came_as_protobuf_is_answered_as_protobuf_and_refused_as_json(client: Program) -> None:
    text = AnyValue(string_value="A bit.")
    message = [KeyValue(key="role", value=AnyValue(string_value="assistant")), KeyValue(key="content", value=text)]
    said_so = AnyValue(array_value=ArrayValue(values=[AnyValue(kvlist_value=KeyValueList(values=message))]))
    spoken = [
        KeyValue(key="gen_ai.conversation.id", value=AnyValue(int_value=7)),
        KeyValue(key="gen_ai.output.messages", value=said_so),
    ]

    for body in (in_protobuf(Span(trace_id=b"t" * 16, span_id=b"s" * 8, attributes=spoken)), in_protobuf(), b""):
        response = send(client, body, accept="*/*")
        assert (response.status_code, response["Content-Type"]) == (200, "application/x-protobuf")
        assert ExportTraceServiceResponse.FromString(response.content) == ExportTraceServiceResponse()
    assert Message.objects.get(channel__slug="7").text == "A bit."

    Channel.objects.filter(slug="7").update(synthetic=True)
    again = send(client, in_protobuf(Span(trace_id=b"t" * 16, span_id=b"u" * 8, attributes=spoken)))
    assert "synthetic" in refused(again)["resourceSpans"][0]
    assert client.post(URL, batch(FIRST), headers={"accept": "*/*"})["Content-Type"] == "application/json"


@pytest.mark.parametrize("content_type", ["application/json", "application/x-protobuf"])
def test_a_packed_body_is_unpacked_and_no_larger_for_it(
    client: Program, content_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps(batch(FIRST)).encode() if "json" in content_type else in_protobuf(Span(name="GET /"))

    def status(sent: bytes, encoding: str = "gzip") -> int:
        response = client.post(URL, sent, content_type=content_type, headers={"Content-Encoding": encoding})
        return int(response.status_code)

    assert status(gzip.compress(body)) == 200
    assert status(body, "identity") == 200
    assert (status(gzip.compress(body)[:-9]), status(body), status(gzip.compress(body) + b"more")) == (400, 400, 400)
    assert status(body, "br") == 415
    assert status(gzip.compress(b" " * (MOST_BYTES + 1), 1)) == 413


@pytest.mark.parametrize("body", [b"\x0a", b"\x0a\x05ab", b"{}", b"\xff" * 40, in_protobuf(Span(name="x"))[:-1]])
def test_what_is_no_protobuf_of_spans_is_a_400(client: Program, body: bytes) -> None:
    assert "allowed: a protobuf message ExportTraceServiceRequest" in refused(send(client, body))["detail"][0]


def test_protobuf_that_would_unfold_to_very_much_is_refused(client: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = AnyValue(array_value=ArrayValue(values=[AnyValue()] * 50))
    monkeypatch.setattr(otlp, "MOST_VALUES", 40)
    for wide in (Span(attributes=[KeyValue(key="x", value=empty)]), Span(events=[Span.Event()] * 50)):
        assert "more than 40 spans, events and attributes" in refused(send(client, in_protobuf(wide)))["detail"][0]
