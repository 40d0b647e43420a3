"""Estimate what an evaluation would need before anything is asked: judgements, calls, tokens, US dollars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from agents.llm import Label, estimate_tokens, ledger
from agents.llm.endpoints import provider_of
from agents.models import Message
from agents.text.fences import new_nonce
from evaluation.judge.questions import Question, build_request
from evaluation.models import EvaluationRun
from evaluation.propositions.schema import Proposition
from evaluation.runs.budget import ASSUMED, AnswerLength, answer_lengths
from evaluation.runs.ideas import BATCH, listing_request
from evaluation.runs.judging import Open, context_of, groups, settle, subject_of
from evaluation.runs.planning import Plan, RunSpec, channel_specs, make_plan, new_run, repeated
from evaluation.scorers import SCORERS, ideas_quantity
from evaluation.scorers.subjects import ChannelSubject, Item, Subject, said

IDEAS_PER_PART, TOKENS_PER_IDEA = 12, 40  # of a conversation; an assumption, too: how many there are is what is asked
COLLAPSE_TOKENS = 300  # of the instructions for collapsing a list


class Call(NamedTuple):
    """A call that would be made: how many judgements it settles, and its tokens."""

    settles: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Before a run; of an agent, or of a channel (the other name is empty).

    Tokens are characters / 4 for the prompt, and `answers` (per dimension in which a judge would be asked) for each answered proposition;
    cost is None when unpriced.
    """

    agent: str
    channel: str
    judge: str
    judgements: int
    free: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    answers: Mapping[str, AnswerLength]


def estimate(spec: RunSpec) -> Estimate:
    """What capturing this would need. Prompt caching is not assumed.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    plan = make_plan(spec)
    judgements = free = calls = tokens = output = 0
    cost: Decimal | None = Decimal(0)
    measured, answers = answer_lengths(spec.judge_model), dict[str, AnswerLength]()
    for dimension, items, planned in _calls(plan, measured):
        judgements += items
        free += items
        for call in planned:
            price = ledger.estimate_cost(spec.judge_model, call.input_tokens, call.output_tokens, batch=spec.batch)
            calls, free = calls + 1, free - call.settles
            tokens, output = tokens + call.input_tokens, output + call.output_tokens
            cost = None if cost is None or price is None else cost + price
        if planned and dimension != ideas_quantity.DIMENSION:
            answers[dimension] = measured.get(dimension, ASSUMED)
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
        answers=answers,
    )


def estimate_before(specs: Sequence[RunSpec]) -> list[Estimate] | None:
    """What capturing these would need, agents first; None where the judge needs no network: its calls cost nothing.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    if not any(provider_of(spec.judge_model) == "anthropic" for spec in specs):
        return None
    return [*(estimate(spec) for spec in specs), *estimate_channels(specs)]


def estimate_channels(specs: Sequence[RunSpec]) -> list[Estimate]:
    """The channels that are measured with these agents, each once."""
    by_channel = {channel_spec.target.pk: channel_spec for spec in specs for channel_spec, _ in channel_specs(spec)}
    return [estimate(spec) for spec in by_channel.values()]


def _calls(plan: Plan, lengths: Mapping[str, AnswerLength]) -> Iterator[tuple[str, int, list[Call]]]:
    """Per dimension: its id, how many judgements, and the calls for those that need a judge."""
    run = new_run(plan)
    subject, label = subject_of(run), Label(purpose="estimate")
    for dimension in plan.spec.own_dimensions:
        scorer = SCORERS[dimension]
        items = list(repeated(scorer.plan(subject, plan.propositions[dimension]), run.repeats))
        if scorer.not_evaluable(subject):
            yield dimension, len(items), []
        elif isinstance(subject, ChannelSubject) and dimension == ideas_quantity.DIMENSION:
            yield dimension, len(items), [call for item in items for call in _ideas(item.proposition, subject, run)]
        else:
            questions = _questions(scorer, items, subject, run, label)
            tokens = lengths.get(dimension, ASSUMED).tokens
            yield dimension, len(items), [call for question in questions for call in _asked(question, tokens)]


def _asked(question: Question, per_proposition: int) -> Iterator[Call]:
    number = len(question.propositions)
    sent, answered = estimate_tokens(build_request(question)), number * per_proposition
    yield Call(number, sent, answered)
    if question.double_check:  # goes on from the question and its answer
        yield Call(0, sent + answered, answered)


def _questions(
    scorer: Any, items: Sequence[Item], subject: Subject | ChannelSubject, run: EvaluationRun, label: Label
) -> Iterator[Question]:
    ids = {pk for item in items for pk in (item.message_id, item.compared_with_id) if pk is not None}
    messages = Message.objects.select_related("channel").in_bulk(list(ids))
    if read_ahead := getattr(scorer, "read_ahead", None):
        read_ahead(subject, messages.values())
    entries: list[Open[Item]] = []
    for item in items:
        message, earlier = messages.get(item.message_id or 0), messages.get(item.compared_with_id or 0)
        if settle(item.proposition, message, subject, earlier, run.additional_context) is None:
            entries.append(Open(item, item.proposition, message, earlier, item.repeat))
    for chunk, _ in groups(entries, run.per_call):
        context = context_of(scorer, subject, chunk[0], run.additional_context)
        if not any(text.strip() for text in context.judged_texts()):
            continue
        yield Question(
            propositions=tuple(entry.proposition for entry in chunk),
            context=context,
            label=label,
            double_check=run.double_check,
            advise=True,
            method=run.method,
        )


def _ideas(proposition: Proposition, subject: ChannelSubject, run: EvaluationRun) -> Iterator[Call]:
    """One call per part, then those that collapse what they list: how long that list will be is not known yet."""
    places = list(ideas_quantity.stretches(subject))
    label = Label(purpose="estimate")
    for number, (first, last) in enumerate(places, 1):
        messages = said(subject.said().filter(position__range=(first, last)))
        request = listing_request(
            name=subject.name,
            proposition=proposition,
            events=[subject.event(message) for message in messages],
            part=(number, len(places)),
            label=label,
            model=run.judge,
            nonce=new_nonce(),
        )
        yield Call(int(number == 1), estimate_tokens(request), IDEAS_PER_PART * TOKENS_PER_IDEA)
    for shown in range(IDEAS_PER_PART * len(places), 0, -BATCH):
        yield Call(0, COLLAPSE_TOKENS + shown * TOKENS_PER_IDEA, min(shown, BATCH) * TOKENS_PER_IDEA // 2)
