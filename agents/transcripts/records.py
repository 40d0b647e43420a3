"""What readers produce: messages, what they left out, channels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from agents.kit.files.json_input import shown
from agents.kit.text.fences import safe_and_cut

Kind = Literal["agent", "user", "outsider", "named", "stimulus", "system"]
"""Who a speaker is, as far as the source knows.

``agent``: `speaker` is the slug of an agent, which must exist · ``user``: a username · ``named``: a name that may be an
agent's · ``outsider`` and ``stimulus``: never an agent · ``system``: a system prompt, not something that was said.
"""


class OptionError(Exception):
    """Something the caller asked for that there is not: a format, an agent, a column, a time zone, a speaker to map.

    Attributes:
        problem: What is wrong, without the option of the command before it and the advice which one may help.
    """

    def __init__(self, problem: str, *, option: str = "", advice: str = "") -> None:
        self.problem = problem
        text = f"{option} {problem}" if option else problem
        super().__init__(f"{text}; {advice}" if advice else text)


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
    inclusion_probability: float = 1.0
    line: int = 1


@dataclass(frozen=True, slots=True)
class Guess:
    """What a reader had to assume about the whole file: a warning of the report.

    Attributes:
        advice: Which option of a command decides it.
        question: The field of `ReadOptions`, or of a CSV file, that was assumed; empty where the console does not ask for it.
        answer: What was assumed.
        example: Where the file leaves it open.
    """

    text: str
    line: int
    advice: str = ""
    question: str = ""
    answer: str = ""
    example: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.advice}" if self.advice else self.text


Record = SourceMessage | Skipped | ChannelInfo | Guess


def list_names(names: Iterable[str]) -> str:
    """Return the names of a file's columns or keys in one line, fit for a terminal or a log of a build, whatever characters they hold."""
    return ", ".join(safe_and_cut(" ".join(name.split())) for name in names)


def guess_no_time(
    names: Iterable[str], read: Mapping[str, str], *, line: int, what: str, where: str = ""
) -> Iterator[Guess]:
    """Yield a warning that messages have no times, where a column (or key: `what`) that is not used may hold them.

    Args:
        names: Of all columns.
        read: Our field to the name of its column.
        where: Of which messages, where not of all.
    """
    unused = [name for name in names if name and name not in read.values()]
    if not unused:
        return
    used = list_names(f"{field}={name}" for field, name in read.items())
    yield Guess(
        f"No {what}{where} holds the time of a message as far as the names say. Read: {used}; not used: {list_names(unused[:20])}.",
        line,
        f"If one of these is the time: --columns sent_at={what.upper()}",
    )


def bad_tag_key(name: str) -> str:
    """Say what is wrong with a tag key that does not match `TAG_KEY`."""
    return f"tag key {shown(name)}; allowed: a letter, then up to 63 letters, digits, _ . or -"
