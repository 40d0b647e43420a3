"""Whatever a file holds: a reader yields entries that can be stored or counted, or refuses the file by name; nothing else."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kit.files.source import FileError, Source
from agents.transcripts.readers import FORMATS, detect
from agents.transcripts.records import ChannelInfo, Record, Skipped, SourceMessage
from tests.agents.transcripts.test_docs import EXAMPLES

SAMPLES: dict[str, str] = dict(reversed(EXAMPLES))


def records(name: str, content: bytes) -> list[Record] | None:
    """What the reader yields for a file; None when it refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "2026-03-01.json"
        path.write_bytes(content)
        try:
            return list(FORMATS[name].read(Source(path), {}))
        except FileError:
            return None


def check(entries: list[Record] | None) -> None:
    for entry in entries or ():
        assert isinstance(entry, SourceMessage | Skipped | ChannelInfo)
        if isinstance(entry, SourceMessage):
            assert entry.text.strip()
            assert entry.speaker
        if isinstance(entry, Skipped):
            assert entry.reason


@pytest.mark.parametrize("name", list(FORMATS))
@given(content=st.binary(max_size=200))
def test_a_reader_refuses_or_reads_any_bytes(name: str, content: bytes) -> None:
    records(name, content)
    records(name, b"PK\x03\x04" + content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        with suppress(FileError):
            assert detect(Source(path)) in FORMATS


def other(value: Any, rng: random.Random) -> Any:
    """The value with one place in it changed, taken out or doubled."""
    changed: Any = rng.choice((None, "", "x", 5, -1, [], {}, True, [None], {"a": 1}))
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        return {**value, key: other(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        return [*value[:place], other(value[place], rng), *value[place + rng.randrange(2) :]]
    return changed


JSON = [name for name in FORMATS if SAMPLES[name].lstrip()[:1] in "[{" and name != "jsonl"]


@pytest.mark.parametrize("name", JSON)
@given(seed=st.integers(0, 10**9))
def test_a_reader_reads_or_refuses_a_changed_file_of_its_own(name: str, seed: int) -> None:
    rng = random.Random(seed)
    sample = SAMPLES[name]
    try:
        documents = [json.loads(sample)]
    except ValueError:
        documents = [json.loads(line) for line in sample.splitlines()]
    place = rng.randrange(len(documents))
    documents[place] = other(documents[place], rng)
    check(records(name, "\n".join(map(json.dumps, documents)).encode()))


def chatgpt(said: list[str]) -> Any:
    nodes = {str(n): {"id": str(n), "parent": str(n - 1), "message": {"id": f"m{n}", "author": {"role": "user"},
             "content": {"content_type": "text", "parts": [text]}}} for n, text in enumerate(said)}  # fmt: skip
    return {"mapping": {"r": {"message": None}, **nodes}, "current_node": str(len(said) - 1)}


HOLDING: dict[str, Callable[[list[str]], Any]] = {
    "chatgpt": chatgpt,
    "sillytavern": lambda said: [{"chat_metadata": {}}, *({"name": "P", "is_user": True, "mes": text} for text in said)],
    "character_ai": lambda said: {"histories": [{"msgs": [{"src": {"name": "P"}, "text": text} for text in said]}]},
    "slack": lambda said: [{"type": "message", "user": "U", "text": text, "ts": f"{1767225600 + n}.1"} for n, text in enumerate(said)],
    "discord": lambda said: {"guild": {}, "channel": {"name": "q"}, "messages": [
        {"id": str(n), "type": "Default", "content": text, "author": {"name": "p"}} for n, text in enumerate(said)]},
    "langfuse": lambda said: {"id": "t", "timestamp": None, "sessionId": "s", "observations": [
        {"id": "o", "type": "GENERATION", "input": [{"role": "user", "content": text} for text in said]}]},
    "langsmith": lambda said: {"id": "r", "run_type": "llm", "inputs": {"messages": [{"role": "user", "content": text} for text in said]}},
}  # fmt: skip


@pytest.mark.parametrize("name", HOLDING)
@given(
    said=st.lists(
        st.text("ab7 \n\té日\u200e\x00.:", max_size=20),
        min_size=1,
        max_size=6,
    )
)
def test_every_message_of_a_file_is_read_or_counted_as_skipped(name: str, said: list[str]) -> None:
    value = HOLDING[name](said)
    text = "\n".join(map(json.dumps, value)) if name == "sillytavern" else json.dumps(value)
    step = Skipped("step without messages", 1)  # a trace around its calls
    entries = [
        entry for entry in records(name, text.encode()) or () if not isinstance(entry, ChannelInfo) and entry != step
    ]
    assert len(entries) == len(said)
    read = [entry.text.strip() for entry in entries if isinstance(entry, SourceMessage)]
    assert sorted(read) == sorted(text.strip() for text in said if text.strip())
