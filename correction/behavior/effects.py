"""Measure whether an applied request changed what the agent does: a judge scores its trait on messages before and after the change.

People ask for it, a worker does it. All messages of an effect are judged and stored together. Interrupted work starts again under the
same work id, so that its cost includes every paid call.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from pydantic import BaseModel, Field, PrivateAttr

from agents.kit.llm import ledger
from agents.kit.models.lease import LeaseLost
from agents.kit.text.wording import counted, difference, money, signed
from agents.kit.work.queues import do_next, wake_workers
from agents.models import PersonaVersion
from agents.personas.persona import TraitValue
from correction.behavior.applying import BehaviorError
from correction.behavior.before_after import (
    BeforeAfter,
    MessageVerdict,
    Moments,
    Plan,
    judge_before_after,
    plan_before_after,
)
from correction.behavior.models import MESSAGES, MOST_MESSAGES, BehaviorEffect, BehaviorRequest
from correction.behavior.postponing import MOST_ATTEMPTS, over_budget
from correction.behavior.scope import holds_in, messages_within, neighbours_in_scope
from correction.behavior.trait_change import find_trait, stored_trait
from evaluation.propositions.traits import presence

MOST_VERSIONS = 500  # looked through in each direction; messages said so many changes away are no neighbours
Expected = Literal["more", "less", "otherwise"]
REVERTED, CHANGED = "it was reverted", "its trait was changed again"


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The time in which an applied request's trait was as the request made it, with the time before it.

    Attributes:
        ended: What ended it, e.g. ``it was reverted``; empty: it holds.
    """

    moments: Moments
    ended: str


def lifetime_of(request: BehaviorRequest) -> Lifetime:
    """Return the time around an applied request in which nothing else changed its trait, and what ended it (empty: it lasts).

    The versions of the persona tell it: those made by requests, people and imports. Where the request's own version is not known, only
    its revert ends the time, and it has no beginning.
    """
    assert request.applied_at is not None  # noqa: S101 (callers checked)
    version, reverted_at = request.persona_version, request.reverted_at
    if request.scope_key:
        return _lifetime_in_scope(request)
    if version is None:
        moments = Moments(at=request.applied_at, until=reverted_at)
        return Lifetime(moments, REVERTED if reverted_at else "")
    until = reverted_at
    ended = REVERTED if reverted_at else ""
    changed = _first_version_without_it(request, version.number)
    if changed is not None and (until is None or changed.created_at < until):
        until = changed.created_at
        is_revert = changed.note == f"revert of behaviour request {request.pk}"  # as `applying` notes it
        ended = REVERTED if is_revert else CHANGED
    since = _when_it_became_as_before(request, version.number)
    return Lifetime(Moments(at=request.applied_at, since=since, until=until, version=version.number), ended)


def _lifetime_in_scope(request: BehaviorRequest) -> Lifetime:
    """Return the lifetime of a request that holds in one channel or towards one person: other requests there tell it, not versions."""
    assert request.applied_at is not None  # noqa: S101 (callers checked)
    until = request.reverted_at
    ended = REVERTED if request.reverted_at else ""
    earlier, later = neighbours_in_scope(request)
    if later is not None and (until is None or later < until):
        until, ended = later, CHANGED
    return Lifetime(Moments(at=request.applied_at, since=earlier, until=until), ended)


def _first_version_without_it(request: BehaviorRequest, number: int) -> PersonaVersion | None:
    """Return the first version after this one in which the trait is not as the request made it; None where it always is."""
    after = stored_trait(request.trait_after)
    later = PersonaVersion.objects.filter(agent=request.agent_id, number__gt=number).order_by("number")
    for version in later.only("created_at", "traits", "note")[:MOST_VERSIONS].iterator():
        if _find_in_version(version, after) != after:
            return version
    return None


def _when_it_became_as_before(request: BehaviorRequest, number: int) -> datetime | None:
    """Return when the trait became what it was before the request; None where it always was, as far as 500 versions tell.

    None too where it was another in the version right before. Reads the versions before the request's own, newest first, up to the
    first in which the trait is another.
    """
    before, after = stored_trait(request.trait_before), stored_trait(request.trait_after)
    earlier = PersonaVersion.objects.filter(agent=request.agent_id, number__lt=number).order_by("-number")
    became = None  # when the oldest version so far was made that has the trait as it was before
    for version in earlier.only("created_at", "traits")[:MOST_VERSIONS].iterator():
        if _find_in_version(version, before or after) != before:
            return became
        became = version.created_at
    return None


def _find_in_version(version: PersonaVersion, like: TraitValue | None) -> TraitValue | None:
    """Return the trait of that name in a version of the persona."""
    if like is None:
        return None
    return find_trait(like.name, [TraitValue(**trait) for trait in version.traits])


class EffectEstimate(BaseModel):
    """The cost of judging; nothing for a judge on this machine."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: str | None = Field(description="US dollars; null = the judge has no price")

    def __str__(self) -> str:
        if not self.calls:
            return "no paid call"
        cost = "unpriced" if self.cost_usd is None else f"about ${float(self.cost_usd):.4f}"
        return f"{counted(self.calls, 'call')}, {cost}"


class EffectPlan(BaseModel):
    """The messages there are, what is missing, and what judging them would cost."""

    request: int
    expected: Expected = Field(description="of what the trait is about, after the request; otherwise = it was reworded")
    agent: str
    trait: str
    claim: str = Field(description="what is judged of each message")
    judge: str
    wanted: int = Field(ge=1, description="messages before and after")
    before: int = Field(
        description="messages there are before the change, as many as wanted at most; back to the last change of the trait"
    )
    after: int = Field(description="the same after it, until it was reverted or the trait changed again")
    waits: str = Field(description="what is missing, e.g. not yet: 3 of 10 messages since")
    estimate: EffectEstimate
    _plan: Plan = PrivateAttr()
    _name: str = PrivateAttr("")

    @classmethod
    def of_plan(cls, request: BehaviorRequest, plan: Plan, ended: str) -> EffectPlan:
        """Return the plan as it is shown and stored; `waits` says what is missing, also that no more will come.

        Args:
            ended: What ended the time in which its trait was as the request made it, e.g. ``it was reverted``; empty: it holds.
        """
        waits = plan.waits
        if ended and len(plan.after) < plan.wanted:
            waits = f"{len(plan.after)} of {plan.wanted} messages until {ended}: there will be no more"
        effect_plan = cls(
            request=request.pk,
            expected=_expected_change(stored_trait(request.trait_before), plan.trait.strength),
            agent=plan.agent.slug,
            trait=plan.trait.name,
            claim=presence(plan.trait).claim,
            judge=plan.judge,
            wanted=plan.wanted,
            before=len(plan.before),
            after=len(plan.after),
            waits=waits,
            estimate=EffectEstimate(
                calls=plan.calls,
                input_tokens=plan.input_tokens,
                output_tokens=plan.output_tokens,
                cost_usd=None if plan.cost_usd is None else str(plan.cost_usd),
            ),
        )
        effect_plan._plan = plan
        effect_plan._name = str(request)
        return effect_plan

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def why_not(self) -> str:
        """Return why it cannot be judged yet, with what is allowed; empty when it can."""
        if self.before and self.after:
            return ""
        return f"{self._name}: {self.waits}; allowed: when there are messages before and after the change"


def _expected_change(before: TraitValue | None, strength: float) -> Expected:
    """Return what a request asked for: a new trait is to show more, unless it is stopped."""
    if before is None:
        return "more" if strength > 0 else "less"
    if strength < before.strength:
        return "less"
    return "more" if strength > before.strength else "otherwise"


class JudgedMessage(BaseModel):
    message: int = Field(description="its id")
    sample: Literal["before", "after"]
    status: Literal["scored", "trivial", "unscored"]
    score: float | None = Field(description="0 to 9: how much it shows the trait; null = not scored")
    reason: str = Field(description="why it was not scored")
    justification: str | None = Field(description="the judge's; null = you may not read messages (agents.view_message)")


class EffectResult(EffectPlan):
    """The result of an evaluation. Messages that were not scored are in no mean."""

    as_requested: bool | None = Field(description="null = not known")
    verdict: Literal["more", "less", "no change shown", "not enough data"] = Field(
        description="of the 95 % interval of the difference"
    )
    reason: str = Field(description="why there is no difference, or no interval")
    mean_before: float | None = Field(description="0 to 9")
    mean_after: float | None = Field(description="0 to 9")
    difference: float | None = Field(description="of the means, after less before")
    interval: tuple[float, float] | None = Field(
        description="95 %: low, high; messages count as independent, and it is too narrow where neighbours are alike"
    )
    before_scored: int
    before_trivial: int
    before_unscored: int
    after_scored: int
    after_trivial: int
    after_unscored: int
    messages: list[JudgedMessage]
    actual_calls: int = Field(description="those of interrupted attempts included")
    actual_unpriced_calls: int = Field(description="of which the cost is not known")
    actual_cost_usd: str | None = Field(description="US dollars of the priced calls; null = none has a price")

    @classmethod
    def of(cls, plan: EffectPlan, before_after: BeforeAfter) -> EffectResult:
        """Return the result of judging a plan, figures rounded to two places.

        `as_requested` is None where there is not enough data, or neither more nor less was asked for. `actual_cost_usd` is None where no
        call has a price.
        """
        measured, spent = before_after.change, before_after.spent
        values = plan.model_dump() | {
            "as_requested": None,
            "verdict": before_after.verdict,
            "reason": before_after.reason,
            "mean_before": _rounded(measured.baseline),
            "mean_after": _rounded(measured.candidate),
            "difference": _rounded(measured.delta),
            "interval": None,
            "messages": [],
            "actual_calls": spent.calls,
            "actual_unpriced_calls": spent.unpriced,
            "actual_cost_usd": str(spent.cost_usd),
        }
        for sample, messages in (("before", before_after.before), ("after", before_after.after)):
            for status in ("scored", "trivial", "unscored"):
                values[f"{sample}_{status}"] = sum(message.verdict.status == status for message in messages)
            values["messages"] += [_judged_message(sample, message) for message in messages]
        if before_after.verdict != "not enough data" and plan.expected != "otherwise":
            values["as_requested"] = before_after.verdict == plan.expected
        if measured.interval is not None:
            values["interval"] = (round(measured.interval.low, 2), round(measured.interval.high, 2))
        if spent.calls and spent.unpriced == spent.calls:
            values["actual_cost_usd"] = None
        return cls.model_validate(values)

    @property
    def verdict_words(self) -> str:
        """Return the result in a sentence, e.g. ``As requested: more of it was asked for, the agent does more of it since.``"""
        sentence = f"{_EXPECTED_WORDS[self.expected]}, {_VERDICT_WORDS[self.verdict]}."
        if self.as_requested is None:
            return f"{sentence[0].upper()}{sentence[1:]}"
        return f"As requested: {sentence}" if self.as_requested else f"Not as requested: {sentence}"

    @property
    def difference_words(self) -> str:
        """``+4.2 (95 % interval +3.1 to +5.3 if messages are independent)``, or why there is none."""
        if self.difference is None:
            return f"none: {self.reason}" if self.reason else "none"
        points = signed(difference(self.mean_before, self.mean_after))
        if self.interval is None:
            return f"{points}, without an interval: {self.reason}"
        low, high = self.interval
        return f"{points} (95 % interval {signed(low)} to {signed(high)} if messages are independent)"

    @property
    def cost_words(self) -> str:
        """Return the cost: ``20 calls, $0.0123``."""
        cost = None if self.actual_cost_usd is None else float(self.actual_cost_usd)
        return f"{counted(self.actual_calls, 'call')}, {money(cost, self.actual_unpriced_calls)}"

    @property
    def first_reason(self) -> str:
        """Return why the first message that was not scored was not."""
        return next((row.reason for row in self.messages if row.status == "unscored"), "")


_EXPECTED_WORDS = {
    "more": "more of it was asked for",
    "less": "less of it was asked for",
    "otherwise": "it was reworded",
}
_VERDICT_WORDS = {
    "more": "the agent does more of it since",
    "less": "the agent does less of it since",
    "no change shown": "no change shows: the interval of the difference holds zero",
    "not enough data": "there are not enough data to say whether anything changed",
}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _judged_message(sample: str, of_message: MessageVerdict) -> dict[str, Any]:
    """Return the fields of a `JudgedMessage`, without a score where it was not scored; `sample` is ``before`` or ``after``."""
    verdict = of_message.verdict
    return {
        "message": of_message.message.pk,
        "sample": sample,
        "status": verdict.status,
        "score": verdict.value if verdict.status == "scored" else None,
        "reason": verdict.reason,
        "justification": verdict.justification,
    }


def result_of(effect: BehaviorEffect) -> EffectResult | None:
    """Return the result of an evaluation; None where it was not judged (yet)."""
    if not isinstance(effect.result, dict):
        return None
    return EffectResult.model_validate(effect.result)


def plan_request(*, request: BehaviorRequest, n: int = MESSAGES, model: str = "") -> EffectPlan:
    """Return what could be judged for a request, with its estimate; asks no model. `waits` says ``not yet: 3 of 10 messages since``.

    The messages after are those from the change until it was reverted or its trait was changed again in any way; those before go
    back to the change of that trait before. The judge does not read the request itself.

    Raises:
        BehaviorError: It was never applied, its agent is gone, or the message is that tells towards whom it holds.
        ValueError: `n` is out of range.
    """
    if not 1 <= n <= MOST_MESSAGES:
        raise ValueError(f"n {n}: allowed: 1 to {MOST_MESSAGES} messages before and after")
    if request.applied_at is None or not request.trait_after:
        raise BehaviorError(f"{request}: nothing was changed by it; allowed: a request that was applied")
    if request.agent is None:
        raise BehaviorError(f"{request}: its agent was deleted; allowed: a request whose agent there is")
    within = messages_within(request)
    if within is None:
        raise BehaviorError(f"{request}: it holds for {holds_in(request)}; allowed: a request whose message there is")
    lifetime = lifetime_of(request)
    plan = plan_before_after(
        agent=request.agent,
        trait=TraitValue(**request.trait_after),
        moments=lifetime.moments,
        within=within,
        n=n,
        model=model,
        unseen=() if request.message_id is None else (request.message_id,),
    )
    return EffectPlan.of_plan(request, plan, lifetime.ended)


Status = BehaviorEffect.Status
MOST_REPEATS = 3  # how often all messages may be paid for; then an interrupted evaluation ends


def queue_effect(
    *, request: BehaviorRequest, messages: int = MESSAGES, user: AbstractBaseUser | None = None
) -> BehaviorEffect:
    """Queue the judging of a request's trait on the messages before it and the next ones after it; return its row. Asks no model.

    Args:
        messages: Most messages before and after each, 1 to 100; fewer are judged where there are no more.

    Raises:
        BehaviorError: It can never be judged (see `plan_request`), there is nothing to judge yet, or it is being judged already.
        ValueError: `messages` is out of range.
    """
    plan = plan_request(request=request, n=messages)  # refuses what can never be judged
    if plan.why_not:  # there is no message before, or after, yet
        raise BehaviorError(plan.why_not)
    try:
        with transaction.atomic():
            effect: BehaviorEffect = BehaviorEffect.objects.create(
                request=request, messages=messages, judge=plan.judge, requested_by=user
            )
    except IntegrityError:
        raise BehaviorError(
            f"{request}: an evaluation of it is under way already; allowed: to wait until that has ended"
        ) from None
    transaction.on_commit(wake_workers)
    return effect


def work_one(*, owner: str) -> bool:
    """Judge the effect whose turn it is; return whether there was one."""
    return do_next(
        BehaviorEffect,
        lambda effect: _judge_effect(effect, owner),
        owner=owner,
        lease=_lease_for_one_answer(),
        attempts=MOST_ATTEMPTS,
    )


def _judge_effect(effect: BehaviorEffect, owner: str) -> dict[str, Any]:
    """Judge an effect with as many messages as there are; return the columns with which it ends.

    It waits where the budget is spent, and is given up where it was interrupted after so many paid calls that all its messages could
    have been judged three times. It failed where no message could be scored.

    Raises:
        LeaseLost: Another worker has it.
    """
    request = BehaviorRequest.objects.select_related("agent").get(pk=effect.request_id)
    if request.agent is not None and (paused := over_budget(request.agent, effect.judge)):
        return paused
    paid = ledger.totals(work_id=effect.work_id).calls
    messages_in_all = 2 * effect.messages  # before and after; each takes a call
    if paid >= MOST_REPEATS * messages_in_all:
        why = f"{paid} calls were paid for it, and it was interrupted each time: it is not repeated automatically"
        return {"status": Status.ERRORED, "error": why}
    try:
        plan = plan_request(request=request, n=effect.messages, model=effect.judge)
    except BehaviorError as error:
        return {"status": Status.CANCELLED, "error": str(error)}

    def heartbeat(done: int) -> None:
        """Keep the lease after each answer, however many messages there are."""
        if not effect.extend_lease(owner=owner, lease=_lease_for_one_answer()):
            raise LeaseLost("another worker has it")

    before_after = judge_before_after(plan.plan, work_id=effect.work_id, done=heartbeat)
    result = EffectResult.of(plan, before_after)
    ending = {"status": Status.COMPLETED, "result": result.model_dump(mode="json")}
    if not result.messages:
        ending |= {"status": Status.FAILED, "error": result.reason}
    elif not result.before_scored + result.after_scored:
        ending |= {"status": Status.FAILED, "error": _why_none_scored(result)}
    return ending


def _why_none_scored(result: EffectResult) -> str:
    """Return why the judge scored no message, by the first reason it gave."""
    text = f"the judge scored none of {len(result.messages)} messages"
    for message in result.messages:
        if message.reason:
            return f"{text}; the first: {message.reason}"[:1000]
    return text


def _lease_for_one_answer() -> timedelta:
    """Return a lease from one answer to the next: a call and its second try."""
    return timedelta(seconds=2 * settings.LLM_EVALUATION_DEADLINE + 60)
