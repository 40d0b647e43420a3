"""Whether an applied request changed what the agent does: a judge scores its trait on messages before the change and after it.

People ask for it, a worker does it. All messages of an effect are judged and stored together. Interrupted work starts again under the
same work id, so that its cost includes every paid call.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils import timezone
from rich import box
from rich.table import Table

from agents.commands import console_on, printable, snippet
from agents.llm import ledger
from agents.llm.endpoints import model_of
from agents.models import PersonaVersion, owner_name
from agents.work.lease import LeaseLost
from agents.work.queues import do_next, wake_workers
from correction.behavior.applying import BehaviorError
from correction.behavior.postponing import midnight, resume
from correction.behavior.rules import name_key, trait_from_json
from correction.costs import evaluation_over_budget
from correction.models import BehaviorEffect, BehaviorRequest
from evaluation.change.before_after import (
    MESSAGES,
    BeforeAfter,
    Moments,
    Plan,
    judge_before_after,
    plan_before_after,
)
from evaluation.wording import counted, judge_label, money

MOST_VERSIONS = 500  # looked through in each direction; messages said so many changes away are no neighbours
REVERTED, CHANGED = "it was reverted", "its trait was changed again"


def lasting(request: BehaviorRequest) -> tuple[Moments, str]:
    """The time of an applied request with that around it in which nothing else changed its trait, and what ended it (empty: it holds).

    The versions of the persona say so, whoever made them: requests, people, imports.
    """
    assert request.applied_at is not None  # noqa: S101 (callers checked)
    made = request.persona_version
    ends = [(request.reverted_at, REVERTED)] if request.reverted_at is not None else []
    if made is not None and (again := _changed_again(request, made.number)) is not None:
        ends.append(again)
    until, ended = min(ends, default=(None, ""))
    moments = Moments(
        at=request.applied_at,
        since=_changed_before(request, made.number) if made is not None else None,
        until=until,
        version=made.number if made is not None else None,
    )
    return moments, ended


def _changed_again(request: BehaviorRequest, number: int) -> tuple[datetime, str] | None:
    """When a later version had another such trait, or none, and how that is called."""
    later = PersonaVersion.objects.filter(agent=request.agent_id, number__gt=number).order_by("number")
    for at, note, traits in later.values_list("created_at", "note", "traits")[:MOST_VERSIONS].iterator():
        if _trait_in(traits, request.trait_after) != _values(request.trait_after):
            return at, REVERTED if note == f"revert of behaviour request {request.pk}" else CHANGED
    return None


def _changed_before(request: BehaviorRequest, number: int) -> datetime | None:
    """When the trait became what the request found."""
    became: datetime | None = None
    earlier = PersonaVersion.objects.filter(agent=request.agent_id, number__lt=number).order_by("-number")
    for at, traits in earlier.values_list("created_at", "traits")[:MOST_VERSIONS].iterator():
        if _trait_in(traits, request.trait_before or request.trait_after) != _values(request.trait_before):
            return became
        became = at
    return None


def _trait_in(traits: Iterable[dict[str, Any]], like: object) -> tuple[object, ...] | None:
    name = name_key(str(like["name"])) if isinstance(like, dict) else ""
    return _values(next((trait for trait in traits if name_key(str(trait["name"])) == name), None))


def _values(trait: object) -> tuple[object, ...] | None:
    if not isinstance(trait, dict):
        return None
    return tuple(trait.get(field) for field in ("name", "description", "sentiment", "strength"))


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
        if self.found.verdict == "not enough data" or self.change.expected == "otherwise":
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
        n: Messages before and after each, 1 to 100.
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
    return {
        "request": change.request.pk,
        "expected": change.expected,
        **change.plan.model_dump(),
        "waits": change.waits,
    }


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    """What came out."""
    return {
        "request": outcome.change.request.pk,
        "expected": outcome.change.expected,
        "as_requested": outcome.as_requested,
        **outcome.found.model_dump(),
    }


def _expected(request: BehaviorRequest) -> str:
    """Whether there is to be more or less of it. Without a trait before, one that is not stopped was asked for to show."""
    before, after = (
        trait_from_json(value).strength if value else None for value in (request.trait_before, request.trait_after)
    )
    if before is None or after is None:
        return "less" if not after else "more"
    return "less" if after < before else "more" if after > before else "otherwise"


logger = logging.getLogger(__name__)

Status = BehaviorEffect.Status
MOST_ATTEMPTS = 3  # claims of one effect before its crash is final
MOST_ANEW = 3  # how often all messages may have been paid for before it is not begun again
LONGEST_MODEL = 200  # characters
UNDER_WAY = "an evaluation of it is under way already; allowed: to wait until that has ended"
NOT_MEASURABLE = "allowed: when there are messages before and after the change"


def queue_effect(
    *, request: BehaviorRequest, messages: int = MESSAGES, user: AbstractBaseUser | None = None
) -> BehaviorEffect:
    """Have a worker judge a request's trait on the messages before it and the next ones after it. Asks no model.

    Args:
        request: An applied or reverted one.
        messages: Most messages before and after each, 1 to 100; fewer are judged where there are no more.
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
    except LeaseLost:
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
    """Judge the effect whose turn it is; return whether there was one."""
    return do_next(
        BehaviorEffect, lambda effect: _measured(effect, owner), owner=owner, lease=_lease(), attempts=MOST_ATTEMPTS
    )


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
            raise LeaseLost("another worker has it")

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
    if found.not_judged:
        return {"status": Status.FAILED, "error": found.not_judged, "result": result}
    if not any(row.status == "scored" for row in found.messages):
        why = next((row.reason for row in found.messages if row.reason), "")
        text = f"the judge scored none of {len(found.messages)} messages{f'; the first: {why}' if why else ''}"
        return {"status": Status.FAILED, "error": text[:1000], "result": result}
    return {"status": Status.COMPLETED, "result": result}


def _lease() -> timedelta:
    """From one answer to the next: a call and its second try."""
    return timedelta(seconds=2 * settings.LLM_EVALUATION_DEADLINE + 60)


_ASKED = {"more": "more of it was asked for", "less": "less of it was asked for", "otherwise": "it was reworded"}
_FOUND = {
    "more": "the agent does more of it since",
    "less": "the agent does less of it since",
    "no change shown": "no change shows: the interval of the difference holds zero",
    "not enough data": "there are not enough data to say whether anything changed",
}


def verdict_words(result: dict[str, Any]) -> str:
    """What came out in a sentence, e.g. ``As requested: more of it was asked for, the agent does more of it since.``"""
    as_requested = result["as_requested"]
    start = "" if as_requested is None else "As requested: " if as_requested else "Not as requested: "
    text = f"{start}{_ASKED[result['expected']]}, {_FOUND[result['verdict']]}"
    return f"{text[0].upper()}{text[1:]}."


def estimate_words(estimate: dict[str, Any]) -> str:
    """``20 calls, about $0.0123``; that nothing is paid for a judge on this machine; that there is no price."""
    if not estimate["calls"]:
        return "no paid call"
    cost = "unpriced" if estimate["cost_usd"] is None else f"about ${float(estimate['cost_usd']):.4f}"
    return f"{counted(estimate['calls'], 'call')}, {cost}"


def cost_words(result: dict[str, Any]) -> str:
    """What it took: ``20 calls, $0.0123``."""
    if not result["actual_calls"]:
        return "no paid call"
    cost = None if result["actual_cost_usd"] is None else float(result["actual_cost_usd"])
    return f"{counted(result['actual_calls'], 'call')}, {money(cost, result['actual_unpriced_calls'])}"


def show_plan(change: RequestedChange, out: Any) -> None:
    """Say before anything is asked what there is to judge, and what it will take."""
    plan = change.plan
    out.write(f"{plan.agent.slug}: {snippet(plan.trait.name)} ({_ASKED[change.expected]})")
    messages = f"{counted(len(plan.before), 'message')} before, {len(plan.after)} after"
    out.write(f"{messages}{f' ({change.waits})' if change.waits else ''}; judge: {judge_label(plan.judge)}")
    out.write(f"Estimate: {estimate_words(plan.estimate.model_dump())}")


def show_effect(effect: BehaviorEffect, out: Any) -> None:
    """What came out, for people; nothing where it was not judged."""
    result = effect.result
    if not isinstance(result, dict):
        return
    table = Table("", "Mean (0 to 9)", "Scored", "Unscored", box=box.SIMPLE)
    for side in ("before", "after"):
        mean, without = result[f"mean_{side}"], result[f"{side}_unscored"] + result[f"{side}_trivial"]
        table.add_row(side, _number(mean), str(result[f"{side}_scored"]), str(without))
    console_on(out).print(table)
    out.write(f"Difference: {printable(difference_words(result))}")
    if (unscored := result["before_unscored"] + result["after_unscored"]) and (why := first_reason(result)):
        out.write(f"{counted(unscored, 'message')} could not be scored; the first: {snippet(why)}")
    out.write(verdict_words(result))
    out.write(f"Cost: {cost_words(result)}")


def difference_words(result: dict[str, Any]) -> str:
    """``+4.20 (95 % interval +3.10 to +5.30 if messages are independent)``, or why there is none."""
    if result["difference"] is None:
        return f"none: {result['reason']}" if result["reason"] else "none"
    if result["interval"] is None:
        return f"{result['difference']:+.2f}, without an interval: {result['reason']}"
    low, high = result["interval"]
    return f"{result['difference']:+.2f} (95 % interval {low:+.2f} to {high:+.2f} if messages are independent)"


def first_reason(result: dict[str, Any]) -> str:
    """Why the first message that was not scored was not."""
    return next((str(row["reason"]) for row in result["messages"] if row["status"] == "unscored"), "")


def effect_json(effect: BehaviorEffect) -> dict[str, Any]:
    """The effect as the command prints it: how it ended, and the result's fields."""
    result = effect.result if isinstance(effect.result, dict) else {}
    return {"effect": effect.pk, "status": effect.status, "error": effect.error, **result}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
