"""Histories of Character.AI as browser tools save them: ``histories`` of ``msgs``, or ``turns`` with candidates.

Read: https://github.com/0x000011b/characterai-dumper, https://github.com/irsat000/CAI-Tools, ``importCAIChat`` of SillyTavern, and what a
public client of its API says of a turn's fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agents.kit.files.json_input import Row, json_values
from agents.kit.files.source import FileError, Source
from agents.kit.files.times import to_utc
from agents.transcripts.records import Record, Skipped, SourceMessage

MESSAGE_LISTS = ("msgs", "turns", "messages")  # keys of a history


def is_character_ai(value: dict[str, Any]) -> bool:
    """Return whether it is such a file, or one history of one."""
    return _histories_in(value) != []


def _histories_in(value: Any) -> list[Any]:
    """Return the histories in a value: each an object with ``msgs``, ``turns`` or ``messages``; none where there are none.

    A value is a history, a list of values, or an object that has some under ``histories``, ``history`` or ``chats``, the first of these.
    """
    if isinstance(value, list):
        histories: list[Any] = []
        for inner in value:
            if isinstance(inner, dict):
                histories += _histories_in(inner)
        return histories
    if not isinstance(value, dict):
        return []
    if any(isinstance(value.get(key), list) and _are_messages(value[key]) for key in MESSAGE_LISTS):
        return [value]
    for key in ("histories", "history", "chats"):
        if key in value:
            return _histories_in(value[key])
    return []


def _are_messages(values: list[Any]) -> bool:
    """Return whether these are messages of such a file, by the first."""
    objects = [value for value in values if isinstance(value, dict)]
    if not objects:
        return False
    first = objects[0]
    return "candidates" in first or "src__is_human" in first or (isinstance(first.get("src"), dict) and "text" in first)


def read_character_ai(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read every history as a conversation. Of several candidates of an answer the chosen one is read."""
    number = 0
    for line, value in json_values(source):
        for history in _histories_in(value):
            number += 1
            row = Row(history, path=source.name, line=line, what="a history")
            channel = row.name("external_id") or row.name("chat_id")
            for message in _messages_of(row):
                yield from _message(message, channel, number)
    if not number:
        raise FileError(source.name, 0, "the file holds no history of Character.AI")


def _messages_of(history: Row) -> list[Row]:
    """Return the messages of a history, oldest first: turned round where the first is later than the last."""
    key = next(key for key in MESSAGE_LISTS if isinstance(history.value.get(key), list))
    rows = [history.child(message, f"message {number}") for number, message in enumerate(history.list(key), start=1)]
    times: list[datetime] = []
    for row in (*rows[:1], *rows[-1:]):  # the first and the last
        time = row.time("create_time", "created")
        if time is not None:
            times.append(to_utc(time, UTC))
    if len(times) == 2 and times[0] > times[1]:
        rows.reverse()  # its API answers with the newest turn first
    return rows


def _message(row: Row, channel: str, number: int) -> Iterator[Record]:
    """Yield a message, and before it an entry for each answer to choose from that was not chosen; without a text an entry for it, too."""
    author = row.child(row.value["src"] if row.has("src") else row.object("author"), "the author")
    is_human = row.flag("src__is_human") or author.flag("is_human")
    role = "user" if is_human else "assistant"
    candidates = [row.child(candidate, "a candidate") for candidate in row.list("candidates")]
    for _ in candidates[1:]:
        yield Skipped("answer not chosen", row.line)
    answer = _chosen(candidates, row.name("primary_candidate_id")) or row
    text = answer.text("raw_content") or answer.text("text")
    if not text.strip():
        yield Skipped("empty message", row.line)
        return
    turn = row.child(row.object("turn_key"), "'turn_key'")
    yield SourceMessage(
        speaker=row.name("src__name") or row.name("display_name") or author.name("name") or role,
        role=role,
        text=text,
        line=row.line,
        source_id=turn.name("turn_id") or row.name("uuid"),
        sent_at=row.time("create_time", "created"),
        channel=channel or turn.name("chat_id"),
        conversation=number,
    )


def _chosen(candidates: Sequence[Row], chosen_id: str) -> Row | None:
    """Return the candidate with this id, else the first; None where there are none."""
    for candidate in candidates:
        if chosen_id and candidate.name("candidate_id") == chosen_id:
            return candidate
    return candidates[0] if candidates else None
