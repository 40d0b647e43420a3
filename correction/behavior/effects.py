"""Whether applied requests changed anything, as work: asked for by people, judged by a worker, kept with what came out.

A judge is asked about all messages in one go and its answers are stored together: work that was interrupted is judged anew, under the
same name in the ledger, so that its cost is all that was paid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import sentry_sdk
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.llm import ledger
from agents.llm.endpoints import model_of
from agents.models import owner_name
from agents.work.outages import is_outage
from agents.work.queues import wake_workers
from correction.behavior.before_after import Outcome, RequestedChange, judge_request, outcome_as_json, plan_request
from correction.behavior.errors import BehaviorError
from correction.behavior.postponing import midnight, resume
from correction.costs import evaluation_over_budget
from correction.models import BehaviorEffect, BehaviorRequest
from evaluation.change.before_after import MESSAGES

logger = logging.getLogger(__name__)

Status = BehaviorEffect.Status
MOST_ATTEMPTS = 3  # claims of one effect before its crash is final
MOST_ANEW = 3  # how often all messages may have been paid for before it is not begun again
LONGEST_MODEL = 200  # characters
UNDER_WAY = "an evaluation of it is under way already; allowed: to wait until that has ended"
NOT_MEASURABLE = "allowed: when there are messages on both sides of the change"


class _LeaseLost(Exception):
    """Somebody else works at it by now, or it was deleted: nothing more is asked or stored."""


def queue_effect(
    *, request: BehaviorRequest, messages: int = MESSAGES, user: AbstractBaseUser | None = None
) -> BehaviorEffect:
    """Have a worker judge a request's trait on the messages before it and the next ones after it. Asks no model.

    Args:
        request: An applied or reverted one.
        messages: Most messages of each side, 1 to 100; fewer are judged where there are no more.
        user: Who asks for it.

    Raises:
        BehaviorError: It was never applied, its agent is gone, there is nothing to judge yet, or it is being judged already.
        ValueError: `messages` is out of range.
    """
    check_measurable(plan_request(request=request, n=messages))
    effect = _new(request=request, messages=messages, judge=model_of("judge"), requested_by=user)
    transaction.on_commit(wake_workers)
    return effect


def measure_now(
    *,
    request: BehaviorRequest,
    messages: int = MESSAGES,
    model: str = "",
    done: Callable[[int], None] = lambda judged: None,
) -> BehaviorEffect:
    """The same while the caller waits; `model` overrides the configured judge. A budget that is used up makes it fail.

    Killed in between, it is work like any other: a worker judges it anew.

    Raises:
        BehaviorError, ValueError: As `queue_effect`.
    """
    judge, owner, now = model or model_of("judge"), owner_name(), timezone.now()
    if len(judge) > LONGEST_MODEL:
        raise ValueError(f"model of {len(judge)} characters: allowed: the name of a model, at most {LONGEST_MODEL}")
    check_measurable(plan_request(request=request, n=messages, model=judge))
    mine = {"lease_owner": owner, "lease_expires_at": now + _lease(), "attempt": 1, "started_at": now}
    effect = _new(request=request, messages=messages, judge=judge, status=Status.RUNNING, **mine)
    try:
        ended = _measured(effect, owner, done)
    except _LeaseLost:
        raise BehaviorError(f"{effect}: another worker took it over; allowed: to look at what it finds") from None
    except BaseException as stop:
        why = f"broke off: {type(stop).__name__}: {stop}"[:1000]
        effect.finish(
            owner=owner, status=Status.ERRORED if isinstance(stop, Exception) else Status.CANCELLED, error=why
        )
        raise
    if ended["status"] == Status.PAUSED_BUDGET:  # nobody waits until midnight
        ended = {"status": Status.FAILED, "error": ended["error"]}
    effect.finish(owner=owner, **ended)
    return effect


def check_measurable(change: RequestedChange) -> None:
    """Refuse what nothing can be said about yet.

    Raises:
        BehaviorError: There are no messages after the change, or none before it; says how many of how many.
    """
    if not change.plan.after or not change.plan.before:
        raise BehaviorError(f"{change.request}: {change.waits}; {NOT_MEASURABLE}")


def work_one(*, owner: str) -> bool:
    """Claim and judge the effect whose turn it is; whether there was one. What `manage.py work` calls."""
    effect = BehaviorEffect.acquire_next(owner=owner, lease=_lease())
    if effect is None:
        return False
    with sentry_sdk.start_transaction(op="correction.work", name="behavior effects"):
        try:
            ended = _measured(effect, owner)
        except _LeaseLost:
            return True
        except Exception as crash:
            if is_outage(crash):
                effect.finish(owner=owner, status=Status.PENDING)
                raise
            logger.exception("%s crashed", effect)
            sentry_sdk.capture_exception(crash)
            again = effect.attempt < MOST_ATTEMPTS
            why = f"{type(crash).__name__}: {crash}"[:1000]
            effect.finish(owner=owner, status=Status.PENDING if again else Status.ERRORED, error=why)
        except BaseException:  # told to stop: handed back at once
            effect.finish(owner=owner, status=Status.PENDING)
            raise
        else:
            effect.finish(owner=owner, **ended)
    return True


def resume_paused() -> str | None:
    """Queue again what waited for a budget until midnight UTC. A chore."""
    return resume(BehaviorEffect.objects.all())


def _new(**values: Any) -> BehaviorEffect:
    try:
        with transaction.atomic():
            effect: BehaviorEffect = BehaviorEffect.objects.create(**values)
    except IntegrityError:
        raise BehaviorError(f"{values['request']}: {UNDER_WAY}") from None
    return effect


def _measured(effect: BehaviorEffect, owner: str, done: Callable[[int], None] = lambda judged: None) -> dict[str, Any]:
    """Judge it; how the work ends, as the columns of the effect."""
    request = BehaviorRequest.objects.select_related("agent").get(pk=effect.request_id)
    if request.agent is not None and (why := evaluation_over_budget(request.agent, effect.judge)):
        return {"status": Status.PAUSED_BUDGET, "error": why, "lease_expires_at": midnight()}
    paid = ledger.totals(work_id=effect.work_id).calls
    if paid >= MOST_ANEW * 2 * effect.messages:
        why = f"{paid} calls were paid for it, and it was interrupted each time: not begun again by itself"
        return {"status": Status.ERRORED, "error": why}

    def heartbeat(judged: int) -> None:
        done(judged)
        if not effect.extend_lease(owner=owner, lease=_lease()):
            raise _LeaseLost

    try:
        outcome = judge_request(
            request=request, n=effect.messages, model=effect.judge, work_id=effect.work_id, done=heartbeat
        )
    except BehaviorError as gone:
        return {"status": Status.CANCELLED, "error": str(gone)}
    return _ended(outcome)


def _ended(outcome: Outcome) -> dict[str, Any]:
    """Completed with a result; failed where nothing was judged, or the judge scored nothing: then the result shows it all the same."""
    found, result = outcome.found, outcome_as_json(outcome)
    if found.reason:
        return {"status": Status.FAILED, "error": found.reason, "result": result}
    judged = [row.verdict for row in (*found.before, *found.after)]
    if not any(verdict.status == "scored" for verdict in judged):
        why = next((verdict.reason for verdict in judged if verdict.reason), "")
        text = f"the judge scored none of {len(judged)} messages{f'; the first: {why}' if why else ''}"
        return {"status": Status.FAILED, "error": text[:1000], "result": result}
    return {"status": Status.COMPLETED, "result": result}


def _lease() -> timedelta:
    """From one answer to the next: a call and its second try."""
    return timedelta(seconds=2 * settings.LLM_EVALUATION_DEADLINE + 60)
