"""Histories of Character.AI as browser tools save them: ``histories`` of ``msgs``, or ``turns`` with candidates.

Read: https://github.com/0x000011b/characterai-dumper, https://github.com/irsat000/CAI-Tools, ``importCAIChat`` of SillyTavern, and what a
public client of its API says of a turn's fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any

from agents.kit.files.json_input import Row, json_values
from agents.kit.files.source import FileError, Source
from agents.kit.files.times import to_utc
from agents.transcripts.records import Record, Skipped, SourceMessage


def is_character_ai(value: dict[str, Any]) -> bool:
    """Return whether it is such a file, or one history of one."""
    return _places(value) != []


def _places(value: Any) -> list[Any]:
    """Return the histories in a value: each an object with ``msgs`` or ``turns``."""
    if isinstance(value, dict):
        if any(isinstance(value.get(key), list) and _is_said(value[key]) for key in ("msgs", "turns", "messages")):
            return [value]
        for key in ("histories", "history", "chats"):
            if key in value:
                return _places(value[key])
    elif isinstance(value, list):
        return [place for one in value if isinstance(one, dict) for place in _places(one)]
    return []


def _is_said(values: list[Any]) -> bool:
    """Return whether these are messages of such a file."""
    first = next((one for one in values if isinstance(one, dict)), {})
    return "candidates" in first or "src__is_human" in first or (isinstance(first.get("src"), dict) and "text" in first)


def read_character_ai(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read every history as a conversation. Of several candidates of an answer the chosen one is read."""
    number = 0
    for line, value in json_values(source):
        for place in _places(value):
            number += 1
            history = Row(place, path=source.name, line=line, what="a history")
            channel = history.name("external_id") or history.name("chat_id")
            key = next(key for key in ("msgs", "turns", "messages") if isinstance(place.get(key), list))
            rows = [history.child(message, f"message {at}") for at, message in enumerate(history.list(key), start=1)]
            times = [to_utc(at, UTC) for row in (*rows[:1], *rows[-1:]) if (at := row.time("create_time", "created"))]
            if len(times) == 2 and times[0] > times[1]:
                rows.reverse()  # its API answers with the newest turn first
            for row in rows:
                yield from _message(row, channel, number)
    if not number:
        raise FileError(source.name, 0, "the file holds no history of Character.AI")


def _message(row: Row, channel: str, number: int) -> Iterator[Record]:
    author = row.child(row.value["src"] if row.has("src") else row.object("author"), "the author")
    human = row.flag("src__is_human") or author.flag("is_human")
    name = row.name("src__name") or row.name("display_name") or author.name("name")
    text, candidates = row, [row.child(one, "a candidate") for one in row.list("candidates")]
    if candidates:
        chosen = row.name("primary_candidate_id")
        text = next((one for one in candidates if chosen and one.name("candidate_id") == chosen), candidates[0])
        yield from (Skipped("answer not chosen", row.line) for _ in candidates[1:])
    said = text.text("raw_content") or text.text("text")
    if not said.strip():
        yield Skipped("empty message", row.line)
        return
    turn = row.child(row.object("turn_key"), "'turn_key'")
    yield SourceMessage(
        speaker=name or ("user" if human else "assistant"),
        role="user" if human else "assistant",
        text=said,
        line=row.line,
        source_id=turn.name("turn_id") or row.name("uuid"),
        sent_at=row.time("create_time", "created"),
        channel=channel or turn.name("chat_id"),
        conversation=number,
    )
