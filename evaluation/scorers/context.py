"""What the judge is shown beside the claims, as values: events, windows of them, and the context around both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agents.kit.text.fences import one_line


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: an action of `name`, the agent judged, or a stimulus that reached it, said by `speaker` (empty: unknown)."""

    kind: Literal["action", "stimulus"]
    name: str
    text: str
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """The events shown: the first ones, how many were left out, and the last ones. No event stands in both.

    Attributes:
        ends: Where windows that begin with the same events end, this one last, as numbers of events shown; see `Subject.window_around`.
    """

    first: tuple[Event, ...]
    omitted: int
    last: tuple[Event, ...]
    ends: tuple[int, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        return self.first + self.last

    def with_event(self, number: int, event: Event) -> Window:
        """Return the window with another event under a number that is shown, from 1; the events left out are numbered, too."""
        if number <= len(self.first):
            first = list(self.first)
            first[number - 1] = event
            return replace(self, first=tuple(first))
        last = list(self.last)
        last[number - 1 - len(self.first) - self.omitted] = event
        return replace(self, last=tuple(last))


def cut_window(events: Sequence[Event], *, first_n: int, last_n: int) -> Window:
    """Return the first `first_n` and last `last_n` events, in order. Where the two would overlap everything is shown, once."""
    if first_n + last_n >= len(events):
        return Window(tuple(events), 0, ())
    last_start = len(events) - last_n
    return Window(tuple(events[:first_n]), last_start - first_n, tuple(events[last_start:]))


EMPTY_WINDOW = Window((), 0, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything the judge is shown beside the claims. Immutable, without ORM objects.

    Attributes:
        agent_name: Whom the claims are about; the channel's name for an environment.
        persona: The rendered persona; None withholds it (AC-6.0.9).
        message: The one message judged, entry `message_number` of the window (None: not there); None judges the window.
        action: A draft that has not been sent (the gate); excludes `message`.
        growing: Whether that draft is still being written.
        environment: Whether a conversation is judged (AC-6.0.10).
        own_messages: Whether the window holds only the agent's own messages.
        pair: Two moments to compare, the earlier and the later one; the last event of each is the agent's message.
        additional: `RunSpec.additional_context`.
        measured: Figures for the offline judge alone; a model is not shown them.
    """

    agent_name: str
    persona: str | None = None
    window: Window = EMPTY_WINDOW
    message: Event | None = None
    message_number: int | None = None
    action: str | None = None
    growing: bool = False
    channel_name: str = ""
    statistics: Mapping[str, Any] | None = None
    environment: bool = False
    own_messages: bool = False
    pair: tuple[Window, Window] | None = None
    additional: Mapping[str, Any] | None = None
    measured: Mapping[str, Any] | None = None

    def variables(self) -> dict[str, str]:
        """Return the values of the variables that claims may use here, each on one line: no name can add a claim."""
        values = {"agent_name": one_line(self.agent_name)}
        if self.channel_name:
            values["channel_name"] = one_line(self.channel_name)
        if self.action is not None:
            values["action"] = "the message that is about to be sent"
        return values

    def judged_texts(self) -> list[str]:
        """Return the texts the claims are about: the draft, the one message, or everything said in the window."""
        if self.action is not None:
            return [self.action]
        if self.message is not None:
            return [self.message.text]
        if self.pair is not None:
            return [self.pair[1].events[-1].text]
        return [event.text for event in self.window.events if event.kind == "action"]

    def history(self) -> list[str] | None:
        """Return what the agent said before the draft; None where no draft is judged."""
        if self.action is None:
            return None
        return [event.text for event in self.window.events if event.kind == "action"]
