"""Exports of LangSmith: runs as JSON Lines, as a list, or as the API answers them.

Read: https://docs.langchain.com/langsmith/run-data-format and
https://docs.zenml.io/kitaru/import-your-traces/import-langsmith-traces (shapes of exports).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.kit.files.json_input import Row
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.traces import Call, both_sides, calls_of, conversations, moment
from agents.transcripts.records import Record

THREAD_KEYS = ("thread_id", "session_id", "conversation_id")  # of the metadata; beside it session_id is the project


def is_langsmith(value: dict[str, Any]) -> bool:
    """Whether it is a run, or holds some."""
    inner = value.get("runs") or value.get("data")
    if isinstance(inner, list) and inner and isinstance(inner[0], dict):
        return is_langsmith(inner[0])
    return isinstance(value.get("run_type"), str) and bool({"inputs", "outputs"} & set(value))


def read_langsmith(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read every run of a model (``run_type: llm``); runs of a thread are one conversation."""
    calls: list[Call] = []
    for line, value in calls_of(source):
        row = Row(value, path=source.name, line=line, what="a run")
        held = next((key for key in ("runs", "data") if isinstance(row.value.get(key), list)), "")
        for one in row.list(held) if held else [value]:
            calls += _calls(row.child(one, "a run"), "", 0)
    if not calls:
        raise FileError(source.name, 0, "the file holds no run")
    threads: dict[str, str] = {}
    for call in calls:
        if call.conversation:
            threads.setdefault(call.trace, call.conversation)
    for call in calls:
        call.conversation = call.conversation or threads.get(call.trace) or call.trace
    yield from conversations(calls)


def _calls(row: Row, parent: str, depth: int) -> Iterator[Call]:
    if depth > 100:
        row.fail("runs nested deeper than 100 levels")
    about = row.child(row.object("extra"), "'extra'").object("metadata")
    thread = next((str(about[key]) for key in THREAD_KEYS if isinstance(about.get(key), str | int)), "")
    model, own = row.name("run_type") == "llm", row.name("id")
    agent = next((str(about[key]) for key in ("lc_agent_name", "agent_name") if isinstance(about.get(key), str)), "")
    name = about.get("ls_model_name")
    chat = row.name("run_type") in ("llm", "chain", "")
    inputs, outputs = both_sides(row.value.get("inputs"), row.value.get("outputs")) if chat else ([], [])
    yield Call(
        id=own,
        line=row.line,
        conversation=thread,
        parent=row.name("parent_run_id") or parent,
        trace=row.name("trace_id") or own,
        agent=agent,
        model=name if model and isinstance(name, str) else "",
        is_model=model,
        started=moment(row.time("start_time")),
        ended=moment(row.time("end_time")),
        inputs=inputs,
        outputs=outputs,
        unread="call without a chat" if model else "",
    )
    for child in row.list("child_runs"):
        yield from _calls(
            row.child(
                {"trace_id": row.name("trace_id") or own, **child} if isinstance(child, dict) else child, "a run"
            ),
            own,
            depth + 1,
        )
