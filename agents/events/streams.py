"""An answer that goes on while there is something to tell: server-sent events (HTML Living Standard, section 9.2)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from django.conf import settings
from rest_framework.utils.encoders import JSONEncoder

from agents.events.feeds import Event, Gone
from agents.events.listeners import Listener, is_stopping

HEARTBEAT = (
    15.0  # seconds of silence after which a comment is sent: proxies keep the connection, and we see who is gone
)
RETRY = (2_000, 4_000)  # milliseconds after which clients come back; spread, for many are sent away at once

Shown = Callable[[Event], Any]


class Stream:
    """The parts of the answer to one listener; closed, also half-way, it makes room for another."""

    def __init__(self, listener: Listener, shown: Shown) -> None:
        self._listener = listener
        self._parts = self._told(shown)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._parts)

    def close(self) -> None:
        self._parts.close()
        self._listener.leave()

    def _told(self, shown: Shown) -> Generator[bytes, None, None]:
        listener = self._listener
        # The id comes first: who is cut off before the first event comes back to the same place.
        yield _lines(retry=str(random.randint(*RETRY)), **({"id": listener.cursor} if listener.cursor else {}))  # noqa: S311
        spoken = time.monotonic()
        ends = spoken + settings.EVENT_STREAM_SECONDS
        try:
            while True:
                events = listener.news()
                for event in events:
                    yield _lines(id=event.id, event=event.kind, data=as_json(shown(event)))
                    spoken = time.monotonic()
                    if event.last:
                        return
                now = time.monotonic()
                if events and now < ends + HEARTBEAT:
                    continue  # until there is no more, also for one who came late
                if now >= ends or is_stopping():
                    return
                if not listener.wait(min(ends, spoken + HEARTBEAT) - now) and time.monotonic() >= spoken + HEARTBEAT:
                    yield b": still here\n\n"
                    spoken = time.monotonic()
        except Gone:
            yield _lines(event="gone", data="{}")


def as_json(value: Any) -> str:
    """On one line, whatever is in it."""
    return json.dumps(value, cls=JSONEncoder, separators=(",", ":"))


def _lines(**fields: str) -> bytes:
    return "".join([*(f"{name}: {value}\n" for name, value in fields.items()), "\n"]).encode()
