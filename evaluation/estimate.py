"""What a run would ask before it asks: calls, tokens, cost. Nothing is written, nothing is called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from agents.llm import Label, estimate_tokens, ledger
from agents.models import Message
from agents.persona import render_persona
from evaluation.execution import Open, groups, settle
from evaluation.judge import Question, build_request
from evaluation.planning import Plan, RunSpec, make_plan
from evaluation.scorers import SCORERS
from evaluation.scorers.base import Item, Subject

OUTPUT_TOKENS_PER_CLAIM = 160  # a few sentences of reasoning; an assumption, said so where it is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Before a run. Tokens are characters / 4 for the prompt and an assumption for the answer; cost is None when unpriced."""

    agent: str
    judge: str
    judgements: int
    free: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None


def estimate(spec: RunSpec) -> Estimate:
    """What capturing this would need. Prompt caching is not assumed.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    plan = make_plan(spec)
    judgements = free = calls = tokens = output = 0
    cost: Decimal | None = Decimal(0)
    for items, questions in _questions(plan):
        judgements += items
        free += items
        for question in questions:
            asked = len(question.propositions)
            sent, answered = estimate_tokens(build_request(question)), asked * OUTPUT_TOKENS_PER_CLAIM
            price = ledger.estimate_cost(spec.judge_model, sent, answered)
            calls, free = calls + 1, free - asked
            tokens, output = tokens + sent, output + answered
            cost = None if cost is None or price is None else cost + price
    return Estimate(
        agent=spec.agent.slug,
        judge=spec.judge_model,
        judgements=judgements,
        free=free,
        calls=calls,
        input_tokens=tokens,
        output_tokens=output,
        cost_usd=cost,
    )


def _questions(plan: Plan) -> Iterator[tuple[int, list[Question]]]:
    """Per dimension: how many judgements, and the calls for those that need a judge."""
    spec = plan.spec
    persona = render_persona(system_prompt=spec.agent.system_prompt, traits=spec.agent.traits.all())
    subject = Subject(spec.agent, persona, spec.window, spec.where, spec.samples, spec.seed)
    for dimension in spec.dimensions:
        scorer = SCORERS[dimension]
        items: Sequence[Item] = scorer.plan(subject, plan.propositions[dimension])
        if scorer.not_evaluable(subject):
            yield len(items), []
            continue
        messages = Message.objects.select_related("channel").in_bulk(
            [i.message_id for i in items if i.message_id is not None]
        )
        entries: list[Open[Item]] = []
        for item in items:
            message = messages.get(item.message_id or 0)
            if settle(item.proposition, message, subject) is None:
                entries.append((item, item.proposition, message))
        label = Label(purpose="estimate")
        yield (
            len(items),
            [
                Question(
                    propositions=tuple(p for _, p, _ in chunk),
                    context=scorer.context(subject, chunk[0][1], chunk[0][2]),
                    label=label,
                )
                for chunk in groups(entries, spec.per_call)
            ],
        )
