"""One JSON object of a file, read field by field with errors that name the field, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from agents.models.conversations import TAG_KEY
from agents.transcripts.json_input import MAX_DEPTH, depth_exceeds
from agents.transcripts.records import TranscriptError
from agents.transcripts.times import parse_time


class Row:
    """A JSON object and where it stands."""

    def __init__(self, value: Any, *, path: str, line: int, what: str = "a line") -> None:
        """Raises TranscriptError unless `value` is an object; `what` names it in errors."""
        self.path, self.line, self.what = path, line, what
        if not isinstance(value, dict):
            self.fail(f"{what} must be a JSON object, got {shown(value)}")
        self.value: dict[str, Any] = value

    def fail(self, reason: str) -> NoReturn:
        """Raise the error for this place in the file."""
        raise TranscriptError(self.path, self.line, reason)

    def child(self, value: Any, what: str) -> Row:
        """An object inside this one."""
        return Row(value, path=self.path, line=self.line, what=what)

    def has(self, key: str) -> bool:
        return self.value.get(key) is not None

    def text(self, key: str, *, required: bool = False) -> str:
        """A text; absent or null is empty unless required."""
        value = self.value.get(key)
        if value is None:
            if required:
                self.fail(f"{self.what} has no {key!r}")
            return ""
        if not isinstance(value, str):
            self.fail(f"{key!r} must be a text, got {shown(value)}")
        return value

    def name(self, key: str) -> str:
        """An id or a name: a text or a number; absent is empty."""
        value = self.value.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        return self.text(key)

    def list(self, key: str) -> list[Any]:
        value = self.value.get(key)
        if not isinstance(value, list):
            self.fail(f"{key!r} must be a list, got {shown(value)}")
        return value

    def flag(self, key: str) -> bool:
        value = self.value.get(key, False)
        if not isinstance(value, bool):
            self.fail(f"{key!r} must be true or false, got {shown(value)}")
        return value

    def time(self, *keys: str) -> datetime | None:
        """The time under the first of `keys` that is there."""
        for key in keys:
            if self.has(key):
                try:
                    return parse_time(self.value[key])
                except ValueError as error:
                    self.fail(f"{key!r}: {error}")
        return None

    def object(self, key: str) -> dict[str, Any]:
        """An object; absent or null is empty."""
        value = self.value.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fail(f"{key!r} must be an object, got {shown(value)}")
        if depth_exceeds(value):
            self.fail(f"{key!r} is nested deeper than {MAX_DEPTH} levels")
        return value

    def tags(self, key: str = "tags") -> Mapping[str, str]:
        """An object of texts whose keys are tag keys."""
        tags = self.object(key)
        for name, value in tags.items():
            if not isinstance(value, str):
                self.fail(f'{key!r}: the value of {name!r} must be a text, e.g. "41", got {shown(value)}')
            if not TAG_KEY.fullmatch(name):
                self.fail(f"{key!r}: {bad_tag_key(name)}")
        return tags


def bad_tag_key(name: str) -> str:
    """What is wrong with a tag key that does not match `TAG_KEY`."""
    return f"tag key {shown(name)}; allowed: a letter, then up to 63 letters, digits, _ . or -"


def shown(value: Any) -> str:
    """A short rendering for an error message."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
