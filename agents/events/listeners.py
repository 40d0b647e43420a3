"""Who listens: how many may in one process, to what, and until when."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from django.conf import settings

from agents.events.feeds import Event, Feed
from agents.events.topics import Topic, let_go

NAP = 0.5  # seconds at most until a listener notices that its process stops

_lock = threading.Lock()
_topics: dict[Hashable, tuple[Topic, int]] = {}  # and how many listen
_places: Counter[Hashable] = Counter()  # of each user
_stopping: list[Callable[[], bool]] = []


class Full(Exception):
    """As many listen in this process as may (`EVENT_STREAMS`), or as one user may: half of them."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text} (EVENT_STREAMS)")


class Listener:
    """One who listens, from when they came until `leave`."""

    def __init__(self, key: Hashable, topic: Topic, who: Hashable) -> None:
        self._key, self._topic, self._who = key, topic, who
        self._seen = 0
        self._left = False
        self.cursor = ""

    @property
    def feed(self) -> Feed:
        return self._topic.feed

    def wait(self, seconds: float) -> bool:
        """Whether there is news, within so many seconds; sooner no when the process stops. At first, there always is."""
        until = time.monotonic() + seconds
        while True:
            version = self._topic.news(self._seen, until=min(until, time.monotonic() + NAP))
            if version != self._seen:
                self._seen = version
                return True
            if time.monotonic() >= until or is_stopping():
                return False

    def news(self) -> Sequence[Event]:
        """What came after the cursor, which moves on; some of it, when it is much."""
        events = self.feed.since(self.cursor)
        let_go()
        if events:
            self.cursor = events[-1].id
        return events

    def leave(self) -> None:
        """Make room; more than once does no harm."""
        with _lock:
            if self._left:
                return
            self._left = True
            _places[self._who] -= 1
            if not _places[self._who]:
                del _places[self._who]
            topic, listeners = _topics[self._key]
            if listeners > 1:
                _topics[self._key] = topic, listeners - 1
            else:
                del _topics[self._key]


def join(key: Hashable, feed: Callable[[], Feed], who: Hashable) -> Listener:
    """Listen to what `key` names, together with those who do already.

    Args:
        key: Names the place.
        feed: Makes its feed when nobody listens there yet.
        who: The user, who leaves half of the places to others.

    Raises:
        Full: As many listen as may.
    """
    most, of_one = settings.EVENT_STREAMS, (settings.EVENT_STREAMS + 1) // 2
    with _lock:
        if _places.total() >= most:
            raise Full(f"{most} streams are open in this process, as many as may be")
        if _places[who] >= of_one:
            raise Full(f"{of_one} streams of yours are open in this process, as many as one user may have")
        topic, listeners = _topics.get(key) or (Topic(feed()), 0)
        _topics[key] = topic, listeners + 1
        _places[who] += 1
    return Listener(key, topic, who)


def stop_when(stopping: Callable[[], bool]) -> None:
    """Tell what to ask whether this process is to stop; then streams end, and their clients come back to another process."""
    _stopping[:] = [stopping]


def is_stopping() -> bool:
    return any(stopping() for stopping in _stopping)
