"""Exports of Langfuse: a trace or session as JSON, tables of traces or observations (JSON, JSON Lines), answers of its API.

Read: https://langfuse.com/faq/all/export-single-trace-or-session, and TraceWithFullDetails and Observation of its OpenAPI specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.kit.files.json_input import Row
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.traces import BothSides, Call, both_sides, calls_of, conversations, moment
from agents.transcripts.records import Record


def is_langfuse(value: dict[str, Any]) -> bool:
    """Return whether it is a trace, an observation, a row of a table of traces, or has some under ``data`` or ``traces``."""
    rows = value.get("data") or value.get("traces")
    if isinstance(rows, list) and rows and isinstance(rows[0], dict):
        return is_langfuse(rows[0])
    names = set(value)
    is_trace = isinstance(value.get("observations"), list) and bool({"trace", "timestamp", "sessionId"} & names)
    is_observation = {"traceId", "startTime"} <= names
    is_row_of_traces = (
        "timestamp" in names and bool({"sessionId", "userId", "htmlPath"} & names) and bool({"input", "output"} & names)
    )
    return is_trace or is_observation or is_row_of_traces


def read_langfuse(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read every generation as a call of a model; traces of a session are one conversation, one without a session is its own.

    Raises:
        FileError: The file holds no trace, or is malformed or too large.
    """
    calls: list[Call] = []
    for line, value in calls_of(source):
        calls += _calls(Row(value, path=source.name, line=line, what="a trace or observation"), session="")
    if not calls:
        raise FileError(source.name, 0, "the file holds no trace")
    sessions = {call.trace: call.conversation for call in calls if call.conversation and call.id == call.trace}
    for call in calls:
        call.conversation = sessions.get(call.trace) or call.conversation or call.trace
    yield from conversations(calls)


def _calls(row: Row, *, session: str) -> Iterator[Call]:
    """Yield the calls of a trace with its observations, of an observation, or of a list of them.

    Args:
        session: Around it, for traces that name none; empty: there is none.

    Raises:
        FileError: One has no id, or is malformed.
    """
    if isinstance(row.value.get("data"), list):  # an answer of the API
        for entry in row.list("data"):
            yield from _calls(row.child(entry, "a trace"), session=session)
        return
    if isinstance(row.value.get("traces"), list):  # a session
        for entry in row.list("traces"):
            yield from _calls(row.child(entry, "a trace"), session=row.name("id"))
        return
    head = row.child(row.value["trace"], "'trace'") if isinstance(row.value.get("trace"), dict) else row
    session = head.name("sessionId") or session
    trace = head.name("traceId") or head.name("id")
    if not trace:
        row.fail(f"{row.what} has no 'id' and no 'traceId'")
    yield _call(head, trace, session)
    for observation in row.list("observations"):
        if not isinstance(observation, dict):  # a table lists their ids
            continue
        fields = {name: value for name, value in observation.items() if value is not None}
        yield _call(row.child({"parentObservationId": trace, **fields}, "an observation"), trace, session)


def _call(row: Row, trace: str, session: str) -> Call:
    """Return a trace (which has no type) or an observation as a call. Of tools and the like, input and output are not read.

    Its parent is the observation around it, else the trace. Only a generation is a call of a model.

    Args:
        session: Of the trace; empty: it is in none.
    """
    kind = row.name("type").upper()
    is_model = kind == "GENERATION"
    sides = BothSides()
    if kind in ("", "GENERATION", "AGENT", "CHAIN", "SPAN"):
        sides = both_sides(row.value.get("input"), row.value.get("output"))
    parent = row.name("parentObservationId")
    if not parent and row.name("traceId") != row.name("id"):
        parent = row.name("traceId")
    return Call(
        id=row.name("id"),
        line=row.line,
        conversation=session,
        parent=parent,
        trace=trace,
        agent=row.name("name") if kind == "AGENT" else "",
        model=row.name("model") if is_model else "",
        is_model=is_model,
        started=moment(row.time("startTime", "timestamp")),
        ended=moment(row.time("endTime")),
        inputs=sides.inputs,
        outputs=sides.outputs,
        unread="call without a chat" if is_model else "",
    )
