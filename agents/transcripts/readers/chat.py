"""Chats of model APIs (OpenAI, Anthropic, Inspect logs), ShareGPT, and dialogues written as "Human: … Assistant: …"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from agents.kit.files.json_input import Row, json_values, shown
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.conversations import channel_of, conversation_key
from agents.transcripts.records import Guess, Record, Skipped, SourceMessage

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
ID_KEYS = ("conversation_id", "thread_id", "session_id", "chat_id", "dialog_id", "dialogue_id", "id", "custom_id")


def content(row: Row, key: str = "content") -> tuple[str, list[str]]:
    """Read a text, null, or a list of parts (OpenAI's and Anthropic's).

    Returns:
        The text, a line for each part, also of a refusal; and the kinds of parts that are no text, e.g. ``tool call``.

    Raises:
        FileError: It is something else.
    """
    value = row.value.get(key)
    if value is None:
        return row.text("refusal"), ["tool call"] if row.has("tool_calls") or row.has("function_call") else []
    if isinstance(value, str):
        return value, []
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
    return "\n".join(texts), left_out


def read_chat(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read one conversation or many: an object with `messages`, a list or JSON Lines of such, or just messages.

    System texts, also Anthropic's `system` beside the messages, are system prompts; tool calls, tool results and
    thinking are skipped; parts of a message that are no text are named in its payload as `left_out`.

    Raises:
        FileError: It is something else, or holds no conversation.
    """
    number = 0
    conversation: str | None = None  # the key of it in messages a line each; None: not looked for yet
    for line, value in json_values(source):
        if isinstance(value, list):
            number += 1
            for position, message in enumerate(value, start=1):
                yield _chat_message(Row(message, path=source.name, line=line, what=f"message {position}"), number)
            continue
        row = Row(value, path=source.name, line=line, what="a conversation")
        if row.has("samples") or row.has("messages"):
            for sample in [row.child(sample, "a sample") for sample in row.list("samples")] or [row]:
                number += 1
                yield from _conversation(sample, source, number)
        elif row.has("role"):  # messages a line each are one conversation, unless a key says of which they are
            number = number or 1
            if conversation is None:
                conversation, is_guessed = conversation_key(source, taken=["channel"])  # which may be "web" or "phone"
                if is_guessed:
                    text = f"Each value of the key {conversation!r} is read as a conversation of its own."
                    yield Guess(text, line, "Without this key the file is one conversation.")
            yield _chat_message(row, 1, channel_of(row.value.get(conversation or "channel"), source))
        else:
            row.fail("expected an object with 'messages' (a conversation) or with 'role' and 'content' (a message)")
    if not number:
        raise FileError(source.name, 0, "the file holds no conversation")


def is_openai(value: dict[str, Any]) -> bool:
    """Return whether it is a conversation (Anthropic's, too), a message, or an Inspect log."""
    samples = value.get("samples")
    if isinstance(samples, list) and samples and isinstance(samples[0], dict) and "messages" in samples[0]:
        return True
    messages = value.get("messages")
    if isinstance(messages, list):
        return not messages or (isinstance(messages[0], dict) and "role" in messages[0])
    return "role" in value and "content" in value


def _conversation(row: Row, source: Source, number: int) -> Iterator[Record]:
    """Yield the messages of a conversation object, first what stands under `system`.

    An Inspect sample that was run in several epochs is a conversation per epoch, ``FILE-ID-epoch-1`` and so on.

    Args:
        number: Of the conversation in the file, for one without an id.
    """
    channel = _id_of(row)
    if channel and row.has("epoch"):
        channel = f"{source.stem}-{channel}-epoch-{row.name('epoch')}"
    if row.has("system"):
        system, _ = content(row, "system")
        if system.strip():
            yield SourceMessage(speaker="system", kind="system", text=system, line=row.line)
    for position, message in enumerate(row.list("messages"), start=1):
        yield _chat_message(row.child(message, f"message {position}"), number, channel, row.name("model"))


def _id_of(conversation: Row) -> str:
    """Return the id of a conversation; empty where it has none."""
    for key in ID_KEYS:
        if conversation.has(key):
            return conversation.name(key)
    return ""


def _chat_message(row: Row, number: int, channel: str = "", model: str = "") -> Record:
    """Return one message with `role` and `content`, of the conversation with this number, or why it is none.

    Args:
        channel: The conversation's id; empty: it has none.
        model: Of the conversation, for answers that name none; they are tagged with it.

    Raises:
        FileError: It has no role, or is malformed.
    """
    role = row.name("role")
    if not role:
        row.fail(f"{row.what} has no 'role'")
    if role in TOOL_ROLES:
        return Skipped("tool result", row.line)
    text, left_out = content(row)
    if not text.strip():
        return Skipped(left_out[0] if left_out else "empty message", row.line)
    model = row.name("model") or model
    return SourceMessage(
        speaker=row.name("name") or role,
        role=role,
        kind="system" if role in SYSTEM_ROLES else "named",
        text=text,
        line=row.line,
        source_id=row.name("id"),
        sent_at=row.time(*TIME_KEYS),
        channel=channel,
        conversation=number,
        tags={"model": model} if model and role == "assistant" else {},
        payload={"left_out": sorted(set(left_out))} if left_out else {},
    )


ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
}


def _spoken_message(row: Row, speaker: str, text: str, channel: str, number: int) -> Record:
    """Return what a speaker of ShareGPT or of a dialogue says, skipped where that is nothing; speakers can be mapped by role, too.

    Args:
        channel: The conversation's id; empty: it has none.
        number: Of the conversation in the file, from 1.
    """
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


def is_sharegpt(value: dict[str, Any]) -> bool:
    """Return whether it is a conversation of ShareGPT, without messages beside it."""
    return isinstance(value.get("conversations") or value.get("conversation"), list) and not is_openai(value)


def read_sharegpt(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read ShareGPT; a speaker can be mapped as the file writes it (``gpt``) or by role (``assistant``).

    Turns of tools are skipped; a `system` beside the turns is a system prompt.

    Raises:
        FileError: A turn has no speaker, or the file holds no conversation.
    """
    number = 0
    for number, (line, value) in enumerate(json_values(source), start=1):
        row = Row(value, path=source.name, line=line, what="a conversation")
        if row.text("system").strip():
            yield SourceMessage(speaker="system", kind="system", text=row.text("system"), line=line)
        turns = row.list("conversations" if row.has("conversations") else "conversation", required=True)
        for position, value in enumerate(turns, start=1):
            turn = row.child(value, f"turn {position}")
            speaker = turn.name("from") or turn.name("role")
            if not speaker:
                turn.fail(f"{turn.what} has no 'from'")
            if speaker in TOOL_ROLES:
                yield Skipped("tool result", line)
            else:
                text = turn.text("value" if turn.has("value") else "content")
                yield _spoken_message(turn, speaker, text, row.name("id"), number)
    if not number:
        raise FileError(source.name, 0, "the file holds no conversation")


TEXT_KEYS = ("chosen", "transcript", "text", "dialogue", "prompt")
_TURN = re.compile(r"(?:\A|\n)[ \t]*(?P<speaker>Human|Assistant):[ \t]?")


def dialogue_key(value: Any) -> str:
    """Return the key under which the dialogue stands; empty when this is no such object."""
    if not isinstance(value, dict):
        return ""
    for key in TEXT_KEYS:
        if isinstance(value.get(key), str) and "Human:" in value[key]:
            return key
    return ""


def is_dialogue(value: dict[str, Any]) -> bool:
    """Return whether it is a dialogue in one text. Data of other formats often has its first lines beside the messages."""
    return bool(dialogue_key(value)) and not is_openai(value) and not is_sharegpt(value)


def read_dialogues(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read one conversation per object. Of ``chosen`` and ``rejected`` the chosen one is read, the other skipped.

    The dialogue is the first of `TEXT_KEYS` that holds "Human:"; a ``prompt`` goes on under ``completion``. An empty file yields nothing.

    Raises:
        FileError: An object holds no dialogue, or it does not begin with a speaker.
    """
    for number, (line, value) in enumerate(json_values(source), start=1):
        row = Row(value, path=source.name, line=line, what="a conversation")
        key = dialogue_key(value)
        if not key:
            row.fail(f"no dialogue: expected 'Human: …' under one of {', '.join(map(repr, TEXT_KEYS))}")
        text = row.text(key)
        if key == "prompt":
            text += row.text("completion")
        turns = list(_TURN.finditer(text))
        if not turns or text[: turns[0].start()].strip():
            row.fail("the dialogue must begin with 'Human:' or 'Assistant:'")
        for turn, next_turn in zip_longest(turns, turns[1:]):
            end = next_turn.start() if next_turn else len(text)
            yield _spoken_message(row, turn["speaker"], text[turn.end() : end].strip(), row.name("id"), number)
        if row.has("rejected"):
            yield Skipped("rejected alternative", line)
