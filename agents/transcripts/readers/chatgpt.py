"""ChatGPT's data export, ``conversations.json``: each conversation a tree of nodes (``mapping``), of which one path was last shown.

Read: https://github.com/mitkury/chatgpt-export-parser, docs/chatgpt-data-export-format.md, and
https://github.com/TomzxCode/llm-conversations-viewer, docs/formats.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agents.kit.files.json_input import Row, json_values
from agents.kit.files.source import FileError, Source
from agents.transcripts.records import ChannelInfo, Record, Skipped, SourceMessage

_SPEECH = frozenset({"", "text", "multimodal_text"})
# Marks of citations, pictures and cards: U+E200 … U+E201, before 2025 【4†source】.
_MARK = re.compile("[ \\t]{0,4}(?:\ue200[^\ue200\ue201]{0,4000}\ue201|【[\\d:]{1,12}†[^【】\\n]{0,200}】)")
_REASONS = {
    "thoughts": "thinking",
    "reasoning_recap": "thinking",
    "code": "tool call",
    "execution_output": "tool result",
}


def is_chatgpt(value: dict[str, Any]) -> bool:
    """Return whether it is a conversation with its tree."""
    mapping = value.get("mapping")
    return isinstance(mapping, dict) and all(isinstance(node, dict) and "message" in node for node in mapping.values())


def read_chatgpt(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read every conversation, of each the path to its last shown message; messages of other branches are skipped.

    Raises:
        FileError: The file holds no conversation, or is malformed.
    """
    number = 0
    for number, (line, value) in enumerate(json_values(source), start=1):
        row = Row(value, path=source.name, line=line, what="a conversation")
        channel = row.name("conversation_id") or row.name("id")
        if channel:
            yield ChannelInfo(channel=channel, name=row.text("title").strip(), line=line)
        nodes = {name: row.child(node, f"the node {name!r}") for name, node in row.object("mapping").items()}
        path = _path(nodes, row.name("current_node"))
        for name in path:
            node = nodes[name]
            if node.has("message"):
                message = node.child(node.value["message"], f"the message of {name!r}")
                yield _message(message, channel, number)
        for name in nodes.keys() - set(path):
            if nodes[name].has("message"):
                yield Skipped("another branch", line)
    if not number:
        raise FileError(source.name, 0, "the file holds no conversation")


def _path(nodes: Mapping[str, Row], last: str) -> list[str]:
    """Return the names of nodes from the root to the one last shown.

    Args:
        last: Name of the node last shown; where there is none of this name, the leaf with the newest message is taken.
    """
    if last not in nodes:
        parents = {node.name("parent") for node in nodes.values()}
        leaves = [name for name in nodes if name not in parents]
        last = max(leaves, key=lambda name: _created(nodes[name]), default="")
    path: dict[str, None] = {}
    while last in nodes and last not in path:  # a broken export may nest nodes in a circle
        path[last] = None
        last = nodes[last].name("parent")
    return list(path)[::-1]


def _created(node: Row) -> float:
    """Return when the message of a node was made, in seconds since 1970; 0 where it does not say."""
    created = node.object("message").get("create_time")
    return float(created) if isinstance(created, int | float) else 0.0


def _message(row: Row, channel: str, number: int) -> Record:
    """Return a message of the conversation with this number, or why it is none: of or to a tool, thinking, hidden, or without a text.

    A system prompt is one by its role, by what ChatGPT calls custom instructions, or by a mark; it is one also when it is hidden.
    """
    role = row.child(row.object("author"), "'author'").name("role")
    metadata = row.object("metadata")
    content = row.child(row.object("content"), "'content'")
    kind = content.text("content_type")
    is_system = (
        role == "system"
        or kind in ("user_editable_context", "model_editable_context")
        or bool(metadata.get("is_user_system_message"))
    )
    if role == "tool":
        return Skipped("tool result", row.line)
    if not is_system and kind not in _SPEECH:
        return Skipped(_REASONS.get(kind, kind), row.line)
    if not is_system and row.name("recipient") not in ("", "all"):
        return Skipped(_REASONS.get(kind, "tool call"), row.line)
    text = _text_of(content)
    left_out = _left_out(content)
    if not text:
        return Skipped(left_out[0] if left_out else "empty message", row.line)
    if not is_system and metadata.get("is_visually_hidden_from_conversation"):
        return Skipped("hidden message", row.line)
    model = metadata.get("model_slug")
    has_model = role == "assistant" and isinstance(model, str) and bool(model)
    return SourceMessage(
        speaker=role or "unknown",
        role=role,
        kind="system" if is_system else "named",
        text=text,
        line=row.line,
        source_id=row.name("id"),
        sent_at=row.time("create_time"),
        channel=channel,
        conversation=number,
        tags={"model": str(model)} if has_model else {},
        payload={"left_out": left_out} if left_out else {},
    )


def _text_of(content: Row) -> str:
    """Return the written and the spoken parts of a message, without marks of sources."""
    texts: list[str] = []
    for part in content.list("parts"):
        text = part if isinstance(part, str) else _transcription(part)
        if text:
            texts.append(text)
    return _MARK.sub("", "\n".join(texts) or content.text("text")).strip()


def _left_out(content: Row) -> list[str]:
    """Return the kinds of parts that are no text, such as images."""
    kinds: set[str] = set()
    for part in content.list("parts"):
        if isinstance(part, dict) and not _transcription(part):
            kinds.add(str(part.get("content_type") or "part"))
    return sorted(kinds)


def _transcription(part: Any) -> str:
    """Return the words of a part that was spoken; empty for every other."""
    if not isinstance(part, dict) or part.get("content_type") != "audio_transcription":
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else ""
