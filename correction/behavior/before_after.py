"""Whether an applied request changed anything: its trait, judged on what the agent said before it and on what it said next."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from correction.behavior.errors import BehaviorError
from correction.behavior.lasting import lasting
from correction.behavior.rules import trait_from_json
from correction.models import BehaviorRequest
from evaluation.change.before_after import (
    MESSAGES,
    BeforeAfter,
    Plan,
    before_after_json,
    judge_before_after,
    plan_before_after,
    plan_json,
)

Status = BehaviorRequest.Status


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedChange:
    """What the request asked for, and what would be judged.

    Attributes:
        expected: ``more``, ``less`` or ``otherwise`` (the trait was reworded): of what the trait is about, after the request.
        plan: The messages there are, what is missing, and what judging them would cost.
        ended: What ended the time in which its trait was as it made it, e.g. ``it was reverted``; empty: it holds.
    """

    request: BehaviorRequest
    expected: str
    plan: Plan
    ended: str = ""

    @property
    def waits(self) -> str:
        """What is missing, as the plan says it; no more messages will come once the trait is another."""
        plan = self.plan
        if self.ended and len(plan.after) < plan.wanted:
            return f"{len(plan.after)} of {plan.wanted} messages until {self.ended}: there will be no more"
        return plan.waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a request. `as_requested` is None where nothing sure can be said."""

    change: RequestedChange
    found: BeforeAfter

    @property
    def as_requested(self) -> bool | None:
        if self.found.verdict == "cannot tell" or self.change.expected == "otherwise":
            return None
        return self.found.verdict == self.change.expected


def plan_request(*, request: BehaviorRequest, n: int = MESSAGES, model: str = "") -> RequestedChange:
    """What could be judged for a request, with its estimate; asks no model. `plan.waits` says ``not yet: 3 of 10 messages since``.

    The messages after are those from the change until it was reverted or its trait was changed again, by whatever; those before go
    back to the change of that trait before. The judge does not read the request itself.

    Raises:
        BehaviorError: It was never applied, or its agent is gone.
        ValueError: `n` is out of range.
    """
    if request.applied_at is None or not request.trait_after:
        raise BehaviorError(f"{request}: nothing was changed by it; allowed: a request that was applied")
    if request.agent is None:
        raise BehaviorError(f"{request}: its agent was deleted; allowed: a request whose agent there is")
    trait = trait_from_json(request.trait_after)
    moments, ended = lasting(request)
    asked = () if request.message_id is None else (request.message_id,)
    plan = plan_before_after(agent=request.agent, trait=trait, moments=moments, n=n, model=model, unseen=asked)
    return RequestedChange(request=request, expected=_expected(request), plan=plan, ended=ended)


def judge_request(
    *,
    request: BehaviorRequest,
    n: int = MESSAGES,
    model: str = "",
    work_id: str = "",
    done: Callable[[int], None] = lambda judged: None,
) -> Outcome:
    """Judge it now, with as many messages as there are. Every call is in the ledger, its work begins with the request's name.

    Args:
        request: An applied or reverted one.
        n: Messages of each side, 1 to 100.
        model: Overrides the configured judge.
        work_id: Of the ledger rows; default one of its own.
        done: Called with the number of messages just judged.

    Raises:
        BehaviorError, ValueError: As `plan_request`.
    """
    change = plan_request(request=request, n=n, model=model)
    work_id = (
        work_id or f"{request.work_id}/{secrets.token_hex(4)}"
    )  # apart from the tiers' calls, and from an earlier look
    return Outcome(change=change, found=judge_before_after(change.plan, work_id=work_id, done=done))


def plan_as_json(change: RequestedChange) -> dict[str, Any]:
    """What a page or the API offers before anything is judged."""
    return {"request": change.request.pk, "expected": change.expected, **plan_json(change.plan), "waits": change.waits}


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    """What came out."""
    return {
        "request": outcome.change.request.pk,
        "expected": outcome.change.expected,
        "as_requested": outcome.as_requested,
        **before_after_json(outcome.found),
    }


def _expected(request: BehaviorRequest) -> str:
    """Whether there is to be more or less of it. Without a trait before, one that is not stopped was asked for to show."""
    before, after = (
        trait_from_json(value).strength if value else None for value in (request.trait_before, request.trait_after)
    )
    if before is None or after is None:
        return "less" if not after else "more"
    return "less" if after < before else "more" if after > before else "otherwise"
