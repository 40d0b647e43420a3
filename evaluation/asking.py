"""Several kinds of questions to a judge, in flight together: none waits until another kind is through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import sentry_sdk

from agents.llm import LLMRequest, Reply, complete_many

GIVE_UP_AFTER = 10  # calls in a row that failed before any succeeded


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and what is done with its reply."""

    request: LLMRequest
    take: Callable[[Reply], None]


Source = Callable[[], Ask | None]  # the next thing to ask; None when there is nothing now. A reply may give it more


def in_flight(sources: Sequence[Source], *, deadline: float) -> Iterator[Reply]:
    """Ask what the sources have, those of the first ones first, and whatever the replies give them to ask, until they are done.

    Args:
        sources: Called in the calling thread, whenever there is room for another call.
        deadline: Seconds for each call.

    Yields:
        Each reply after its source took it.
    """
    waiting: dict[int, Ask] = {}

    def requests() -> Iterator[LLMRequest | None]:
        numbers = count()
        while True:
            ask = next((found for source in sources if (found := source()) is not None), None)
            if ask is not None:
                waiting[next(numbers)] = ask
            yield ask.request if ask is not None else None

    for number, reply in complete_many(requests(), deadline=deadline):
        waiting.pop(number).take(reply)
        yield reply


class JudgeDown(Exception):
    """The judge answered none of the first calls; the rest is left pending, to be taken up again."""


@dataclass(slots=True)
class Tally:
    """Calls answered and failed. Notices a judge that answers nothing."""

    answered: int = 0
    failed: int = 0

    def note(self, *, failed: bool, why: str) -> None:
        """Count one call.

        Raises:
            JudgeDown: None of the first calls was answered.
        """
        if failed:
            self.failed += 1
        else:
            self.answered += 1
        if self.failed >= GIVE_UP_AFTER and not self.answered:
            raise JudgeDown(f"the judge answered none of the first calls; the last: {why}")


@contextmanager
def inside(span: Any) -> Iterator[None]:
    """Inside, a Sentry span is the current one. It neither starts nor ends here: several are open side by side."""
    scope = sentry_sdk.get_current_scope()
    before, scope.span = scope.span, span
    try:
        yield
    finally:
        scope.span = before
