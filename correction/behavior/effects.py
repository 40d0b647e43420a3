"""Whether an applied request changed what the agent does: a judge scores its trait on messages before the change and after it.

People ask for it, a worker does it. All messages of an effect are judged and stored together. Interrupted work starts again under the
same work id, so that its cost includes every paid call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from pydantic import BaseModel, Field, PrivateAttr

from agents.kit.llm import ledger
from agents.kit.models.lease import LeaseLost
from agents.kit.text.wording import counted, money
from agents.kit.work.queues import do_next, wake_workers
from agents.models import PersonaVersion
from agents.personas.persona import TraitValue
from correction.behavior.applying import BehaviorError
from correction.behavior.before_after import BeforeAfter, Judged, Moments, Plan, judge_before_after, plan_before_after
from correction.behavior.models import MESSAGES, MOST_MESSAGES, BehaviorEffect, BehaviorRequest
from correction.behavior.postponing import MOST_ATTEMPTS, over_budget
from correction.behavior.scope import holds_in
from correction.behavior.trait_change import find_trait, stored_trait
from evaluation.propositions.traits import presence

MOST_VERSIONS = 500  # looked through in each direction; messages said so many changes away are no neighbours
Expected = Literal["more", "less", "otherwise"]
REVERTED, CHANGED = "it was reverted", "its trait was changed again"


def lasting(request: BehaviorRequest) -> tuple[Moments, str]:
    """The time of an applied request with that around it in which nothing else changed its trait, and what ended it (empty: it holds).

    The versions of the persona say so: those made by requests, people and imports.
    """
    assert request.applied_at is not None  # noqa: S101 (callers checked)
    made, reverted = request.persona_version, request.reverted_at
    if made is None:
        return Moments(at=request.applied_at, until=reverted), REVERTED if reverted else ""
    before, after = stored_trait(request.trait_before), stored_trait(request.trait_after)
    versions = PersonaVersion.objects.filter(agent=request.agent_id)
    later = versions.filter(number__gt=made.number).order_by("number").values_list("created_at", "traits", "note")
    ends = [(reverted, REVERTED)] if reverted else []
    for at, traits, note in later[:MOST_VERSIONS].iterator():
        if _trait_in(traits, after) != after:
            ends.append((at, REVERTED if note == f"revert of behaviour request {request.pk}" else CHANGED))
            break
    until, ended = min(ends, default=(None, ""))
    became = since = None  # when the trait became what the request was proposed for
    earlier = versions.filter(number__lt=made.number).order_by("-number").values_list("created_at", "traits")
    for at, traits in earlier[:MOST_VERSIONS].iterator():
        if _trait_in(traits, before or after) != before:
            since = became
            break
        became = at
    return Moments(at=request.applied_at, since=since, until=until, version=made.number), ended


def _trait_in(traits: Iterable[dict[str, Any]], like: TraitValue | None) -> TraitValue | None:
    return find_trait(like.name, [TraitValue(**trait) for trait in traits]) if like is not None else None


class EffectEstimate(BaseModel):
    """What judging would take; nothing for a judge on this machine."""

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
        """`ended`: what ended the time in which its trait was as the request made it, e.g. ``it was reverted``; empty: it holds."""
        before, after, waits = stored_trait(request.trait_before), plan.trait.strength, plan.waits
        was = (
            before.strength if before is not None else after - 1 if after else 1
        )  # a new one is to show unless it is stopped
        if ended and len(plan.after) < plan.wanted:  # no more messages will come
            waits = f"{len(plan.after)} of {plan.wanted} messages until {ended}: there will be no more"
        shown = cls(
            request=request.pk,
            expected="less" if after < was else "more" if after > was else "otherwise",
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
        shown._plan, shown._name = plan, str(request)
        return shown

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def why_not(self) -> str:
        """Why it cannot be judged yet, with what is allowed; empty when it can."""
        allowed = "allowed: when there are messages before and after the change"
        return "" if self.before and self.after else f"{self._name}: {self.waits}; {allowed}"


class JudgedMessage(BaseModel):
    message: int = Field(description="its id")
    sample: Literal["before", "after"]
    status: Literal["scored", "trivial", "unscored"]
    score: float | None = Field(description="0 to 9: how much it shows the trait; null = not scored")
    reason: str = Field(description="why it was not scored")
    justification: str | None = Field(description="the judge's; null = you may not read messages (agents.view_message)")


class EffectResult(EffectPlan):
    """What came out. What was not scored is in no mean."""

    as_requested: bool | None = Field(description="null = it cannot be told")
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
    def of(cls, plan: EffectPlan, judged: BeforeAfter) -> EffectResult:
        samples: dict[Literal["before", "after"], Sequence[Judged]] = {"before": judged.before, "after": judged.after}
        sure = judged.verdict != "not enough data" and plan.expected != "otherwise"
        measured, interval, spent = judged.change, judged.change.interval, judged.spent
        counts = {
            f"{sample}_{status}": sum(row.verdict.status == status for row in rows)
            for sample, rows in samples.items()
            for status in ("scored", "trivial", "unscored")
        }
        return cls.model_validate(
            {
                **plan.model_dump(),
                **counts,
                "as_requested": judged.verdict == plan.expected if sure else None,
                "verdict": judged.verdict,
                "reason": judged.reason,
                "mean_before": None if measured.baseline is None else round(measured.baseline, 2),
                "mean_after": None if measured.candidate is None else round(measured.candidate, 2),
                "difference": None if measured.delta is None else round(measured.delta, 2),
                "interval": (round(interval.low, 2), round(interval.high, 2)) if interval else None,
                "messages": [_judged(sample, row) for sample, rows in samples.items() for row in rows],
                "actual_calls": spent.calls,
                "actual_unpriced_calls": spent.unpriced,
                "actual_cost_usd": None if spent.unpriced and spent.unpriced == spent.calls else str(spent.cost_usd),
            }
        )

    @property
    def verdict_words(self) -> str:
        """What came out in a sentence, e.g. ``As requested: more of it was asked for, the agent does more of it since.``"""
        start = {None: "", True: "As requested: ", False: "Not as requested: "}[self.as_requested]
        text = f"{start}{_ASKED[self.expected]}, {_CAME_OUT[self.verdict]}"
        return f"{text[0].upper()}{text[1:]}."

    @property
    def difference_words(self) -> str:
        """``+4.20 (95 % interval +3.10 to +5.30 if messages are independent)``, or why there is none."""
        if self.difference is None:
            return f"none: {self.reason}" if self.reason else "none"
        if self.interval is None:
            return f"{self.difference:+.2f}, without an interval: {self.reason}"
        low, high = self.interval
        return f"{self.difference:+.2f} (95 % interval {low:+.2f} to {high:+.2f} if messages are independent)"

    @property
    def cost_words(self) -> str:
        """What it took: ``20 calls, $0.0123``."""
        cost = None if self.actual_cost_usd is None else float(self.actual_cost_usd)
        return f"{counted(self.actual_calls, 'call')}, {money(cost, self.actual_unpriced_calls)}"

    @property
    def first_reason(self) -> str:
        """Why the first message that was not scored was not."""
        return next((row.reason for row in self.messages if row.status == "unscored"), "")


_ASKED = {"more": "more of it was asked for", "less": "less of it was asked for", "otherwise": "it was reworded"}
_CAME_OUT = {
    "more": "the agent does more of it since",
    "less": "the agent does less of it since",
    "no change shown": "no change shows: the interval of the difference holds zero",
    "not enough data": "there are not enough data to say whether anything changed",
}


def _judged(sample: Literal["before", "after"], row: Judged) -> JudgedMessage:
    verdict = row.verdict
    return JudgedMessage(
        message=row.message.pk,
        sample=sample,
        status=verdict.status,
        score=verdict.value if verdict.status == "scored" else None,
        reason=verdict.reason,
        justification=verdict.justification,
    )


def result_of(effect: BehaviorEffect) -> EffectResult | None:
    """What came out of an evaluation; None where it was not judged (yet)."""
    return EffectResult.model_validate(effect.result) if isinstance(effect.result, dict) else None


def plan_request(*, request: BehaviorRequest, n: int = MESSAGES, model: str = "") -> EffectPlan:
    """What could be judged for a request, with its estimate; asks no model. `waits` says ``not yet: 3 of 10 messages since``.

    The messages after are those from the change until it was reverted or its trait was changed again in any way; those before go
    back to the change of that trait before. The judge does not read the request itself.

    Raises:
        BehaviorError: It was never applied, or its agent is gone.
        ValueError: `n` is out of range.
    """
    if not 1 <= n <= MOST_MESSAGES:
        raise ValueError(f"n {n}: allowed: 1 to {MOST_MESSAGES} messages before and after")
    if request.applied_at is None or not request.trait_after:
        raise BehaviorError(f"{request}: nothing was changed by it; allowed: a request that was applied")
    if request.scope_key:
        raise BehaviorError(
            f"{request}: it holds {holds_in(request)}; allowed: a request that changed the whole persona"
        )
    if request.agent is None:
        raise BehaviorError(f"{request}: its agent was deleted; allowed: a request whose agent there is")
    trait = TraitValue(**request.trait_after)
    moments, ended = lasting(request)
    asked = () if request.message_id is None else (request.message_id,)
    plan = plan_before_after(agent=request.agent, trait=trait, moments=moments, n=n, model=model, unseen=asked)
    return EffectPlan.of_plan(request, plan, ended)


Status = BehaviorEffect.Status
MOST_REPEATS = 3  # how often all messages may be paid for; then an interrupted evaluation ends


def queue_effect(
    *, request: BehaviorRequest, messages: int = MESSAGES, user: AbstractBaseUser | None = None
) -> BehaviorEffect:
    """Have a worker judge a request's trait on the messages before it and the next ones after it. Asks no model.

    Args:
        messages: Most messages before and after each, 1 to 100; fewer are judged where there are no more.

    Raises:
        BehaviorError: It was never applied, its agent is gone, there is nothing to judge yet, or it is being judged already.
        ValueError: `messages` is out of range.
    """
    plan = plan_request(request=request, n=messages)
    if plan.why_not:
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
        BehaviorEffect, lambda effect: _measured(effect, owner), owner=owner, lease=_lease(), attempts=MOST_ATTEMPTS
    )


def _measured(effect: BehaviorEffect, owner: str) -> dict[str, Any]:
    """Judge it with as many messages as there are; how the work ends, as the columns of the effect."""
    request = BehaviorRequest.objects.select_related("agent").get(pk=effect.request_id)
    if request.agent is not None and (paused := over_budget(request.agent, effect.judge)):
        return paused
    paid = ledger.totals(work_id=effect.work_id).calls
    if paid >= MOST_REPEATS * 2 * effect.messages:
        why = f"{paid} calls were paid for it, and it was interrupted each time: it is not repeated automatically"
        return {"status": Status.ERRORED, "error": why}

    def heartbeat(judged: int) -> None:
        if not effect.extend_lease(owner=owner, lease=_lease()):
            raise LeaseLost("another worker has it")

    try:
        plan = plan_request(request=request, n=effect.messages, model=effect.judge)
    except BehaviorError as gone:
        return {"status": Status.CANCELLED, "error": str(gone)}
    result = EffectResult.of(plan, judge_before_after(plan.plan, work_id=effect.work_id, done=heartbeat))
    stored = {"result": result.model_dump(mode="json")}
    if not result.messages:
        return {"status": Status.FAILED, "error": result.reason, **stored}
    if not result.before_scored + result.after_scored:
        why = next((row.reason for row in result.messages if row.reason), "")
        text = f"the judge scored none of {len(result.messages)} messages{f'; the first: {why}' if why else ''}"
        return {"status": Status.FAILED, "error": text[:1000], **stored}
    return {"status": Status.COMPLETED, **stored}


def _lease() -> timedelta:
    """From one answer to the next: a call and its second try."""
    return timedelta(seconds=2 * settings.LLM_EVALUATION_DEADLINE + 60)
