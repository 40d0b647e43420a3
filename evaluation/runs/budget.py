"""What calls cost: whether the budget has room, and how long answers are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

from django.conf import settings
from django.db.models import Count
from django.utils.module_loading import import_string

from agents.llm.endpoints import provider_of
from agents.models import Agent, LLMCall
from evaluation.models import Dimension, EvaluationRun

LOOK_AFTER_CALLS = 10
LOOK_AFTER_SECONDS = 30.0


def why_over_budget(agent: Agent | None, judge: str, *, planned: Decimal = Decimal(0)) -> str | None:
    """Why no paid question about `agent` may be asked of `judge` now; empty when it may, None when nothing is capped.

    A channel's evaluation has no agent: those of all channels have one budget together. `planned` US dollars are about to be spent at
    once.
    """
    if not settings.EVALUATION_BUDGET:
        return None
    over: Callable[..., str | None] = import_string(settings.EVALUATION_BUDGET)
    return over(agent, judge, planned=planned) if planned else over(agent, judge)


class BudgetWatch:
    """Asked before each call of one evaluation; safe to use from several threads.

    Looks every ten calls where there is a cap, every 30 seconds in any case. So that many calls, and those in flight or about to be (twice
    as many as may be in flight at once), may be made past the cap.

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


OUTPUT_TOKENS_PER_CLAIM = 160  # a few sentences of reasoning; an assumption, said so where it is shown
ENOUGH_CALLS = 20  # of a judge about a dimension, whose mean is better than the assumption
NEWEST_RUNS, NEWEST_CALLS = 50, 2_000  # whose answers are looked at


class AnswerLength(NamedTuple):
    """Output tokens of an answered proposition: the mean of so many calls in the ledger; an assumption where these are 0."""

    tokens: int
    calls: int


ASSUMED = AnswerLength(OUTPUT_TOKENS_PER_CLAIM, 0)


def answer_lengths(judge: str) -> dict[str, AnswerLength]:
    """How long this judge's answers to a proposition were in its newest evaluations, for the dimensions with enough calls."""
    if provider_of(judge) != "anthropic":
        return {}
    runs = EvaluationRun.objects.filter(judge=judge).order_by("-pk").values_list("pk", flat=True)[:NEWEST_RUNS]
    calls = LLMCall.objects.filter(
        work_id__in=[f"evaluation_run:{pk}" for pk in runs],
        purpose="evaluation",
        model=judge,
        status=LLMCall.Status.OK,
        output_tokens__isnull=False,
    )
    calls = calls.exclude(dimension=Dimension.IDEAS_QUANTITY)  # a list, not an answer to a proposition
    claims = calls.annotate(claims=Count("evaluation_scores")).filter(claims__gt=0).order_by("-pk")
    by_dimension: dict[str, list[tuple[int, int]]] = {}
    for dimension, tokens, number in claims.values_list("dimension", "output_tokens", "claims")[:NEWEST_CALLS]:
        by_dimension.setdefault(dimension, []).append((tokens or 0, number))
    return {
        dimension: AnswerLength(round(sum(t for t, _ in rows) / sum(n for _, n in rows)), len(rows))
        for dimension, rows in by_dimension.items()
        if len(rows) >= ENOUGH_CALLS
    }
