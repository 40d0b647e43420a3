"""What a run would ask before it asks: calls, tokens, cost. Nothing is written, nothing is called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agents.llm import Label, LLMRequest, estimate_tokens, ledger
from agents.models import Message
from agents.text.fences import new_nonce
from evaluation.channels import channel_specs
from evaluation.idea_requests import listing_request
from evaluation.items import Open, context_of, groups, settle
from evaluation.judge import Question, build_request
from evaluation.models import EvaluationRun
from evaluation.planning import Plan, RunSpec, make_plan, new_run, repeated, subject_of
from evaluation.propositions import Proposition
from evaluation.scorers import SCORERS, ideas_quantity
from evaluation.scorers.base import Item, Subject
from evaluation.scorers.channel import ChannelSubject

OUTPUT_TOKENS_PER_CLAIM = 160  # a few sentences of reasoning; an assumption, said so where it is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Before a run; of an agent, or of a channel (the other name is empty).

    Tokens are characters / 4 for the prompt and an assumption for the answer; cost is None when unpriced."""

    agent: str
    channel: str
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
    for items, requests in _requests(plan):
        judgements += items
        free += items
        for request, asked in requests:
            sent, answered = estimate_tokens(request), asked * OUTPUT_TOKENS_PER_CLAIM
            price = ledger.estimate_cost(spec.judge_model, sent, answered)
            calls, free = calls + 1, free - asked
            tokens, output = tokens + sent, output + answered
            cost = None if cost is None or price is None else cost + price
    return Estimate(
        agent=spec.agent.slug if spec.agent else "",
        channel=spec.channel.slug if spec.channel else "",
        judge=spec.judge_model,
        judgements=judgements,
        free=max(0, free),
        calls=calls,
        input_tokens=tokens,
        output_tokens=output,
        cost_usd=cost,
    )


def estimate_channels(specs: Sequence[RunSpec]) -> list[Estimate]:
    """The channels that are measured with these agents, each once."""
    found = {channel_spec.target.pk: channel_spec for spec in specs for channel_spec, _ in channel_specs(spec)}
    return [estimate(spec) for spec in found.values()]


def _requests(plan: Plan) -> Iterator[tuple[int, list[tuple[LLMRequest, int]]]]:
    """Per dimension: how many judgements, and the calls for those that need a judge, with the number of answers each gives."""
    run = new_run(plan)
    subject, label = subject_of(run), Label(purpose="estimate")
    for dimension in plan.spec.own_dimensions:
        scorer = SCORERS[dimension]
        items = list(repeated(scorer.plan(subject, plan.propositions[dimension]), run.repeats))
        if scorer.not_evaluable(subject):
            yield len(items), []
        elif isinstance(subject, ChannelSubject) and dimension == "ideas_quantity":
            yield len(items), [request for item in items for request in _ideas(item.proposition, subject, run)]
        else:
            questions = _questions(scorer, items, subject, run, label)
            twice = 2 if run.double_check else 1
            yield (
                len(items),
                [(build_request(q), len(q.propositions) if n == 0 else 0) for q in questions for n in range(twice)],
            )


def _questions(
    scorer: Any, items: Sequence[Item], subject: Subject | ChannelSubject, run: EvaluationRun, label: Label
) -> Iterator[Question]:
    ids = {pk for item in items for pk in (item.message_id, item.compared_with_id) if pk is not None}
    messages = Message.objects.select_related("channel").in_bulk(list(ids))
    entries: list[Open[Item]] = []
    for item in items:
        message, earlier = messages.get(item.message_id or 0), messages.get(item.compared_with_id or 0)
        if settle(item.proposition, message, subject, earlier, run.additional_context) is None:
            entries.append(Open(item, item.proposition, message, earlier, item.repeat))
    for chunk in groups(entries, run.per_call):
        yield Question(
            propositions=tuple(entry.proposition for entry in chunk),
            context=context_of(scorer, subject, chunk[0], run.additional_context),
            label=label,
            advise=True,
            method=run.method,
        )


def _ideas(proposition: Proposition, subject: ChannelSubject, run: EvaluationRun) -> Iterator[tuple[LLMRequest, int]]:
    """One call per part, and one that collapses what they list: how long that list is nobody knows yet."""
    places = list(ideas_quantity.stretches(subject))
    for number, (first, last) in enumerate(places, 1):
        said = subject.said().filter(position__range=(first, last)).select_related("agent", "user")
        request = listing_request(
            name=subject.name,
            proposition=proposition,
            events=[subject.event(message) for message in said],
            part=(number, len(places)),
            label=Label(purpose="estimate"),
            model=run.judge,
            nonce=new_nonce(),
        )
        yield request, 1 if number == 1 else 0
        if number == 1:
            yield request, 0  # stands for the collapse
