"""One reader per format, and the detection of formats. A reader yields records; what it cannot read raises TranscriptError."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agents.transcripts.json_input import json_values
from agents.transcripts.readers.chat import dialogue_key, read_chat, read_dialogues, read_sharegpt
from agents.transcripts.readers.chat_log import looks_like_chat, read_log
from agents.transcripts.readers.csv_table import column_map, delimiter, read_csv
from agents.transcripts.readers.plumbline import read_jsonl
from agents.transcripts.readers.tinytroupe_console import ACTION, ANSI, STIMULUS, is_notebook, read_console
from agents.transcripts.records import Record, TranscriptError
from agents.transcripts.source import Source

Reader = Callable[[Source, Mapping[str, str]], Iterator[Record]]

READERS: dict[str, Reader] = {
    "jsonl": read_jsonl,
    "openai": read_chat,
    "anthropic": read_chat,
    "sharegpt": read_sharegpt,
    "hh": read_dialogues,
    "csv": read_csv,
    "chat": read_log,
    "tinytroupe": read_console,
}
_ANTHROPIC_PARTS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "document"})


def detect(source: Source) -> str:
    """The name of the format.

    Raises:
        TranscriptError: Not recognised, or a first value that is no JSON though the file begins like JSON.
    """
    head = source.head().lstrip()
    if not head:
        raise TranscriptError(source.name, 0, "the file is empty")
    if head[0] == "{" or (head[0] == "[" and head[1:].lstrip()[:1] in {"{", "[", "]", '"'}):
        return _json_format(source)
    plain = ANSI.sub("", head)
    if any(p.fullmatch(line) for line in plain.split("\n") for p in (ACTION, STIMULUS)):
        return "tinytroupe"
    if _is_csv(head):
        return "csv"
    if looks_like_chat(head):
        return "chat"
    raise TranscriptError(
        source.name, 1, f"not recognised as a transcript ({head.splitlines()[0][:60]!r}); name it: --format"
    )


def _is_csv(head: str) -> bool:
    first = head.splitlines()[0]
    names = [name.strip().strip('"') for name in first.split(delimiter(first))]
    columns = column_map(names, {})
    return len(names) > 1 and "text" in columns and ("speaker" in columns or "role" in columns)


def _json_format(source: Source) -> str:
    _, value = next(json_values(source), (0, None))
    if isinstance(value, list) and value:
        value = {"messages": value}
    if isinstance(value, dict):
        if name := next((name for name, matches in _CHECKS if matches(value)), ""):
            return name
        if {"persona", "system_prompt", "spec"} & set(value):
            raise TranscriptError(source.name, 1, "this is a persona, not a transcript; use: manage.py import_agents")
    keys = ", ".join(map(str, value)) if isinstance(value, dict) else type(value).__name__
    raise TranscriptError(
        source.name, 1, f"JSON, but no transcript format that is known (found: {keys[:200]}); name it: --format"
    )


def _is_anthropic(value: dict[str, Any]) -> bool:
    messages = value.get("messages")
    if not isinstance(messages, list):
        return False
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return "system" in value or any(isinstance(part, dict) and part.get("type") in _ANTHROPIC_PARTS for part in parts)


def _is_openai(value: dict[str, Any]) -> bool:
    samples = value.get("samples")
    if isinstance(samples, list) and samples and isinstance(samples[0], dict) and "messages" in samples[0]:
        return True
    return isinstance(value.get("messages"), list) or ("role" in value and "content" in value)


_CHECKS = (
    ("jsonl", lambda value: "plumbline" in value),
    ("tinytroupe", is_notebook),
    ("anthropic", _is_anthropic),
    ("openai", _is_openai),
    ("sharegpt", lambda value: isinstance(value.get("conversations") or value.get("conversation"), list)),
    ("hh", lambda value: bool(dialogue_key(value))),
    ("jsonl", lambda value: "text" in value and bool({"agent", "speaker", "user", "outsider", "role"} & set(value))),
)
