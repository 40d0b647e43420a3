"""Chat messages as model APIs have them: OpenAI chat, Anthropic messages, and Inspect logs, which hold OpenAI chat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agents.transcripts.json_input import json_values
from agents.transcripts.readers.content import Conversation, chat_message, content
from agents.transcripts.records import ReaderOptions, Record, SourceMessage, TranscriptError
from agents.transcripts.rows import Row
from agents.transcripts.source import Source

ID_KEYS = ("conversation_id", "thread_id", "session_id", "id", "custom_id")


def read(source: Source, options: ReaderOptions) -> Iterator[Record]:
    """Read one conversation or many: an object with `messages`, a list or JSON Lines of such, or just messages.

    System texts, also Anthropic's `system` beside the messages, are system prompts; tool calls, tool results and
    thinking are skipped; parts of a message that are no text are named in its payload as `left_out`.
    """
    number = 0
    for line, value in json_values(source):
        if isinstance(value, list):
            number += 1
            yield from _messages(value, source, line, Conversation(number=number))
            continue
        row = Row(value, path=source.name, line=line, what="a conversation")
        if row.has("samples"):
            for sample in row.list("samples"):
                number += 1
                yield from _conversation(row.child(sample, "a sample"), source, number)
        elif row.has("messages"):
            number += 1
            yield from _conversation(row, source, number)
        elif row.has("role"):
            number = number or 1
            yield from chat_message(row, Conversation(number=1))
        else:
            row.fail("expected an object with 'messages' (a conversation) or with 'role' and 'content' (a message)")
    if not number:
        raise TranscriptError(source.name, 0, "the file holds no conversation")


def _conversation(row: Row, source: Source, number: int) -> Iterator[Record]:
    """A conversation object. An Inspect sample that was run in several epochs is a conversation per epoch."""
    channel = next((row.name(key) for key in ID_KEYS if row.has(key)), "")
    if channel and row.has("epoch"):
        channel = f"{source.stem}-{channel}-epoch-{row.name('epoch')}"
    system = content(row, "system").text if row.has("system") else ""
    if system.strip():
        yield SourceMessage(speaker="system", kind="system", text=system, line=row.line)
    conversation = Conversation(number=number, channel=channel, model=row.name("model"))
    yield from _messages(row.list("messages"), source, row.line, conversation)


def _messages(values: list[Any], source: Source, line: int, conversation: Conversation) -> Iterator[Record]:
    for place, value in enumerate(values, start=1):
        yield from chat_message(Row(value, path=source.name, line=line, what=f"message {place}"), conversation)
