"""Ask whether a paid question may be asked (an app declares `evaluation_budget`), once or during an evaluation."""

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
    """Return why no paid question about `agent` may be asked of `judge` now; empty when it may, None when nothing is capped.

    The evaluations of all channels, which have no agent, share one budget. `planned` US dollars are about to be spent at once.
    """
    path = declared_one("evaluation_budget")
    if not path:
        return None
    declared_function: Callable[..., str | None] = import_string(path)
    if planned:
        return declared_function(agent, judge, planned=planned)
    return declared_function(agent, judge)


class BudgetWatch:
    """Asked before each call of one evaluation; safe to use from several threads.

    Looks every ten calls where there is a cap, every 30 seconds in any case: that many calls, and those in flight, may exceed the cap.

    Attributes:
        reason: Why the evaluation must pause; it stays so until it is resumed.
    """

    def __init__(self, agent: Agent | None, judge: str) -> None:
        self.agent = agent
        self.judge = judge
        self.reason = ""
        self._calls_until_check = 0
        self._is_capped = True
        self._checked_at = -LOOK_AFTER_SECONDS
        self._lock = threading.Lock()

    def used_up(self) -> bool:
        """Return whether the evaluation must pause; count the call that is asked for.

        Once it must, it stays so: nothing is looked up any more.
        """
        with self._lock:
            if not self.reason:
                if self._is_check_due():
                    self._check()
                self._calls_until_check -= 1
            return bool(self.reason)

    def _is_check_due(self) -> bool:
        if self._is_capped and self._calls_until_check == 0:
            return True
        return time.monotonic() - self._checked_at > LOOK_AFTER_SECONDS

    def _check(self) -> None:
        """Ask whether the budget has room, and remember when."""
        reason = why_over_budget(self.agent, self.judge)
        self._checked_at = time.monotonic()
        self._is_capped = reason is not None
        self._calls_until_check = LOOK_AFTER_CALLS
        self.reason = reason or ""
