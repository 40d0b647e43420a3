"""What the judge is shown: events in a window, numbered inside a fence that no text can close (AC-6.0.12, AC-6.0.13)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from agents.text.fences import fence, neutral


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: an action of the agent judged, or a stimulus that reached it.

    Attributes:
        kind: ``action`` or ``stimulus``.
        name: Who acts; for a stimulus, whom it reaches.
        text: What was said.
        speaker: For a stimulus, who said it; empty when unknown.
    """

    kind: Literal["action", "stimulus"]
    name: str
    text: str
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """The events shown: the first ones, how many were left out, and the last ones. No event stands in both."""

    first: tuple[Event, ...]
    omitted: int
    last: tuple[Event, ...]

    @property
    def events(self) -> tuple[Event, ...]:
        return self.first + self.last


def cut_window(events: Sequence[Event], *, first_n: int, last_n: int) -> Window:
    """The first `first_n` and last `last_n` events, in order. Where the two would overlap everything is shown, once."""
    if first_n + last_n >= len(events):
        return Window(tuple(events), 0, ())
    last_start = len(events) - last_n
    return Window(tuple(events[:first_n]), last_start - first_n, tuple(events[last_start:]))


def one_event(event: Event, number: int) -> tuple[str, int]:
    """One numbered entry. Further lines of a text are indented behind a bar, so that none can pass for an entry."""
    text, cut = neutral(event.text)
    name, _ = neutral(" ".join(event.name.split()), 200)
    if event.kind == "action":
        head = f"{name} acts: "
    else:
        speaker, _ = neutral(" ".join(event.speaker.split()), 200)
        head = f"--> {name}: " + (f"{speaker} says: " if speaker else "")
    return f"{number}. {head}" + text.replace("\n", "\n    | "), cut


@dataclass(frozen=True, slots=True)
class RenderedTrajectory:
    """A window as text, with the number of messages that had to be cut."""

    text: str
    cut_messages: int


def render_trajectory(window: Window, *, nonce: str, marker: str = "TRAJECTORY", start: int = 1) -> RenderedTrajectory:
    """The window inside its fence: numbered entries, and a line that says how many events were left out between them."""
    lines: list[str] = []
    cut_messages = 0

    def add(events: Iterable[Event], start: int) -> None:
        nonlocal cut_messages
        for number, event in enumerate(events, start):
            line, cut = one_event(event, number)
            lines.append(line)
            cut_messages += cut > 0

    add(window.first, start)
    if window.omitted:
        lines.append(f"[… {window.omitted} events left out here …]")
    add(window.last, start + len(window.first) + window.omitted)
    return RenderedTrajectory(fence(marker, "\n".join(lines) or "(nothing happened yet)", nonce), cut_messages)
