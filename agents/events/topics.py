"""One look at the database for all who listen to the same place in this process, however many they are.

Nobody looks in the background: of those who wait, whoever finds that a look is due looks for all. So every statement runs in the thread
of a request, and when nobody listens, nothing is asked.
"""

from __future__ import annotations

import logging
import threading
import time

from django.db import DatabaseError, InterfaceError, connection

from agents.events.feeds import BATCH, Feed, Gone

logger = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between two looks
SHARE = 10  # a look that takes long comes so many times its own length later
AFTER_OUTAGE = 5.0  # seconds


class Topic:
    """A feed with those who wait for its news."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._changed = threading.Condition()
        self._version = 0  # counts the looks that found something
        self._looking = False
        self._due = 0.0
        self._gone = False

    def news(self, seen: int, *, until: float) -> int:
        """Wait until there is news, looking when it is this thread's turn.

        Args:
            seen: The version up to which the caller knows everything; 0 = nothing yet.
            until: When to stop waiting, by `time.monotonic`.

        Returns:
            The version now; `seen` when nothing came.

        Raises:
            Gone: What was listened to is not there any more.
            DatabaseError: The first look failed.
        """
        while True:
            with self._changed:
                if self._gone:
                    raise Gone
                now = time.monotonic()
                if self._version != seen or now >= until:
                    return self._version
                if self._looking or now < self._due:
                    self._changed.wait((until if self._looking else min(until, self._due)) - now)
                    continue
                self._looking = True
            self._look()

    def _look(self) -> None:
        found, pause, gone = 0, AFTER_OUTAGE, False
        begun = time.monotonic()
        try:
            found = self.feed.look()
            pause = 0.0 if found >= BATCH else max(INTERVAL, SHARE * (time.monotonic() - begun))
        except Gone:
            gone = True
        except (DatabaseError, InterfaceError) as error:
            if self._version == 0:
                raise  # nobody was told anything yet: an error is the answer
            logger.warning("events: %s; trying again", str(error).strip().partition("\n")[0])
        finally:
            let_go()
            with self._changed:
                self._looking, self._gone = False, self._gone or gone
                self._version += bool(found)
                self._due = time.monotonic() + pause
                self._changed.notify_all()


def let_go() -> None:
    """Give the connection back before waiting: a listener holds none (inside somebody's transaction it is theirs)."""
    if not connection.in_atomic_block:
        connection.close()
