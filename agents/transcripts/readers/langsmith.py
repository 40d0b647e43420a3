"""Exports of LangSmith: runs as JSON Lines, as a list, or as the API answers them.

Read: https://docs.langchain.com/langsmith/run-data-format and
https://docs.zenml.io/kitaru/import-your-traces/import-langsmith-traces (shapes of exports).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.kit.files.json_input import Row
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.traces import BothSides, Call, both_sides, calls_of, conversations, moment
from agents.transcripts.records import Record

AGENT_KEYS = ("lc_agent_name", "agent_name")  # of the metadata
THREAD_KEYS = ("thread_id", "session_id", "conversation_id")  # of the metadata; beside it session_id is the project


def is_langsmith(value: dict[str, Any]) -> bool:
    """Return whether it is a run, or holds some."""
    runs = value.get("runs") or value.get("data")
    if isinstance(runs, list) and runs and isinstance(runs[0], dict):
        return is_langsmith(runs[0])
    return isinstance(value.get("run_type"), str) and bool({"inputs", "outputs"} & set(value))


def read_langsmith(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read every run of a model (``run_type: llm``); runs of a thread are one conversation.

    A run without a thread belongs to the first thread that a run of its trace names, else to one of the trace's own.

    Raises:
        FileError: The file holds no run, or is malformed or too large.
    """
    calls: list[Call] = []
    for line, value in calls_of(source):
        row = Row(value, path=source.name, line=line, what="a run")
        for run in _runs_of(row):
            calls += _calls(row.child(run, "a run"), parent="", depth=0)
    if not calls:
        raise FileError(source.name, 0, "the file holds no run")
    threads: dict[str, str] = {}
    for call in calls:
        if call.conversation:
            threads.setdefault(call.trace, call.conversation)
    for call in calls:
        call.conversation = call.conversation or threads.get(call.trace) or call.trace
    yield from conversations(calls)


def _runs_of(row: Row) -> list[Any]:
    """Return the runs of an answer of the API, or the run itself."""
    for name in ("runs", "data"):
        if isinstance(row.value.get(name), list):
            return row.list(name)
    return [row.value]


def _calls(run: Row, *, parent: str, depth: int) -> Iterator[Call]:
    """Yield a run and the runs inside it. Of a tool or a retriever neither input nor output is read.

    Args:
        parent: Id of the run around it, for one that names none; empty: there is none.
        depth: How many runs are around it.

    Raises:
        FileError: It is nested too deep, or malformed.
    """
    if depth > 100:
        run.fail("runs nested deeper than 100 levels")
    metadata = run.child(run.object("extra"), "'extra'").object("metadata")
    kind = run.name("run_type")
    is_model = kind == "llm"
    own_id = run.name("id")
    trace = run.name("trace_id") or own_id
    sides = BothSides()
    if kind in ("llm", "chain", ""):
        sides = both_sides(run.value.get("inputs"), run.value.get("outputs"))
    yield Call(
        id=own_id,
        line=run.line,
        conversation=_first_value(metadata, THREAD_KEYS, str | int),
        parent=run.name("parent_run_id") or parent,
        trace=trace,
        agent=_first_value(metadata, AGENT_KEYS, str),
        model=_first_value(metadata, ("ls_model_name",), str) if is_model else "",
        is_model=is_model,
        started=moment(run.time("start_time")),
        ended=moment(run.time("end_time")),
        inputs=sides.inputs,
        outputs=sides.outputs,
        unread="call without a chat" if is_model else "",
    )
    for child in run.list("child_runs"):
        if isinstance(child, dict):
            child = {"trace_id": trace, **child}
        yield from _calls(run.child(child, "a run"), parent=own_id, depth=depth + 1)


def _first_value(metadata: Mapping[str, Any], names: tuple[str, ...], kind: Any) -> str:
    """Return the first value of this kind under these names, as text; empty where there is none."""
    for name in names:
        if isinstance(metadata.get(name), kind):
            return str(metadata[name])
    return ""
