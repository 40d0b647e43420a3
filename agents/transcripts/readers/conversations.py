"""Find the column of a table, or the key of JSON objects, that tells conversations apart."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import islice
from unicodedata import normalize

from agents.kit.files.json_input import json_values, scalar_text
from agents.kit.files.source import Source

USUAL_NAMES = (
    *("channel", "conversation_id", "conversation", "dialogue_id", "dialog_id", "chat_id", "thread_id"),
    *("session_id", "room", "ticket_id", "kanal", "gespräch", "gesprächs_id", "unterhaltung", "raum"),
)
# Names of columns that hold a conversation where their values say so: there are several, and they come again.
POSSIBLE_NAME = re.compile(
    r"(.+_)?(ticket|case|session|call|thread|chat|dialog|dialogue|conversation|convo|vorgang|fall|sitzung|anruf|gespräch|verlauf)"
    r"s?_?(id|no|nr|num|number|nummer|key|ref)?\.?"
)
YES_OR_NO = {"", "0", "1", "yes", "no", "y", "n", "true", "false", "ja", "nein"}
ROWS_LOOKED_AT = 2_000  # rows, for the values of such a column


def comparable(name: str) -> str:
    """Return a column's name for comparing: case, blanks and hyphens aside."""
    return normalize("NFC", name).strip().lower().replace(" ", "_").replace("-", "_")


def tell_conversations_apart(values: Sequence[str]) -> bool:
    """Return whether the values of a column differ, at least one comes again, and they are not just yes and no."""
    different = set(values)
    is_yes_or_no = {value.casefold() for value in different} <= YES_OR_NO
    return 1 < len(different) < len(values) and not is_yes_or_no


def channel_of(value: object, source: Source) -> str:
    """Return the name of the channel for a value of such a column: a number alone names nothing, so the file's name is put before it."""
    name = scalar_text(value).strip()
    return f"{source.stem}-{name}" if name.isdecimal() else name


def conversation_key(source: Source, *, taken: Collection[str] = ()) -> tuple[str, bool]:
    """Return the key that holds the conversation in the first JSON objects of a file, and whether only its values say so.

    The key is empty where there is none.

    Args:
        taken: Keys that hold something else.
    """
    values_of: dict[str, list[str]] = {}
    for _, value in islice(json_values(source), ROWS_LOOKED_AT):
        if not isinstance(value, dict):
            continue
        if "channel" in value and "channel" not in taken:
            return "channel", False
        for key, text in value.items():
            if key not in taken and scalar_text(text).strip():
                values_of.setdefault(key, []).append(scalar_text(text).strip())
    key_of = {comparable(key): key for key in reversed(values_of)}
    for name in USUAL_NAMES:
        if name in key_of:
            return key_of[name], False
    for key, values in values_of.items():
        if POSSIBLE_NAME.fullmatch(comparable(key)) and tell_conversations_apart(values):
            return key, True
    return "", False
