"""GenAI spans of OpenTelemetry as OTLP JSON: lines of a collector's file exporter, or the body of an OTLP/HTTP request.

Read: https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/ and
https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-spans.md (messages as attributes, since 1.37); before, each
message was an event of the span. OpenLLMetry writes ``gen_ai.prompt.0.role``, OpenInference ``llm.input_messages.0.message.role``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from agents.kit.files.json_input import MAX_DEPTH, Row
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.traces import ASSISTANT, USER, BothSides, Call, Item, calls_of, conversations, items_of
from agents.transcripts.records import Record

AGENT = "gen_ai.agent.name"
CONVERSATION_KEYS = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
)
_MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion", "completion"})
_MESSAGE_EVENT = re.compile(r"gen_ai\.(?P<role>system|user|assistant|tool)\.message|gen_ai\.(?P<choice>choice)")
_NUMBERED = re.compile(
    r"(?:gen_ai\.(?P<side>prompt|completion)|llm\.(?P<openinference_side>input_messages|output_messages))"
    r"\.(?P<number>\d{1,4})\.(?:message\.)?(?P<field>role|content|name)"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_otel(value: dict[str, Any]) -> bool:
    """Return whether it is a batch of spans."""
    return isinstance(value.get("resourceSpans"), list)


def read_otel(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read every span that holds messages; spans of a conversation (else of a trace) are one conversation."""
    calls: list[Call] = []
    for line, value in calls_of(source):
        calls += calls_in(Row(value, path=source.name, line=line, what="a batch of spans"))
    if not calls:
        raise FileError(source.name, 0, "the file holds no span")
    yield from conversations(with_conversations(calls))


def calls_in(batch: Row) -> Iterator[Call]:
    """Yield the spans of one object with ``resourceSpans``; agent and conversation of a resource hold for its spans that name none.

    Raises:
        FileError: It is malformed.
    """
    for entry in batch.list("resourceSpans", required=True):
        resource_spans = batch.child(entry, "an entry of 'resourceSpans'")
        resource = resource_spans.child(resource_spans.object("resource"), "'resource'")
        shared = {name: value for name, value in _attributes(resource).items() if name in (AGENT, *CONVERSATION_KEYS)}
        for scope in resource_spans.list("scopeSpans"):
            scope_spans = resource_spans.child(scope, "an entry of 'scopeSpans'")
            for span in scope_spans.list("spans"):
                yield _call(scope_spans.child(span, "a span"), shared)


def with_conversations(calls: list[Call]) -> list[Call]:
    """Put calls without a conversation into that of their trace, or one of the trace's own. Changes the calls, and returns them."""
    conversations_of = {call.trace: call.conversation for call in calls if call.conversation}
    for call in calls:
        call.conversation = call.conversation or conversations_of.get(call.trace) or call.trace
    return calls


def _call(span: Row, shared: Mapping[str, Any]) -> Call:
    """Return a span as a call, of a model where its operation says so, or it names none and its kind is "llm" or not given either.

    Args:
        shared: Attributes of the resource, which hold where the span has no such attribute.

    Raises:
        FileError: It is malformed.
    """
    events = [span.child(event, "an event") for event in span.list("events")]
    attributes = {**_details(events), **shared, **_attributes(span)}
    sides = _sides(attributes, events)
    instructions = _items(attributes.get("gen_ai.system_instructions"), "system")
    system = "\n".join(item.text for item in instructions if item.text)
    inputs = [Item("system", system), *sides.inputs] if system else sides.inputs
    operation = _first_text(attributes, "gen_ai.operation.name", "llm.request.type")
    kind = _first_text(attributes, "openinference.span.kind", "traceloop.span.kind").casefold()
    return Call(
        id=span.name("spanId"),
        line=span.line,
        conversation=_conversation_of(attributes),
        parent=span.name("parentSpanId"),
        trace=span.name("traceId"),
        agent=_first_text(attributes, AGENT, "agent.name"),
        model=_first_text(attributes, "gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
        is_model=operation in _MODEL_OPERATIONS or (not operation and kind in ("", "llm")),
        started=_time(span, "startTimeUnixNano"),
        ended=_time(span, "endTimeUnixNano"),
        inputs=inputs,
        outputs=sides.outputs,
        unread="span without messages",
    )


def _details(events: Sequence[Row]) -> dict[str, Any]:
    """Return the attributes of events that hold the details of a call; of several the first one's come before the others'."""
    details: dict[str, Any] = {}
    for event in reversed(events):
        if event.name("name") == "gen_ai.client.inference.operation.details":
            details |= _attributes(event)
    return details


def _sides(attributes: Mapping[str, Any], events: Sequence[Row]) -> BothSides:
    """Return the messages of a span: of its attributes and its events, else of numbered attributes.

    An event is a message with the role in its name, e.g. ``gen_ai.user.message``; ``gen_ai.choice`` is what was answered.
    """
    sides = BothSides(
        _items(attributes.get("gen_ai.input.messages"), USER),
        _items(attributes.get("gen_ai.output.messages"), ASSISTANT),
    )
    for event in events:
        match = _MESSAGE_EVENT.fullmatch(event.name("name"))
        if match is None:
            continue
        of_event = _attributes(event)
        message = of_event.get("message", of_event.get("gen_ai.event.content", of_event))
        role = match["role"] or ASSISTANT
        if isinstance(message, dict):
            message = {"role": role, **message}
        side = sides.outputs if match["choice"] else sides.inputs
        side.extend(_items(message, role))
    if sides.inputs or sides.outputs:
        return sides
    return _numbered_sides(attributes)


def _items(value: Any, role: str) -> list[Item]:
    """Return the messages in an attribute, which may be JSON, a message without a role, or parts without a message.

    None are returned where it is no chat.

    Args:
        role: Of what has no role.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, dict) and "content" in value:
        value = {"role": role, **value}
    if isinstance(value, list) and value:
        has_roles = any("role" in part for part in value if isinstance(part, dict))
        if not has_roles:
            value = {"role": role, "parts": value}
    return items_of(value, role) or []


def _numbered_sides(attributes: Mapping[str, Any]) -> BothSides:
    """Return the messages that are spread over numbered attributes, such as ``gen_ai.prompt.0.role``, in the order of their numbers."""
    prompts: dict[int, dict[str, Any]] = {}
    answered: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        match = _NUMBERED.fullmatch(name)
        if match is None:
            continue
        is_asked = match["side"] == "prompt" or match["openinference_side"] == "input_messages"
        messages = prompts if is_asked else answered
        messages.setdefault(int(match["number"]), {})[match["field"]] = value
    inputs = [{"role": USER, **prompts[number]} for number in sorted(prompts)]
    outputs = [{"role": ASSISTANT, **answered[number]} for number in sorted(answered)]
    return BothSides(_items(inputs, USER), _items(outputs, ASSISTANT))


def _conversation_of(attributes: Mapping[str, Any]) -> str:
    """Return the id of a span's conversation; empty where no attribute names one."""
    for name in CONVERSATION_KEYS:
        value = attributes.get(name)
        if isinstance(value, str | int) and value:
            return str(value)
    return ""


def _first_text(attributes: Mapping[str, Any], *names: str) -> str:
    """Return the first of these attributes that is there and not empty, as text."""
    for name in names:
        if attributes.get(name):
            return str(attributes[name])
    return ""


def _attributes(row: Row) -> dict[str, Any]:
    """Return the attributes of a span or an event as plain values."""
    attributes: dict[str, Any] = {}
    for pair in row.list("attributes"):
        if isinstance(pair, dict) and "key" in pair:
            attributes[str(pair["key"])] = _json_value(pair.get("value"), row, depth=0)
    return attributes


def _json_value(value: Any, row: Row, depth: int) -> Any:
    """Return a value of OTLP (``{"stringValue": …}``) as it is in JSON; an empty one is None, a 64-bit integer stays a text.

    Raises:
        FileError: It is nested too deep.
    """
    if depth > MAX_DEPTH:
        row.fail(f"an attribute is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("arrayValue"), dict):
        return [_json_value(inner, row, depth + 1) for inner in _inner_values(value["arrayValue"])]
    if isinstance(value.get("kvlistValue"), dict):
        pairs = _inner_values(value["kvlistValue"])
        return {str(pair.get("key")): _json_value(pair.get("value"), row, depth + 1) for pair in pairs}
    return next(iter(value.values()), None)


def _inner_values(value: dict[str, Any]) -> list[dict[str, Any]]:
    values = value.get("values")
    return [inner for inner in values if isinstance(inner, dict)] if isinstance(values, list) else []


def _time(row: Row, key: str) -> datetime | None:
    """Read nanoseconds since 1970, as a text or a number; None for 0 and nothing.

    Raises:
        FileError: It is no such number.
    """
    text = row.name(key)
    if text in ("", "0"):
        return None
    try:
        return _EPOCH + timedelta(microseconds=int(text) // 1000)
    except (ValueError, OverflowError):
        row.fail(f'{key!r}: {text[:40]!r} is no time; write nanoseconds since 1970, e.g. "1767225600000000000"')
