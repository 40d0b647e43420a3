"""What readers produce: messages, what they left out, and what the file says about its channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Kind = Literal["agent", "user", "outsider", "named", "stimulus", "system"]
"""Who a speaker is, as far as the source knows.

``agent``: `speaker` is the slug of an agent, which must exist · ``user``: a username · ``named``: a name that may be an
agent's · ``outsider`` and ``stimulus``: surely no agent · ``system``: a system prompt, not something that was said.
"""


class TranscriptError(Exception):
    """A file that cannot be read as a transcript: where, and why. Line 0 = the file as a whole."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        super().__init__(f"{path}, line {line}: {reason}" if line else f"{path}: {reason}")


class OptionError(Exception):
    """Something the caller asked for that there is not: a format, an agent, a column, a time zone, a speaker to map."""


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
    """Something in the file that is no message, e.g. a tool result or a thought."""

    reason: str
    line: int


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


Record = SourceMessage | Skipped | ChannelInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """What a person may tell a reader: the CSV column for each of our fields."""

    columns: Mapping[str, str] = field(default_factory=dict)
