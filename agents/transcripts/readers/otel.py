"""GenAI spans of OpenTelemetry as OTLP JSON: lines of a collector's file exporter, or the body of an OTLP/HTTP request.

Read: https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/ and
https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-spans.md (messages as attributes, since 1.37); before, each
message was an event of the span. OpenLLMetry writes ``gen_ai.prompt.0.role``, OpenInference ``llm.input_messages.0.message.role``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from agents.kit.files.json_input import MAX_DEPTH, Row
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.traces import ASSISTANT, USER, Call, Item, calls_of, conversations, items_of
from agents.transcripts.records import Record

AGENT = "gen_ai.agent.name"
CONVERSATION_KEYS = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
)
_MODEL = frozenset({"chat", "generate_content", "text_completion", "completion"})
_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message|gen_ai\.(choice)")
_INDEXED = re.compile(
    r"(?:gen_ai\.(prompt|completion)|llm\.(input_messages|output_messages))\.(\d{1,4})\.(?:message\.)?(role|content|name)"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_otel(value: dict[str, Any]) -> bool:
    """Whether it is a batch of spans."""
    return isinstance(value.get("resourceSpans"), list)


def read_otel(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read every span that holds messages; spans of a conversation (else of a trace) are one conversation."""
    calls = [
        call
        for line, value in calls_of(source)
        for call in calls_in(Row(value, path=source.name, line=line, what="a batch of spans"))
    ]
    if not calls:
        raise FileError(source.name, 0, "the file holds no span")
    yield from conversations(named(calls))


def calls_in(batch: Row) -> Iterator[Call]:
    """The spans of one object with ``resourceSpans``."""
    for resource in batch.list("resourceSpans", required=True):
        of = batch.child(resource, "an entry of 'resourceSpans'")
        shared = _attributes(of.child(of.object("resource"), "'resource'"))
        shared = {key: value for key, value in shared.items() if key in (AGENT, *CONVERSATION_KEYS)}
        for scope in of.list("scopeSpans"):
            inner = of.child(scope, "an entry of 'scopeSpans'")
            for span in inner.list("spans"):
                yield _call(inner.child(span, "a span"), shared)


def named(calls: list[Call]) -> list[Call]:
    """The calls, those without a conversation in that of their trace."""
    conversations_of = {call.trace: call.conversation for call in calls if call.conversation}
    for call in calls:
        call.conversation = call.conversation or conversations_of.get(call.trace) or call.trace
    return calls


def _call(row: Row, shared: Mapping[str, Any]) -> Call:
    about = {**shared, **_attributes(row)}
    events = [row.child(event, "an event") for event in row.list("events")]
    for event in events:
        if event.name("name") == "gen_ai.client.inference.operation.details":
            about = _attributes(event) | about
    inputs = _items(about.get("gen_ai.input.messages"), USER)
    outputs = _items(about.get("gen_ai.output.messages"), ASSISTANT)
    for event in events:
        if match := _EVENT.fullmatch(event.name("name")):
            inner = _attributes(event)
            message = inner.get("message", inner.get("gen_ai.event.content", inner))
            role = match[1] or ASSISTANT
            items = _items({"role": role, **message} if isinstance(message, dict) else message, role)
            (outputs if match[2] else inputs).extend(items)
    if not inputs and not outputs:
        inputs, outputs = _indexed(about)
    system = about.get("gen_ai.system_instructions")
    if system is not None:
        texts = [item.text for item in _items(system, "system") if item.text]
        inputs = [Item("system", "\n".join(texts))] * bool(texts) + inputs
    operation = str(about.get("gen_ai.operation.name") or about.get("llm.request.type") or "")
    kind = str(about.get("openinference.span.kind") or about.get("traceloop.span.kind") or "").casefold()
    return Call(
        id=row.name("spanId"),
        line=row.line,
        conversation=next(
            (str(about[key]) for key in CONVERSATION_KEYS if isinstance(about.get(key), str | int) and about[key]), ""
        ),
        parent=row.name("parentSpanId"),
        trace=row.name("traceId"),
        agent=str(about.get(AGENT) or about.get("agent.name") or ""),
        model=str(
            about.get("gen_ai.response.model") or about.get("gen_ai.request.model") or about.get("llm.model_name") or ""
        ),
        is_model=operation in _MODEL or (not operation and kind in ("", "llm")),
        started=_time(row, "startTimeUnixNano"),
        ended=_time(row, "endTimeUnixNano"),
        inputs=inputs,
        outputs=outputs,
        unread="span without messages",
    )


def _items(value: Any, role: str) -> list[Item]:
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, dict) and "content" in value:
        value = {"role": role, **value}
    if value and isinstance(value, list) and not any("role" in one for one in value if isinstance(one, dict)):
        value = {"role": role, "parts": value}  # parts without a message
    return items_of(value, role) or []


def _indexed(about: Mapping[str, Any]) -> tuple[list[Item], list[Item]]:
    """The messages that are spread over numbered attributes."""
    inputs: dict[int, dict[str, Any]] = {}
    outputs: dict[int, dict[str, Any]] = {}
    for key, value in about.items():
        if match := _INDEXED.fullmatch(key):
            side = inputs if match[1] == "prompt" or match[2] == "input_messages" else outputs
            side.setdefault(int(match[3]), {})[match[4]] = value
    ask, say = ([side[n] for n in sorted(side)] for side in (inputs, outputs))
    return _items([{"role": USER, **one} for one in ask], USER), _items(
        [{"role": ASSISTANT, **one} for one in say], ASSISTANT
    )


def _attributes(row: Row) -> dict[str, Any]:
    """The attributes of a span or an event as plain values."""
    pairs = row.list("attributes")
    return {
        str(pair["key"]): _plain(pair.get("value"), row, 0)
        for pair in pairs
        if isinstance(pair, dict) and "key" in pair
    }


def _plain(value: Any, row: Row, depth: int) -> Any:
    """A value of OTLP (``{"stringValue": …}``) as it is in JSON."""
    if depth > MAX_DEPTH:
        row.fail(f"an attribute is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(value, dict):
        return value
    for key in ("arrayValue", "kvlistValue"):
        inner = value.get(key)
        if isinstance(inner, dict):
            values = inner.get("values")
            values = [one for one in values if isinstance(one, dict)] if isinstance(values, list) else []
            if key == "arrayValue":
                return [_plain(one, row, depth + 1) for one in values]
            return {str(one.get("key")): _plain(one.get("value"), row, depth + 1) for one in values}
    return next(iter(value.values()), None)


def _time(row: Row, key: str) -> datetime | None:
    """Nanoseconds since 1970, as a text or a number; 0 and nothing are no time."""
    text = row.name(key)
    if text in ("", "0"):
        return None
    try:
        return _EPOCH + timedelta(microseconds=int(text) // 1000)
    except (ValueError, OverflowError):
        row.fail(f'{key!r}: {text[:40]!r} is no time; write nanoseconds since 1970, e.g. "1767225600000000000"')
