"""The receivers that scores can be sent to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from correction.sending import langfuse, otlp
from correction.sending.answers import Answer
from correction.sending.models import ScoreReceiver
from correction.sending.records import ScoreRecord


@dataclass(frozen=True, slots=True)
class Destination:
    """A receiver: whether the settings name it, which records it takes, and how they are sent to it."""

    is_configured: Callable[[], bool]
    takes: Callable[[ScoreRecord], bool]
    send: Callable[[Sequence[ScoreRecord]], Answer]


DESTINATIONS: Mapping[str, Destination] = {
    ScoreReceiver.Name.OTLP: Destination(otlp.is_configured, otlp.takes, otlp.send),
    ScoreReceiver.Name.LANGFUSE: Destination(langfuse.is_configured, langfuse.takes, langfuse.send),
}


def configured_destinations() -> list[str]:
    """Return the names of the receivers that the settings name."""
    return [name for name, destination in DESTINATIONS.items() if destination.is_configured()]
