"""Did a behaviour change? One trait, judged on an agent's last messages before a moment and on the next ones after it.

The claim is that a message shows the trait, however strong it is to be, and the judge is not shown the persona: so that both sides are
judged by the same question, and nobody tells the judge what to expect: the message that asked for the change is not shown either.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from django.conf import settings

from agents.llm import Label, estimate_tokens, ledger
from agents.llm.endpoints import provider_of
from agents.llm.ledger import Totals
from agents.models import Agent, Message
from agents.persona import TraitLike
from agents.text.fences import new_nonce
from evaluation.before_context import just_before
from evaluation.before_sides import Moments, sides
from evaluation.judge.prompts import Context, Event, Window
from evaluation.judge.questions import Question, ask_all, build_request
from evaluation.judge.verdicts import Verdict, unscored
from evaluation.propositions.traits import presence
from evaluation.runs.budget import why_over_budget
from evaluation.runs.estimate import OUTPUT_TOKENS_PER_CLAIM
from evaluation.statistics.bootstrap import Observation, bootstrap_difference
from evaluation.statistics.estimates import Estimate

MESSAGES, MOST_MESSAGES = 10, 100  # of each side
PURPOSE = "before_after"


@dataclass(frozen=True, slots=True)
class Judged:
    """One message with what was said of it."""

    message: Message
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be judged.

    Attributes:
        wanted: Messages wanted of each side.
        before, after: Those there are, oldest first.
        unseen: Keys of messages that the judge is not shown.
        calls, input_tokens, output_tokens: What judging them would take; nothing for a judge on this machine.
        cost_usd: US dollars; None when unpriced.
    """

    agent: Agent
    trait: TraitLike
    judge: str
    wanted: int
    before: tuple[Message, ...]
    after: tuple[Message, ...]
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    unseen: frozenset[int] = field(default=frozenset())

    @property
    def waits(self) -> str:
        """What is missing, e.g. ``not yet: 3 of 10 messages since``; empty when it can be judged in full."""
        if len(self.after) < self.wanted:
            return f"not yet: {len(self.after)} of {self.wanted} messages since"
        return "" if self.before else "the agent said nothing before"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeAfter:
    """What came out: how much the trait shows, 0 to 9, before and after, and the difference of the means with its 95 % interval.

    The interval resamples messages as if each were independent of the others. Neighbours of one conversation are not: it is too
    narrow where they are alike.
    """

    plan: Plan
    before: tuple[Judged, ...]
    after: tuple[Judged, ...]
    difference: Estimate
    spent: Totals
    reason: str = ""  # why nothing was judged

    @property
    def verdict(self) -> str:
        """``more``, ``less``, ``no change shown`` (the interval holds zero), or ``cannot tell``."""
        interval = self.difference.interval
        if interval is None:
            return "cannot tell"
        return "more" if interval.low > 0 else "less" if interval.high < 0 else "no change shown"


def plan_before_after(
    *,
    agent: Agent,
    trait: TraitLike,
    moments: Moments,
    n: int = MESSAGES,
    model: str = "",
    unseen: Collection[int] = (),
) -> Plan:
    """What judging the last `n` messages before a change and the first `n` after it would take. Calls nothing.

    Args:
        agent: Whose messages: what it really said, nothing that was simulated.
        trait: What to look for.
        moments: When it was changed, and from when until when nothing else changed it.
        n: Messages of each side, 1 to 100.
        model: Overrides the configured judge.
        unseen: Keys of messages that the judge is not shown, such as the one that asked for the change.

    Raises:
        ValueError: `n` is out of range.
    """
    if not 1 <= n <= MOST_MESSAGES:
        raise ValueError(f"n {n}: allowed: 1 to {MOST_MESSAGES} messages of each side")
    judge, hidden = model or str(settings.JUDGE_MODEL), frozenset(unseen)
    before, after = sides(agent, moments, n)
    questions = list(_questions(agent, trait, (*before, *after), judge, Label(purpose="estimate"), hidden))
    tokens = [estimate_tokens(build_request(q)) for q in questions] if provider_of(judge) == "anthropic" else []
    costs = [ledger.estimate_cost(judge, sent, OUTPUT_TOKENS_PER_CLAIM) for sent in tokens]
    return Plan(
        agent=agent,
        trait=trait,
        judge=judge,
        wanted=n,
        before=before,
        after=after,
        calls=len(tokens),
        input_tokens=sum(tokens),
        output_tokens=len(tokens) * OUTPUT_TOKENS_PER_CLAIM,
        cost_usd=None if None in costs else sum((c for c in costs if c is not None), Decimal(0)),
        unseen=hidden,
    )


def judge_before_after(
    plan: Plan, *, work_id: str = "", done: Callable[[int], None] = lambda judged: None
) -> BeforeAfter:
    """Judge what was planned, also when fewer messages than wanted were said since; every call has its row in the ledger.

    Args:
        plan: What `plan_before_after` gave.
        work_id: Of the ledger rows; default one of its own.
        done: Called with the number of messages just judged.

    Returns:
        Scores, and what could not be scored with the reason. No difference without a score on each side, no interval with fewer than
        two on one.
    """
    work_id = work_id or f"{PURPOSE}:{secrets.token_hex(8)}"
    reason = ""
    if not plan.before or not plan.after:
        reason = plan.waits or "there is nothing to judge"
    elif over := why_over_budget(plan.agent, plan.judge):
        reason = over
    if reason:
        return BeforeAfter(
            plan=plan, before=(), after=(), difference=Estimate(None, None, 0, reason),
            spent=ledger.totals(work_id=work_id), reason=reason,
        )  # fmt: skip
    messages = (*plan.before, *plan.after)
    label = Label(purpose=PURPOSE, dimension="adherence", agent_id=plan.agent.pk, work_id=work_id)
    verdicts = _verdicts(plan, messages, label, done)
    before, after = (tuple(Judged(m, verdicts[m.pk]) for m in side) for side in (plan.before, plan.after))
    difference = bootstrap_difference(_observations(before), _observations(after))
    return BeforeAfter(
        plan=plan, before=before, after=after, difference=difference, spent=ledger.totals(work_id=work_id)
    )


def _questions(
    agent: Agent, trait: TraitLike, messages: Iterable[Message], judge: str, label: Label, unseen: frozenset[int]
) -> Iterable[Question]:
    proposition, nonce, judged = presence(trait), new_nonce(), list(messages)
    said_before = just_before(agent, judged, unseen)
    for message in judged:
        context = Context(
            agent_name=agent.display_name,
            window=Window(said_before[message.pk], 0, ()),
            message=Event("action", agent.display_name, message.text),
            channel_name=str(message.channel),
        )
        yield Question(propositions=(proposition,), context=context, label=label, model=judge, nonce=nonce, alone=True)


def _verdicts(plan: Plan, messages: Sequence[Message], label: Label, done: Callable[[int], None]) -> dict[int, Verdict]:
    questions = list(_questions(plan.agent, plan.trait, messages, plan.judge, label, plan.unseen))
    about = {id(question): message.pk for question, message in zip(questions, messages, strict=True)}
    found = {message.pk: unscored("not judged") for message in messages}
    for answered in ask_all(questions, deadline=settings.LLM_EVALUATION_DEADLINE):
        if answered.verdicts:
            found[about[id(answered.question)]] = answered.verdicts[0]
            done(1)
    return found


def _observations(rows: Iterable[Judged]) -> list[Observation]:
    return [
        Observation(float(row.verdict.value), 1.0, f"message:{row.message.pk}")
        for row in rows
        if row.verdict.status == "scored" and row.verdict.value is not None
    ]
