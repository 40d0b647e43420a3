"""One reader per format, and the detection of formats. A reader yields records; what it cannot read raises TranscriptError.

A new format is a module here and an entry of `FORMATS`, which names it for the command, the API, the console's form and the docs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.transcripts.json_input import json_values
from agents.transcripts.readers.chat import (
    is_anthropic,
    is_dialogue,
    is_openai,
    is_sharegpt,
    read_chat,
    read_dialogues,
    read_sharegpt,
)
from agents.transcripts.readers.chat_log import looks_like_chat, read_log
from agents.transcripts.readers.csv_table import looks_like_csv, read_csv
from agents.transcripts.readers.plumbline import is_message, read_jsonl
from agents.transcripts.readers.tinytroupe_console import is_notebook, looks_like_console, read_console
from agents.transcripts.records import Record, TranscriptError
from agents.transcripts.source import Source


@dataclass(frozen=True, slots=True)
class Format:
    """A format of transcripts.

    Attributes:
        label: What the form calls it.
        read: Takes the source and, for CSV, the map of columns.
        in_json: Whether the first JSON object of a file is of this format.
        in_text: Whether the head of a file that is no JSON is.
    """

    label: str
    read: Callable[[Source, Mapping[str, str]], Iterator[Record]]
    in_json: Callable[[dict[str, Any]], object] = lambda _value: False
    in_text: Callable[[str], object] = lambda _head: False


FORMATS: dict[str, Format] = {  # the last that recognises a file reads it
    "jsonl": Format("JSON Lines", read_jsonl, is_message),
    "openai": Format("OpenAI chat", read_chat, is_openai),
    "anthropic": Format("Anthropic messages", read_chat, is_anthropic),
    "sharegpt": Format("ShareGPT", read_sharegpt, is_sharegpt),
    "hh": Format("Human:/Assistant: dialogues", read_dialogues, is_dialogue),
    "csv": Format("CSV", read_csv, in_text=looks_like_csv),
    "chat": Format("chat log", read_log, in_text=lambda head: looks_like_chat(head) and not looks_like_csv(head)),
    "tinytroupe": Format("TinyTroupe", read_console, is_notebook, looks_like_console),
}


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
    if name := next((name for name, form in reversed(FORMATS.items()) if form.in_text(head)), ""):
        return name
    raise TranscriptError(
        source.name, 1, f"not recognised as a transcript ({head.splitlines()[0][:60]!r}); name it: --format"
    )


def _json_format(source: Source) -> str:
    _, value = next(json_values(source), (0, None))
    if isinstance(value, list) and value:
        value = {"messages": value}
    if isinstance(value, dict):
        if "plumbline" in value:
            return "jsonl"
        if name := next((name for name, form in reversed(FORMATS.items()) if form.in_json(value)), ""):
            return name
        if {"persona", "system_prompt", "spec"} & set(value):
            raise TranscriptError(source.name, 1, "this is a persona, not a transcript; use: manage.py import_agents")
    keys = ", ".join(map(str, value)) if isinstance(value, dict) else type(value).__name__
    raise TranscriptError(
        source.name, 1, f"JSON, but no transcript format that is known (found: {keys[:200]}); name it: --format"
    )
