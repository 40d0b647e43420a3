"""One reader per format, and the detection of formats. A reader yields records; what it cannot read raises FileError.

A new format is a module here and an entry of `FORMATS`, which names it for the command, the API, the console's form and the docs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.kit.files.json_input import begins_like_json, json_values
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.character_ai import is_character_ai, read_character_ai
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
from agents.transcripts.readers.langsmith import is_langsmith, read_langsmith
from agents.transcripts.readers.otel import is_otel, read_otel
from agents.transcripts.readers.plumbline import check_is_no_list_in_object, is_message, read_jsonl
from agents.transcripts.readers.sillytavern import is_sillytavern, read_sillytavern
from agents.transcripts.readers.simulations import (
    is_adk,
    is_scenario,
    is_tau2,
    read_adk,
    read_scenario,
    read_tau2,
)
from agents.transcripts.readers.slack import is_slack, is_slack_zip, read_slack
from agents.transcripts.readers.tinytroupe_console import is_notebook, looks_like_console, read_console
from agents.transcripts.records import Record


@dataclass(frozen=True, slots=True)
class Format:
    """A format of transcripts.

    Attributes:
        label: What the form calls it.
        read: Takes the source and, for CSV and JSON Lines, the map of columns.
        in_json: Returns whether the first JSON object of a file is of this format.
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
    "character_ai": Format("Character.AI", read_character_ai, is_character_ai),
    "slack": Format("Slack export", read_slack, is_slack),
    "discord": Format("DiscordChatExporter", read_discord, is_discord),
    "langfuse": Format("Langfuse", read_langfuse, is_langfuse),
    "langsmith": Format("LangSmith", read_langsmith, is_langsmith),
    "tau2": Format("τ²-bench results", read_tau2, is_tau2),
    "adk": Format("ADK evaluation results", read_adk, is_adk),
    "scenario": Format("LangWatch Scenario", read_scenario, is_scenario),
    "otel": Format("OpenTelemetry GenAI spans", read_otel, is_otel),
    "csv": Format("CSV", read_csv),
    "chat": Format("chat log", read_log),
    "tinytroupe": Format("TinyTroupe", read_console, is_notebook),
}

# What is known, but not read, and what to do instead: by how a file begins, by its keys, by most of its first lines.
_OTHER_STARTS = {
    b"\x89PNG": "a PNG image; a character card is imported by manage.py import_agents",
    b"%PDF": "a PDF document; export the chat as JSON or as text",
    b"SQLi": "an SQLite database; export the chat as JSON or CSV",
    b"\x1f\x8b": "a gzip archive; unpack it and import the file in it",
    b"PAR1": "a Parquet file; export it as JSON Lines or CSV",
    b"{\\rt": "an RTF document; save it as plain text",
}
_OTHER_KEYS = {
    ("resourceLogs",): "a batch of OpenTelemetry's logs; export spans: messages are read from these",
    ("resourceMetrics",): "a batch of OpenTelemetry's metrics; export spans: messages are read from these",
    ("id", "type", "name", "messages"): "Telegram's export",
    ("participants", "messages"): "an export of Messenger or Instagram",
    ("chat_messages",): "Claude's export",
    ("visible",): "a chat of text-generation-webui",
    ("team_id",): "Slack's list of users; import the zip, or a day file",
    ("creator", "members"): "Slack's list of channels; import the zip, or a day file",
    ("dialog",): "a conversation of ParlAI",
}
_INSTEAD = "convert it to JSON Lines or CSV"
_OTHER_TEXTS = {
    "a log of WeeChat": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\t[^\t]*\t.*"),
    "a log of HexChat": re.compile(r"[^\W\d_]{3} {1,2}\d{1,2} \d\d:\d\d:\d\d (?:<[^<>]{1,64}>|\*|-\S*>?|<-+)[ \t].*"),
    "a log of ParlAI": re.compile(r"text:[^\n]*\t(?:labels|eval_labels|episode_done).*"),
}


class NotRecognised(FileError):
    """A file that is neither a transcript nor of another kind that is known: it may be a persona."""


class UnknownKeys(NotRecognised):
    """JSON with the keys of no format: it may be read once each is said to hold what."""


def detect(source: Source) -> str:
    """Return the name of the format, by the file's first bytes and lines, not by its name; only CSV may at last be known by its ending.

    Raises:
        NotRecognised: It is not recognised.
        FileError: It is empty, of a kind that is known but not read, or a first value that is no JSON though the file
            begins like JSON.
    """
    for start, what in _OTHER_STARTS.items():
        if source.start.startswith(start):
            raise FileError(source.name, 0, f"this is {what}")
    if source.is_zip:
        if is_slack_zip(source.members()):
            return "slack"
        raise FileError(source.name, 0, "a zip, but no export of Slack; unpack it and import the file in it")
    head = source.head().lstrip()
    if not head:
        raise FileError(source.name, 0, "the file is empty")
    if source.name.lower().endswith((".yaml", ".yml")):
        raise FileError(source.name, 0, "YAML is no transcript; personas are imported by manage.py import_agents")
    if begins_like_json(head):
        return _json_format(source)
    _refuse_other_texts(source, head)
    if looks_like_console(head):
        return "tinytroupe"
    if looks_like_csv(head):
        return "csv"
    if looks_like_chat(head):
        return "chat"
    if source.name.lower().endswith((".csv", ".tsv")) and len(header_of(source)) > 1:
        return "csv"  # its reader says which column is missing
    raise NotRecognised(
        source.name, 1, f"not recognised as a transcript ({head.splitlines()[0][:60]!r})", advice="name it: --format"
    )


def _refuse_other_texts(source: Source, head: str) -> None:
    """Raise `FileError` for texts that are known, but not read: HTML and XML, and logs whose form most of the first lines have."""
    if head[:5].lower() in ("<!doc", "<html", "<?xml"):
        raise FileError(source.name, 1, "this is a page of HTML or XML; export the chat as JSON or as text")
    lines = [line.rstrip("\r") for line in head.split("\n") if line.strip() and not line.startswith("**** ")]
    first_lines = lines[:60]
    for what, pattern in _OTHER_TEXTS.items():
        matching = [line for line in first_lines if pattern.fullmatch(line)]
        if 2 * len(matching) > len(first_lines):
            raise FileError(source.name, 1, f"this is {what}, which is not read; {_INSTEAD}")


def _json_format(source: Source) -> str:
    """Return the format of a JSON file, by its first object.

    Raises:
        FileError: It is of no format that is read; says what it is where that is known.
    """
    _, value = next(json_values(source), (0, None))
    if isinstance(value, list) and value:  # a line that is a list of messages is a conversation
        value = {"messages": value}
    if not isinstance(value, dict):
        value = {}
    if "plumbline" in value:
        return "jsonl"
    for name, form in reversed(FORMATS.items()):
        if form.in_json(value):
            return name
    if {"persona", "system_prompt", "spec"} & set(value):
        raise NotRecognised(source.name, 1, "this is a persona, not a transcript; use manage.py import_agents")
    for known_keys, what in _OTHER_KEYS.items():
        if set(known_keys) <= set(value):
            advice = "" if ";" in what else f", which is not read; {_INSTEAD}"
            raise FileError(source.name, 1, f"this is {what}{advice}")
    check_is_no_list_in_object(source)
    keys = ", ".join(map(str, value))[:200] or "no object"
    raise UnknownKeys(
        source.name,
        1,
        f"JSON, but no transcript format that is known (its keys: {keys})",
        advice="name it: --format. A message of your own program needs the keys 'speaker' and 'text', and may have 'sent_at' and "
        "'tags'; for other keys say which: --columns text=KEY,speaker=KEY",
    )
