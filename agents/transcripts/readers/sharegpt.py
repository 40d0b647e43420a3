"""ShareGPT: a list (or JSON Lines) of ``{"id", "conversations": [{"from": "human", "value": "…"}, …]}``."""

from __future__ import annotations

from collections.abc import Iterator

from agents.transcripts.json_input import json_values
from agents.transcripts.readers.content import SYSTEM_ROLES, TOOL_ROLES
from agents.transcripts.records import ReaderOptions, Record, Skipped, SourceMessage, TranscriptError
from agents.transcripts.rows import Row
from agents.transcripts.source import Source

ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
}


def read(source: Source, options: ReaderOptions) -> Iterator[Record]:
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
