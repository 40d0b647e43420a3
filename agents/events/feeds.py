"""What there is to listen to: a log, whose entries are told one by one, or a state, told whenever it is another one.

A feed is shared by all that listen to the same place in one process. One of them at a time has it `look`; all the others take what was
found from memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BATCH = 200  # entries read at a time
KEPT = 1_000  # entries kept for those who are a little behind; who is further behind reads for themselves
END = "-end"  # follows the number of the last entry once a log is over
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,17})(-end)?")
_DIGEST = re.compile(r"[0-9a-f]{16}")


class Gone(LookupError):
    """What was listened to is not there any more."""


class WrongCursor(ValueError):
    """No event of this feed can have this id; the text says which can."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something to be told: `what` is rendered for each listener, whose links differ. `last`: nothing follows."""

    id: str
    kind: str
    what: Any
    last: bool = False


class Feed(ABC):
    """A place to listen at. Cursors are ids of events: who names one is told what came after it."""

    @abstractmethod
    def look(self) -> int:
        """Ask the database what is new; returns how much, `BATCH` when there may be more at once.

        Raises:
            Gone: There is nothing to listen to any more.
        """

    @abstractmethod
    def since(self, cursor: str) -> Sequence[Event]:
        """What a listener has not been told; asks the database only for one who is far behind. After the first `look`."""

    @abstractmethod
    def start(self) -> str:
        """The cursor of who names none. After the first `look`."""

    @abstractmethod
    def check(self, cursor: str) -> None:
        """Refuse what is no id of this feed.

        Raises:
            WrongCursor: It is none.
        """

    @abstractmethod
    def is_over(self, cursor: str) -> bool:
        """Whether everything has been told to one who has this cursor, and nothing can follow."""


class State(Feed):
    """A state; each event is the whole of it, so that nothing is lost by missing some."""

    _now: Event | None = None

    @abstractmethod
    def read(self) -> tuple[dict[str, Any], bool]:
        """The state, as JSON can hold it, and whether it is the last one."""

    def look(self) -> int:
        state, last = self.read()
        digest = hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()[:16]
        if self._now is not None and self._now.id == digest:
            return 0
        self._now = Event(digest, "end" if last else "progress", state, last)
        return 1

    def since(self, cursor: str) -> Sequence[Event]:
        now = self._now
        return [now] if now is not None and now.id != cursor else []

    def start(self) -> str:
        return ""

    def check(self, cursor: str) -> None:
        if not _DIGEST.fullmatch(cursor):
            raise WrongCursor("an id that an event had, 16 hexadecimal digits")

    def is_over(self, cursor: str) -> bool:
        return self._now is not None and self._now.last and self._now.id == cursor


@dataclass(frozen=True, slots=True)
class _Known:
    """What is in memory: every entry after number `floor`, up to `head`. Replaced as a whole, so that it is read without a lock."""

    floor: int
    head: int
    events: tuple[Event, ...] = ()
    end: Event | None = None


_NOTHING = _Known(-1, -1)  # before the first look


class Log(Feed):
    """Numbered entries that are committed in the order of their numbers; an event's id is its entry's number."""

    kind = "message"
    _known = _NOTHING

    @abstractmethod
    def head(self) -> int:
        """The number of the newest entry; 0 when there is none."""

    @abstractmethod
    def after(self, number: int, most: int) -> Sequence[tuple[int, Any]]:
        """Entries above a number in their order, with their numbers."""

    def final(self) -> Any:
        """What the end says, once the log is over; None before. Asked before the entries are read."""
        return None

    def look(self) -> int:
        final = self.final()
        known = self._known
        if known is _NOTHING:
            head = self.head()
            self._known = _Known(head, head, (), self._ending(head, final))
            return 1
        if known.end is not None and final is not None:
            return 0
        found = self._events(known.head)
        head = int(found[-1].id) if found else known.head
        events = (*known.events, *found)
        dropped = events[: max(0, len(events) - KEPT)]
        floor = int(dropped[-1].id) if dropped else known.floor
        over = final if len(found) < BATCH else None
        self._known = _Known(floor, head, events[len(dropped) :], self._ending(head, over))
        return len(found) + (self._known.end is not known.end)

    def since(self, cursor: str) -> Sequence[Event]:
        known, number = self._known, _number(cursor)
        missed = self._events(number) if number < known.floor else []
        if len(missed) >= BATCH:
            return missed
        reached = int(missed[-1].id) if missed else number
        found = [*missed, *(event for event in known.events if int(event.id) > reached)]
        ending = [] if known.end is None or known.end.id == cursor else [known.end]
        return [*found, *ending]

    def start(self) -> str:
        return str(self._known.head)

    def check(self, cursor: str) -> None:
        if not _NUMBER.fullmatch(cursor):
            raise WrongCursor("the id of an event, a number from 0")
        if _number(cursor) > self._known.head and _number(cursor) > (head := self.head()):
            raise WrongCursor(f"0 to {head}, for there is nothing newer")

    def is_over(self, cursor: str) -> bool:
        return self._known.end is not None and self._known.end.id == cursor

    def _events(self, number: int) -> list[Event]:
        return [Event(str(at), self.kind, entry) for at, entry in self.after(number, BATCH)]

    def _ending(self, head: int, final: Any) -> Event | None:
        return None if final is None else Event(f"{head}{END}", "end", final, last=True)


def _number(cursor: str) -> int:
    return int(cursor.removesuffix(END))
