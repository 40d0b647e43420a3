"""Runs that are judged together: opened as they are made, while the calls of those before them are in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.conf import settings

from evaluation.asking import Ask, in_flight
from evaluation.batches import Postbox
from evaluation.execution import Judging, Progress, Session
from evaluation.idea_counting import Counting
from evaluation.models import Dimension
from evaluation.scorers import SCORERS

# What takes several calls in a row comes first, so that the last of them are not waited for alone. What is quickly made is asked while
# there are free slots, what takes its time while calls wait for one: so no slot is free for want of a question.
_FIRST = Dimension.IDEAS_QUANTITY
_QUICK = (Dimension.ADHERENCE, Dimension.CONSISTENCY, Dimension.FLUENCY, Dimension.CONVERGENCE)
ORDER = (_FIRST, *_QUICK, *(name for name in SCORERS if name not in (_FIRST, *_QUICK)))
ORDER_WHEN_BUSY = (_FIRST, *reversed(ORDER[1:]))
ASKED_BETWEEN = 4  # questions asked before more runs are opened: few enough to mix the runs
BUSY = 1.5  # calls in flight or waiting per slot, from which on none becomes free while a run is opened


class Together:
    """All dimensions of all sessions, with their calls in flight side by side.

    Attributes:
        sessions: Those opened so far.
    """

    def __init__(self, opening: Iterator[Sequence[Session]], progress: Progress) -> None:
        """`opening` gives sessions, a few at a time; it is gone on with between questions, in the calling thread."""
        self.sessions: list[Session] = []
        self._opening, self._progress = opening, progress
        self._parts: dict[str, Judging | Counting] = {}
        self._asked = self._out = 0  # questions since runs were opened; those that are not answered yet
        self._slots = max(1, settings.LLM_MAX_CONCURRENCY)
        self._postbox = Postbox()

    def judge(self) -> None:
        """Ask whatever there is to ask, and store the answers.

        Raises:
            JudgeDown: The judge answered none of the first calls.
        """
        try:
            for _ in in_flight([self._next], deadline=settings.LLM_EVALUATION_DEADLINE):
                self._out -= 1
                for session in self.sessions:  # those whose turn has not come keep their claims, too
                    session.keep()
            self._postbox.send()
        finally:
            for part in self._parts.values():
                part.close()

    def open_all(self) -> None:
        """Open what is left without asking anything."""
        while self._open_more():
            pass

    def _next(self) -> Ask | None:
        """The next thing to ask (a `Source`) that no batch answers."""
        while (ask := self._next_of_all()) is not None:
            if (asked := self._postbox.asked(ask)) is not None:
                self._out += 1
                return asked
        return None

    def _next_of_all(self) -> Ask | None:
        if self._asked >= (ASKED_BETWEEN if self._is_busy() else self._slots):
            self._open_more()
        while (ask := self._next_of_open()) is None and self._open_more():
            pass
        self._asked += ask is not None
        return ask

    def _next_of_open(self) -> Ask | None:
        order = ORDER_WHEN_BUSY if self._is_busy() else ORDER
        parts = (self._parts[name] for name in order if name in self._parts)
        return next((ask for part in parts if (ask := part.next()) is not None), None)

    def _is_busy(self) -> bool:
        return self._out >= BUSY * self._slots

    def _open_more(self) -> bool:
        sessions = next(self._opening, None)
        if sessions is None:
            return False
        self._asked = 0
        self.sessions += sessions
        for session in sessions:
            self._postbox.add(session)
            for dimension in session.run.own_dimensions:
                self._part(dimension).add(session)
        return True

    def _part(self, dimension: str) -> Judging | Counting:
        if dimension not in self._parts:
            made = Counting(self._progress) if dimension == Dimension.IDEAS_QUANTITY else None
            self._parts[dimension] = made or Judging(dimension, self._progress)
        return self._parts[dimension]
