"""The content of a chat message: a text, or a list of parts of which only text is speech."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.transcripts.records import Record, Skipped, SourceMessage
from agents.transcripts.rows import Row, shown

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
