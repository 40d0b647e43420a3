"""Chats of model APIs (OpenAI, Anthropic, Inspect logs), ShareGPT, and dialogues written as "Human: … Assistant: …"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any

from agents.transcripts.json_input import Row, json_values, shown
from agents.transcripts.records import ReaderOptions, Record, Skipped, SourceMessage, TranscriptError
from agents.transcripts.source import Source

SYSTEM_ROLES = frozenset({"system", "developer"})
TOOL_ROLES = frozenset({"tool", "function", "ipython", "observation", "tool_response", "function_call", "tool_call"})
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_PART_NAMES = {
    "tool_use": "tool call",
    "server_tool_use": "tool call",
    "tool_result": "tool result",
    "web_search_tool_result": "tool result",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "reasoning": "thinking",
}
TIME_KEYS = ("sent_at", "timestamp", "created_at", "create_time", "created", "time", "date")


@dataclass(frozen=True, slots=True)
class Content:
    """Text of a message and the kinds of parts that are no text."""

    text: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Where a chat message belongs."""

    number: int
    channel: str = ""
    model: str = ""
    sent_at: datetime | None = None


def content(row: Row, key: str = "content") -> Content:
    """Read a text, null, or a list of parts (OpenAI's and Anthropic's)."""
    value = row.value.get(key)
    if value is None:
        return Content(row.text("refusal"), ("tool call",) if row.has("tool_calls") or row.has("function_call") else ())
    if isinstance(value, str):
        return Content(value)
    if not isinstance(value, list):
        row.fail(f"{key!r} must be a text or a list of parts, got {shown(value)}")
    texts: list[str] = []
    left_out: list[str] = []
    for part in value:
        if isinstance(part, str):
            texts.append(part)
            continue
        piece = row.child(part, f"a part of {key!r}")
        kind = piece.name("type")
        if kind in TEXT_PARTS or (not kind and piece.has("text")):
            texts.append(piece.text("text"))
        elif kind == "refusal":
            texts.append(piece.text("refusal"))
        else:
            left_out.append(_PART_NAMES.get(kind, kind or "part without a type"))
    return Content("\n".join(texts), tuple(left_out))


def chat_message(row: Row, conversation: Conversation) -> Iterator[Record]:
    """One message with `role` and `content`."""
    role = row.name("role")
    if not role:
        row.fail(f"{row.what} has no 'role'")
    if role in TOOL_ROLES:
        yield Skipped("tool result", row.line)
        return
    found = content(row)
    if not found.text.strip():
        yield Skipped(found.left_out[0] if found.left_out else "empty message", row.line)
        return
    model = row.name("model") or conversation.model
    payload: dict[str, Any] = {"left_out": sorted(set(found.left_out))} if found.left_out else {}
    yield SourceMessage(
        speaker=row.name("name") or role,
        role=role,
        kind="system" if role in SYSTEM_ROLES else "named",
        text=found.text,
        line=row.line,
        source_id=row.name("id"),
        sent_at=row.time(*TIME_KEYS),
        channel=conversation.channel,
        conversation=conversation.number,
        tags={"model": model} if model and role == "assistant" else {},
        payload=payload,
    )


ID_KEYS = ("conversation_id", "thread_id", "session_id", "id", "custom_id")


def read_chat(source: Source, options: ReaderOptions) -> Iterator[Record]:
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


ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
}


def read_sharegpt(source: Source, options: ReaderOptions) -> Iterator[Record]:
    """Read ShareGPT; a speaker can be mapped as the file writes it (``gpt``) or by role (``assistant``)."""
    number = 0
    for line, value in json_values(source):
        number += 1
        row = Row(value, path=source.name, line=line, what="a conversation")
        key = "conversations" if row.has("conversations") else "conversation"
        if row.text("system").strip():
            yield SourceMessage(speaker="system", kind="system", text=row.text("system"), line=line)
        for place, turn in enumerate(row.list(key), start=1):
            child = row.child(turn, f"turn {place}")
            yield _turn(child, channel=row.name("id"), number=number)
    if not number:
        raise TranscriptError(source.name, 0, "the file holds no conversation")


def _turn(row: Row, *, channel: str, number: int) -> Record:
    speaker = row.name("from") or row.name("role")
    if not speaker:
        row.fail(f"{row.what} has no 'from'")
    if speaker in TOOL_ROLES:
        return Skipped("tool result", row.line)
    text = row.text("value" if row.has("value") else "content")
    if not text.strip():
        return Skipped("empty message", row.line)
    return SourceMessage(
        speaker=speaker,
        role=ROLES.get(speaker.casefold(), ""),
        kind="system" if speaker in SYSTEM_ROLES else "named",
        text=text,
        line=row.line,
        channel=channel,
        conversation=number,
    )


TEXT_KEYS = ("chosen", "transcript", "text", "dialogue", "prompt")
_TURN = re.compile(r"(?:\A|\n)[ \t]*(Human|Assistant):[ \t]?")
DIALOGUE_ROLES = {"Human": "user", "Assistant": "assistant"}


def dialogue_key(value: object) -> str:
    """The key under which the dialogue stands; empty when this is no such object."""
    if isinstance(value, dict):
        for key in TEXT_KEYS:
            if isinstance(value.get(key), str) and "Human:" in value[key]:
                return key
    return ""


def read_dialogues(source: Source, options: ReaderOptions) -> Iterator[Record]:
    """Read one conversation per object. Of ``chosen`` and ``rejected`` the chosen one is read, the other skipped."""
    for number, (line, value) in enumerate(json_values(source), start=1):
        row = Row(value, path=source.name, line=line, what="a conversation")
        key = dialogue_key(value)
        if not key:
            row.fail(f"no dialogue: expected 'Human: …' under one of {', '.join(map(repr, TEXT_KEYS))}")
        text = row.text(key) + (row.text("completion") if key == "prompt" else "")
        channel = row.name("id")
        yield from _turns(row, text, channel, number)
        if row.has("rejected"):
            yield Skipped("rejected alternative", line)


def _turns(row: Row, text: str, channel: str, number: int) -> Iterator[Record]:
    starts = list(_TURN.finditer(text))
    if not starts or text[: starts[0].start()].strip():
        row.fail("the dialogue must begin with 'Human:' or 'Assistant:'")
    for start, following in zip_longest(starts, starts[1:]):
        said = text[start.end() : following.start() if following else len(text)].strip()
        if said:
            speaker = start.group(1)
            yield SourceMessage(
                speaker=speaker,
                role=DIALOGUE_ROLES[speaker],
                text=said,
                line=row.line,
                channel=channel,
                conversation=number,
            )
        else:
            yield Skipped("empty message", row.line)
