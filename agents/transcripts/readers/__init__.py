"""One reader per format. A reader yields records and raises TranscriptError for whatever it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agents.transcripts.readers import (
    chat,
    chat_log,
    csv_table,
    human_assistant,
    plumbline,
    sharegpt,
    tinytroupe_console,
)
from agents.transcripts.records import ReaderOptions, Record
from agents.transcripts.source import Source

Reader = Callable[[Source, ReaderOptions], Iterator[Record]]

READERS: dict[str, Reader] = {
    "jsonl": plumbline.read,
    "openai": chat.read,
    "anthropic": chat.read,
    "sharegpt": sharegpt.read,
    "hh": human_assistant.read,
    "csv": csv_table.read,
    "chat": chat_log.read,
    "tinytroupe": tinytroupe_console.read,
}
