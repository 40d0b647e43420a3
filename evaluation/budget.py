"""Whether a paid question may be asked (an app declares `evaluation_budget`), and a watch that asks it during an evaluation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from decimal import Decimal

from django.utils.module_loading import import_string

from agents.kit.capability import declared_one
from agents.models import Agent

LOOK_AFTER_CALLS = 10
LOOK_AFTER_SECONDS = 30.0


def why_over_budget(agent: Agent | None, judge: str, *, planned: Decimal = Decimal(0)) -> str | None:
    """Why no paid question about `agent` may be asked of `judge` now; empty when it may, None when nothing is capped.

    The evaluations of all channels, which have no agent, share one budget. `planned` US dollars are about to be spent at once.
    """
    path = declared_one("evaluation_budget")
    if not path:
        return None
    over: Callable[..., str | None] = import_string(path)
    return over(agent, judge, planned=planned) if planned else over(agent, judge)


class BudgetWatch:
    """Asked before each call of one evaluation; safe to use from several threads.

    Looks every ten calls where there is a cap, every 30 seconds in any case: that many calls, and those in flight, may exceed the cap.

    Attributes:
        reason: Why the evaluation must pause; it stays so until it is resumed.
    """

    def __init__(self, agent: Agent | None, judge: str) -> None:
        self.agent, self.judge, self.reason = agent, judge, ""
        self._calls_left, self._looked = 0, -LOOK_AFTER_SECONDS
        self._lock = threading.Lock()

    def used_up(self) -> bool:
        """Whether the evaluation must pause."""
        with self._lock:
            if not self.reason:
                now = time.monotonic()
                if self._calls_left == 0 or now - self._looked > LOOK_AFTER_SECONDS:
                    reason, self._looked = why_over_budget(self.agent, self.judge), now
                    self.reason, self._calls_left = reason or "", -1 if reason is None else LOOK_AFTER_CALLS
                self._calls_left -= 1
            return bool(self.reason)
