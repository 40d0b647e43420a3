"""Chats of SillyTavern: JSON Lines, a header and then a message a line.

Read: https://github.com/SillyTavern/SillyTavern, src/endpoints/chats.js (what it saves and imports).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from agents.kit.files.json_input import Row, json_values
from agents.kit.files.source import FileError, Source
from agents.kit.files.times import parse_time
from agents.transcripts.records import Record, Skipped, SourceMessage

_STAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2}) ?@ ?(\d{1,2})h ?(\d{1,2})m ?(\d{1,2})s(?: ?(\d{1,3})ms)?")
_SPOKEN = ("swipes", "gen_started", "original_avatar")  # what only messages of a character have
NOTES = "SillyTavern System"


def is_sillytavern(value: dict[str, Any]) -> bool:
    """Return whether it is the header of a chat, or one of its messages."""
    return "chat_metadata" in value or {"user_name", "character_name"} <= set(value) or {"mes", "is_user"} <= set(value)


def read_sillytavern(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read a chat or a group chat. Of the answers to choose from (swipes) the chosen one is read, the others are skipped.

    What was hidden from the prompt was said all the same: it is a message with ``{"hidden": true}``. A note of SillyTavern is none.
    """
    names: set[str] = set()
    empty = True
    for line, value in json_values(source):
        row = Row(value, path=source.name, line=line, what="a message")
        if "mes" not in row.value and is_sillytavern(row.value):
            names = {row.text("user_name"), row.text("character_name")}
            empty = False
            continue
        if not row.has("mes"):
            row.fail("a message has no 'mes'")
        empty = False
        for _ in range(len(row.list("swipes")) - 1):
            yield Skipped("answer not chosen", line)
        yield _message(row, names)
    if empty:
        raise FileError(source.name, 0, "the file holds no chat")


def _message(row: Row, names: set[str]) -> Record:
    """Return a message, or why it is none. A time that cannot be read is kept in the payload (``{"time": …}``).

    What is hidden from the prompt (`is_system`) is a note of SillyTavern unless something shows that the user or a character said it.

    Args:
        names: Of the user and the character, as the header has them.
    """
    extra = row.object("extra")
    is_user = row.flag("is_user")
    is_hidden = row.flag("is_system")
    speaker = row.name("name").strip() or ("user" if is_user else "assistant")
    is_spoken = is_user or speaker in names or any(row.has(key) for key in _SPOKEN)
    if is_hidden and (extra.get("type") or speaker == NOTES or not is_spoken):
        return Skipped("note of SillyTavern", row.line)
    text = _text_of(row)
    if not text.strip():
        return Skipped("empty message", row.line)
    sent_at = _time(row.value.get("send_date"))
    payload: dict[str, Any] = {}
    if is_hidden:
        payload["hidden"] = True
    if sent_at is None and row.has("send_date"):
        payload["time"] = str(row.value["send_date"])[:100]
    model = extra.get("model")
    has_model = isinstance(model, str) and bool(model) and not is_user
    return SourceMessage(
        speaker=speaker,
        role="user" if is_user else "assistant",
        text=text,
        line=row.line,
        sent_at=sent_at,
        tags={"model": str(model)} if has_model else {},
        payload=payload,
    )


def _text_of(row: Row) -> str:
    """Return the text of a message; some versions keep it in an object."""
    if isinstance(row.value["mes"], dict):
        return row.child(row.value["mes"], "'mes'").text("message")
    return row.text("mes")


def _time(value: Any) -> datetime | None:
    """Return a time as SillyTavern's versions wrote it, e.g. ``2026-1-31 @14h 30m 5s 120ms``; None for one that cannot be read."""
    match = _STAMP.fullmatch(value.strip()) if isinstance(value, str) else None
    if match:
        year, month, day, hour, minute, second, milliseconds = (int(part or 0) for part in match.groups())
        value = f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}"
    try:
        return parse_time(value)
    except ValueError:
        return None
