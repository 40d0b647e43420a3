"""What readers produce: messages, what they left out, channels, times. `Cleaner` makes strangers' text storable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils import timezone

_MILLISECONDS_FROM = 1e11  # as seconds this would be the year 5138
_UNIX = re.compile(r"[0-9]{9,14}(\.[0-9]{1,9})?")
_FORMATS = (
    "%d/%b/%Y:%H:%M:%S %z",
    "%a %b %d %H:%M:%S %Y",
    "%a, %d %b %Y %H:%M:%S %z",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%Y-%m-%d %H:%M:%S UTC",
    "%d %b %Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y, %H:%M:%S",
    "%d.%m.%Y, %H:%M",
    "%d.%m.%Y",
    "%b %d, %Y %H:%M:%S",
    "%b %d, %Y %I:%M:%S %p",
    "%B %d, %Y %I:%M%p",
)


def zone(name: str) -> tzinfo:
    """The time zone of that name; empty = the TIME_ZONE setting.

    Raises:
        ValueError: No such zone.
    """
    if not name:
        return timezone.get_default_timezone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"unknown time zone {name!r}; write e.g. UTC, Europe/Berlin or America/New_York") from None


def parse_time(value: Any) -> datetime | None:
    """A time written as ISO 8601, as a Unix time in seconds or milliseconds, or in a common log form; empty is None.

    Naive when the source gives no offset.

    Raises:
        ValueError: Anything else.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is no time; write ISO 8601, e.g. 2026-03-01T12:00:00Z")
    if isinstance(value, int | float):
        return _from_unix(float(value))
    text = value.strip()
    if _UNIX.fullmatch(text):
        return _from_unix(float(text))
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    for form in _FORMATS:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    raise ValueError(f"{value[:60]!r} is no time; write ISO 8601, e.g. 2026-03-01T12:00:00Z")


def _from_unix(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds / 1000 if abs(seconds) >= _MILLISECONDS_FROM else seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{seconds!r} is no Unix time") from None


def to_utc(moment: datetime, zone: tzinfo) -> datetime:
    """The same moment in UTC; a naive one is read in `zone`.

    Raises:
        ValueError: Out of the range that can be stored.
    """
    try:
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
        return aware.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"the time {moment} is out of range") from None


TEXT_LIMIT = 1_000_000
"""Longest message text that is stored, in characters. What is beyond is cut, with a marker that says so."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL keeps no NUL, UTF-8 no lone surrogate
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Cleaner:
    """Cleans texts and counts what it changed."""

    def __init__(self) -> None:
        self.replaced = 0
        self.cut = 0

    def text(self, text: str) -> str:
        """The text with NUL characters and lone surrogates replaced by U+FFFD."""
        if _UNSTORABLE.search(text) is None:
            return text
        clean, count = _UNSTORABLE.subn(_REPLACEMENT, text)
        self.replaced += count
        return clean

    def shorten(self, text: str) -> str:
        """The text, cut at `TEXT_LIMIT` with a marker that says how much is missing."""
        if len(text) <= TEXT_LIMIT:
            return text
        self.cut += 1
        return f"{text[:TEXT_LIMIT]}\n[cut on import: {len(text) - TEXT_LIMIT:,} of {len(text):,} characters left out]"

    def value(self, value: Any) -> Any:
        """A JSON value with every text in it cleaned, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return value


Kind = Literal["agent", "user", "outsider", "named", "stimulus", "system"]
"""Who a speaker is, as far as the source knows.

``agent``: `speaker` is the slug of an agent, which must exist · ``user``: a username · ``named``: a name that may be an
agent's · ``outsider`` and ``stimulus``: surely no agent · ``system``: a system prompt, not something that was said.
"""


class TranscriptError(Exception):
    """A file that cannot be read as a transcript: where, and why. Line 0 = the file."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        super().__init__(f"{path}, line {line}: {reason}" if line else f"{path}: {reason}")


class OptionError(Exception):
    """Something the caller asked for that there is not: a format, an agent, a column, a time zone, a speaker to map."""


class NotThere(OptionError):
    """An agent, a speaker or a column that was named and is not there; says which there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMessage:
    """One message as its source has it. `sent_at` may be naive (the importer adds the time zone)."""

    speaker: str
    text: str
    line: int
    kind: Kind = "named"
    role: str = ""
    """The source's role, e.g. ``assistant``: a second name under which a speaker can be mapped."""
    source_id: str = ""
    sent_at: datetime | None = None
    parent_source_id: str = ""
    channel: str = ""
    """The conversation's name or id in the source; empty when it has none."""
    conversation: int = 1
    """Which conversation of the file, from 1; tells conversations without a name apart."""
    tags: Mapping[str, str] = field(default_factory=dict)
    payload: Mapping[str, Any] = field(default_factory=dict)
    synthetic: bool = False
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in the file that is no message, e.g. a tool result or a thought.

    `text` is of a line that the reader does not understand; of others it is empty.
    """

    reason: str
    line: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelInfo:
    """What a file says about a channel; used when the channel has to be made."""

    channel: str
    name: str = ""
    kind: str = ""
    topic: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    line: int = 1


@dataclass(frozen=True, slots=True)
class Guess:
    """What a reader had to assume about the whole file, and the option that decides it: a warning of the report."""

    text: str
    line: int


Record = SourceMessage | Skipped | ChannelInfo | Guess
