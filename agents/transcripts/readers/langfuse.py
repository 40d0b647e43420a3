"""Exports of Langfuse: a trace or session as JSON, tables of traces or observations (JSON, JSON Lines), answers of its API.

Read: https://langfuse.com/faq/all/export-single-trace-or-session, and TraceWithFullDetails and Observation of its OpenAPI specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.kit.files.json_input import Row
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.traces import Call, both_sides, calls_of, conversations, moment
from agents.transcripts.records import Record


def is_langfuse(value: dict[str, Any]) -> bool:
    """Whether it is a trace, an observation, or holds some."""
    inner = value.get("data") or value.get("traces")
    if isinstance(inner, list) and inner and isinstance(inner[0], dict):
        return is_langfuse(inner[0])
    keys = set(value)
    trace = isinstance(value.get("observations"), list) and bool({"trace", "timestamp", "sessionId"} & keys)
    return (
        trace
        or {"traceId", "startTime"} <= keys
        or (
            {"timestamp"} <= keys
            and {"sessionId", "userId", "htmlPath"} & keys != set()
            and {"input", "output"} & keys != set()
        )
    )


def read_langfuse(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read every generation as a call of a model; traces of a session are one conversation."""
    calls: list[Call] = []
    for line, value in calls_of(source):
        calls += _calls(Row(value, path=source.name, line=line, what="a trace or observation"), "")
    if not calls:
        raise FileError(source.name, 0, "the file holds no trace")
    sessions = {call.trace: call.conversation for call in calls if call.conversation and call.id == call.trace}
    for call in calls:
        call.conversation = sessions.get(call.trace) or call.conversation or call.trace
    yield from conversations(calls)


def _calls(row: Row, session: str) -> Iterator[Call]:
    for key in ("data", "traces"):
        if isinstance(row.value.get(key), list):
            for one in row.list(key):
                yield from _calls(row.child(one, "a trace"), row.name("id") if key == "traces" else session)
            return
    head = row.child(row.value["trace"], "'trace'") if isinstance(row.value.get("trace"), dict) else row
    session = head.name("sessionId") or session
    trace = head.name("traceId") or head.name("id")
    if not trace:
        row.fail(f"{row.what} has no 'id' and no 'traceId'")
    yield _call(head, trace, session)
    for one in row.list("observations"):
        if isinstance(one, dict):  # lists of ids in tables are no observations
            yield _call(
                row.child(
                    {"parentObservationId": trace, **{k: v for k, v in one.items() if v is not None}}, "an observation"
                ),
                trace,
                session,
            )


def _call(row: Row, trace: str, session: str) -> Call:
    kind = row.name("type").upper()
    chat = kind in ("", "GENERATION", "AGENT", "CHAIN", "SPAN")
    inputs, outputs = both_sides(row.value.get("input"), row.value.get("output")) if chat else ([], [])
    model = kind == "GENERATION"
    return Call(
        id=row.name("id"),
        line=row.line,
        conversation=session,
        parent=row.name("parentObservationId")
        or (row.name("traceId") if row.name("traceId") != row.name("id") else ""),
        trace=trace,
        agent=row.name("name") if kind == "AGENT" else "",
        model=row.name("model") if model else "",
        is_model=model,
        started=moment(row.time("startTime", "timestamp")),
        ended=moment(row.time("endTime")),
        inputs=inputs,
        outputs=outputs,
        unread="call without a chat" if model else "",
    )
