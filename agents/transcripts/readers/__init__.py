"""One reader per format, and the detection of formats. A reader yields records; what it cannot read raises TranscriptError.

A new format is a module here and an entry of `FORMATS`, which names it for the command, the API, the console's form and the docs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.transcripts.json_input import json_values
from agents.transcripts.readers.character_ai import is_character_ai, read_character_ai
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
from agents.transcripts.readers.chatgpt import is_chatgpt, read_chatgpt
from agents.transcripts.readers.csv_table import header_of, looks_like_csv, read_csv
from agents.transcripts.readers.discord import is_discord, read_discord
from agents.transcripts.readers.irc_client import is_hexchat, is_weechat, read_hexchat, read_weechat
from agents.transcripts.readers.langfuse import is_langfuse, read_langfuse
from agents.transcripts.readers.langsmith import is_langsmith, read_langsmith
from agents.transcripts.readers.otel import is_otel, read_otel
from agents.transcripts.readers.parlai import is_parlai, read_parlai
from agents.transcripts.readers.plumbline import is_message, read_jsonl
from agents.transcripts.readers.sillytavern import is_sillytavern, read_sillytavern
from agents.transcripts.readers.slack import is_slack, is_slack_zip, read_slack
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
        in_zip: Whether a zip with these files is.
    """

    label: str
    read: Callable[[Source, Mapping[str, str]], Iterator[Record]]
    in_json: Callable[[dict[str, Any]], object] = lambda _value: False
    in_text: Callable[[str], object] = lambda _head: False
    in_zip: Callable[[list[str]], object] = lambda _names: False


FORMATS: dict[str, Format] = {  # the last that recognises a file reads it
    "jsonl": Format("JSON Lines", read_jsonl, is_message),
    "openai": Format("OpenAI chat", read_chat, is_openai),
    "anthropic": Format("Anthropic messages", read_chat, is_anthropic),
    "sharegpt": Format("ShareGPT", read_sharegpt, is_sharegpt),
    "hh": Format("Human:/Assistant: dialogues", read_dialogues, is_dialogue),
    "parlai": Format("ParlAI", read_parlai, is_parlai),
    "chatgpt": Format("ChatGPT export", read_chatgpt, is_chatgpt),
    "sillytavern": Format("SillyTavern", read_sillytavern, is_sillytavern),
    "character_ai": Format("Character.AI", read_character_ai, is_character_ai),
    "slack": Format("Slack export", read_slack, is_slack, in_zip=is_slack_zip),
    "discord": Format("DiscordChatExporter", read_discord, is_discord),
    "langfuse": Format("Langfuse", read_langfuse, is_langfuse),
    "langsmith": Format("LangSmith", read_langsmith, is_langsmith),
    "otel": Format("OpenTelemetry GenAI spans", read_otel, is_otel),
    "csv": Format("CSV", read_csv, in_text=looks_like_csv),
    "chat": Format("chat log", read_log, in_text=lambda head: looks_like_chat(head) and not looks_like_csv(head)),
    "weechat": Format("WeeChat", read_weechat, in_text=is_weechat),
    "hexchat": Format("HexChat", read_hexchat, in_text=is_hexchat),
    "tinytroupe": Format("TinyTroupe", read_console, is_notebook, looks_like_console),
}

# What is known, but not read: how to tell it, and what to do instead.
_OTHER_JSON: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a batch of OpenTelemetry's logs or metrics": (
        lambda v: {"resourceLogs", "resourceMetrics"} & set(v),
        "export spans: messages are read from these",
    ),
    "Telegram's export": (lambda v: "messages" in v and {"type", "name"} & set(v) and "id" in v, ""),
    "an export of Messenger or Instagram": (lambda v: {"participants", "messages"} <= set(v), ""),
    "Claude's export": (lambda v: "chat_messages" in v, ""),
    "a chat of text-generation-webui": (
        lambda v: "visible" in v or "data_visible" in v,
        "import it into SillyTavern and take its chat",
    ),
    "Slack's list of users or channels": (
        lambda v: "team_id" in v or {"creator", "members"} <= set(v),
        "import the zip, or a day file",
    ),
}
_OTHER_TEXT: dict[str, tuple[str, str]] = {
    r"(?is)\s*<(?:!doctype html|html)": ("an HTML page", "export the chat as JSON or as text"),
    r"(?is)\s*<\?xml|\s*<smses": ("XML", "export the chat as JSON, CSV or text"),
    r"(?s)\{\\rtf": ("an RTF document", "save it as plain text"),
    r"text:[^\n]*\t(?:labels|episode_done|eval_labels)": (
        "ParlAI's text format",
        "log with --save-format conversations",
    ),
}
_OTHER_BYTES = {
    b"\x89PNG": ("a PNG image", "a character card is imported by manage.py import_agents"),
    b"%PDF": ("a PDF document", "export the chat as JSON or as text"),
    b"SQLi": ("an SQLite database", "export the chat as JSON or CSV"),
    b"\x1f\x8b": ("a gzip archive", "unpack it and import the file in it"),
    b"PAR1": ("a Parquet file", "export it as JSON Lines or CSV"),
}
_IN_ZIPS = {"conversations.json": "ChatGPT", "_chat.txt": "WhatsApp", "result.json": "Telegram"}


def detect(source: Source) -> str:
    """The name of the format.

    Raises:
        TranscriptError: Not recognised, or a first value that is no JSON though the file begins like JSON.
    """
    if source.is_zip:
        return _zip_format(source)
    for start, (what, advice) in _OTHER_BYTES.items():
        if source.start.startswith(start):
            raise TranscriptError(source.name, 0, f"this is {what}, which is not read; {advice}")
    head = source.head().lstrip()
    if not head:
        raise TranscriptError(source.name, 0, "the file is empty")
    if head[0] == "{" or (head[0] == "[" and head[1:].lstrip()[:1] in {"{", "[", "]", '"'}):
        return _json_format(source)
    for pattern, (what, advice) in _OTHER_TEXT.items():
        if re.match(pattern, head):
            raise TranscriptError(source.name, 1, f"this is {what}, which is not read; {advice}")
    if name := next((name for name, form in reversed(FORMATS.items()) if form.in_text(head)), ""):
        return name
    if source.name.lower().endswith((".csv", ".tsv")) and len(header_of(source)) > 1:
        return "csv"  # its reader says which column is missing
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
        for what, (is_it, advice) in _OTHER_JSON.items():
            if is_it(value):
                raise TranscriptError(
                    source.name, 1, f"this is {what}, which is not read; {advice or 'convert it to JSON Lines or CSV'}"
                )
    keys = (
        ", ".join(map(str, value))
        if isinstance(value, dict)
        else "an empty list"
        if value is None
        else type(value).__name__
    )
    raise TranscriptError(
        source.name, 1, f"JSON, but no transcript format that is known (found: {keys[:200]}); name it: --format"
    )


def _zip_format(source: Source) -> str:
    names = source.members()
    if name := next((name for name, form in FORMATS.items() if form.in_zip(names)), ""):
        return name
    for name in names:
        base = name.rpartition("/")[2]
        if base in _IN_ZIPS or base.startswith("WhatsApp Chat"):
            whose = _IN_ZIPS.get(base, "WhatsApp")
            raise TranscriptError(source.name, 0, f"an export of {whose} in a zip; unpack it and import {name[:100]!r}")
    raise TranscriptError(
        source.name, 0, f"a zip, but no export of Slack; unpack it and import the file you mean, e.g. {names[:1]}"
    )
