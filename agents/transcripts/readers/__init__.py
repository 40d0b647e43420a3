"""One reader per format, and the detection of formats. A reader yields records; what it cannot read raises TranscriptError.

A new format is a module here and an entry of `FORMATS`, which names it for the command, the API, the console's form and the docs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.transcripts.json_input import json_values
from agents.transcripts.readers.chat import (
    is_dialogue,
    is_openai,
    is_sharegpt,
    read_chat,
    read_dialogues,
    read_sharegpt,
)
from agents.transcripts.readers.chat_log import looks_like_chat, read_log
from agents.transcripts.readers.chatgpt import is_chatgpt, read_chatgpt
from agents.transcripts.readers.csv_table import header_of, looks_like_csv, read_csv
from agents.transcripts.readers.discord import is_discord, read_discord
from agents.transcripts.readers.langfuse import is_langfuse, read_langfuse
from agents.transcripts.readers.otel import is_otel, read_otel
from agents.transcripts.readers.plumbline import is_message, read_jsonl
from agents.transcripts.readers.sillytavern import is_sillytavern, read_sillytavern
from agents.transcripts.records import Record, TranscriptError
from agents.transcripts.source import Source


@dataclass(frozen=True, slots=True)
class Format:
    """A format of transcripts.

    Attributes:
        label: What the form calls it.
        read: Takes the source and, for CSV, the map of columns.
        in_json: Whether the first JSON object of a file is of this format.
    """

    label: str
    read: Callable[[Source, Mapping[str, str]], Iterator[Record]]
    in_json: Callable[[dict[str, Any]], object] = lambda _value: False


FORMATS: dict[str, Format] = {  # the last that recognises a file reads it
    "jsonl": Format("JSON Lines", read_jsonl, is_message),
    "openai": Format("Chat messages (OpenAI, Anthropic, Inspect)", read_chat, is_openai),
    "sharegpt": Format("ShareGPT", read_sharegpt, is_sharegpt),
    "hh": Format("Human:/Assistant: dialogues", read_dialogues, is_dialogue),
    "chatgpt": Format("ChatGPT export", read_chatgpt, is_chatgpt),
    "sillytavern": Format("SillyTavern", read_sillytavern, is_sillytavern),
    "discord": Format("DiscordChatExporter", read_discord, is_discord),
    "langfuse": Format("Langfuse", read_langfuse, is_langfuse),
    "otel": Format("OpenTelemetry GenAI spans", read_otel, is_otel),
    "csv": Format("CSV", read_csv),
    "chat": Format("chat log", read_log),
}

# What is known, but not read, and what to do instead, by how a file begins.
_OTHER_STARTS = {
    b"\x89PNG": "a PNG image; a character card is imported by manage.py import_agents",
    b"%PDF": "a PDF document; export the chat as JSON or as text",
    b"SQLi": "an SQLite database; export the chat as JSON or CSV",
    b"PK\x03\x04": "a zip; unpack it and import the file in it",
    b"\x1f\x8b": "a gzip archive; unpack it and import the file in it",
    b"PAR1": "a Parquet file; export it as JSON Lines or CSV",
}


def detect(source: Source) -> str:
    """The name of the format.

    Raises:
        TranscriptError: Not recognised, or a first value that is no JSON though the file begins like JSON.
    """
    for start, what in _OTHER_STARTS.items():
        if source.start.startswith(start):
            raise TranscriptError(source.name, 0, f"this is {what}")
    head = source.head().lstrip()
    if not head:
        raise TranscriptError(source.name, 0, "the file is empty")
    if head[0] == "{" or (head[0] == "[" and head[1:].lstrip()[:1] in {"{", "[", "]", '"'}):
        return _json_format(source)
    if looks_like_csv(head):
        return "csv"
    if looks_like_chat(head):
        return "chat"
    if source.name.lower().endswith((".csv", ".tsv")) and len(header_of(source)) > 1:
        return "csv"  # its reader says which column is missing
    raise TranscriptError(
        source.name, 1, f"not recognised as a transcript ({head.splitlines()[0][:60]!r}); name it: --format"
    )


def _json_format(source: Source) -> str:
    _, value = next(json_values(source), (0, None))
    if isinstance(value, list) and value:
        value = {"messages": value}
    if not isinstance(value, dict):
        value = {}
    if "plumbline" in value:
        return "jsonl"
    if name := next((name for name, form in reversed(FORMATS.items()) if form.in_json(value)), ""):
        return name
    if {"persona", "system_prompt", "spec"} & set(value):
        raise TranscriptError(source.name, 1, "this is a persona, not a transcript; use manage.py import_agents")
    keys = ", ".join(map(str, value))[:200] or "no object"
    raise TranscriptError(
        source.name, 1, f"JSON, but no transcript format that is known (its keys: {keys}); name it: --format"
    )
