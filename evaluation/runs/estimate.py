"""What an evaluation would need (judgements, calls, tokens, US dollars) before anything is asked, and what it used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from django.db import transaction
from pydantic import BaseModel

from agents.kit.llm import Label, LLMRequest, estimate_tokens, ledger
from agents.kit.llm.endpoints import provider_of
from agents.kit.text.fences import new_nonce
from agents.models import Agent, Message
from agents.turn.prompt import build_prompt, new_turn
from agents.turn.tools import tool_definitions
from evaluation.dimensions import COUNTED
from evaluation.judge.questions import Question, build_request
from evaluation.models import EvaluationRun
from evaluation.propositions.files import load_all
from evaluation.propositions.schema import Proposition
from evaluation.runs.ideas import BATCH, listing_request
from evaluation.runs.judging import Open, questions, settle
from evaluation.runs.planning import (
    AnswerLength,
    Plan,
    RunSpec,
    answer_length,
    channel_specs,
    make_plan,
    new_run,
    repeated,
    subject_of,
)
from evaluation.runs.simulating import simulation_spec
from evaluation.runs.summary import Spending, Usd
from evaluation.scorers import SCORERS, ReadsAhead, ideas_quantity
from evaluation.scorers.subjects import ChannelSubject, Ends, Item, Subject, said
from evaluation.simulation.conversations import TURN, Simulation, actor_of, prepare
from evaluation.simulation.situations import CALLS_PER_LINE, REPLY_TOKENS, Situation

IDEAS_PER_PART, TOKENS_PER_IDEA = 12, 40  # of a conversation; an assumption, too: how many there are is what is asked
COLLAPSE_TOKENS = 300  # of the instructions for collapsing a list


class Estimate(Spending):
    """Before a run; of an agent, or of a channel (the other name is empty).

    Tokens are characters / 4 for the prompt, and `output_tokens_per_claim` for each answered proposition; prompt caching is not assumed.
    The cost is None when unpriced.
    """

    agent: str
    channel: str
    judge: str
    judgements: int
    without_a_call: int
    output_tokens_per_claim: AnswerLength


class Call(NamedTuple):
    """A call that would be made: how many judgements it settles, and its tokens."""

    settles: int
    input_tokens: int
    output_tokens: int


def estimate(spec: RunSpec) -> Estimate:
    """What measuring this would need, without the channels of an agent."""
    return _estimate(make_plan(spec), answer_length(spec.judge_model), {})


def estimate_all(specs: Sequence[RunSpec]) -> list[Estimate]:
    """What measuring these would need, then what the channels of these agents would, each once.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    files, length, read = load_all(), cache(answer_length), dict[tuple[object, ...], Ends]()
    channels = {one.target.pk: one for spec in specs for one, _ in channel_specs(spec)}
    plans = (make_plan(spec, files=files) for spec in (*specs, *channels.values()))
    return [_estimate(plan, length(plan.spec.judge_model), read) for plan in plans]


def estimate_before(specs: Sequence[RunSpec]) -> list[Estimate] | None:
    """The same; None where the judge needs no network: its calls cost nothing."""
    return estimate_all(specs) if any(provider_of(spec.judge_model) == "anthropic" for spec in specs) else None


def _estimate(plan: Plan, length: AnswerLength, read: dict[tuple[object, ...], Ends]) -> Estimate:
    spec, run, nonce = plan.spec, new_run(plan), new_nonce()
    subject = subject_of(run)
    if isinstance(subject, Subject):
        subject.read = read
    judgements, calls = 0, list[Call]()
    for dimension in spec.own_dimensions:
        scorer = SCORERS[dimension]
        planned = scorer.plan(subject, plan.propositions[dimension])
        items = list(repeated((i for i in planned if not spec.swap_test or i.message_id is not None), run.repeats))
        judgements += len(items)
        if scorer.not_evaluable(subject):
            continue
        if isinstance(subject, ChannelSubject) and dimension in COUNTED:
            calls += [call for item in items for call in _ideas(item.proposition, subject, run, nonce)]
            continue
        for question in _questions(dimension, items, subject, run, nonce):
            calls += _asked(question, length.tokens)
    costs = [ledger.estimate_cost(spec.judge_model, c.input_tokens, c.output_tokens, batch=spec.batch) for c in calls]
    return Estimate(
        agent=spec.agent.slug if spec.agent else "",
        channel=spec.channel.slug if spec.channel else "",
        judge=spec.judge_model,
        judgements=judgements,
        without_a_call=max(0, judgements - sum(call.settles for call in calls)),
        calls=len(calls),
        input_tokens=sum(call.input_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        cost_usd=_all_of(costs),
        output_tokens_per_claim=length,
    )


def _all_of(costs: Iterable[Decimal | None]) -> Decimal | None:
    """The sum; one unpriced part leaves none."""
    priced = list(costs)
    return None if None in priced else sum(filter(None, priced), Decimal(0))


def _asked(question: Question, per_proposition: int) -> Iterator[Call]:
    number = len(question.propositions)
    sent, answered = estimate_tokens(build_request(question)), number * per_proposition
    yield Call(number, sent, answered)
    if question.double_check:  # goes on from the question and its answer
        yield Call(0, sent + answered, answered)


def _questions(
    dimension: str, items: Sequence[Item], subject: Subject | ChannelSubject, run: EvaluationRun, nonce: str
) -> Iterator[Question]:
    ids = {pk for item in items for pk in (item.message_id, item.compared_with_id) if pk is not None}
    messages = Message.objects.select_related("channel").in_bulk(list(ids))
    scorer = SCORERS[dimension]
    if isinstance(scorer, ReadsAhead):
        scorer.read_ahead(subject, messages.values())
    entries: list[Open[Item]] = []
    for item in items:
        message, earlier = messages.get(item.message_id or 0), messages.get(item.compared_with_id or 0)
        if settle(item.proposition, message, subject, earlier, run.additional_context) is None:
            entries.append(Open(item, item.proposition, message, earlier, item.repeat))
    asked = questions(
        entries, subject, run, dimension=dimension, nonce=nonce, label=lambda _: Label(purpose="estimate")
    )
    yield from (question for _, question in asked if question is not None)


def _ideas(proposition: Proposition, subject: ChannelSubject, run: EvaluationRun, nonce: str) -> Iterator[Call]:
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
            nonce=nonce,
        )
        yield Call(int(number == 1), estimate_tokens(request), IDEAS_PER_PART * TOKENS_PER_IDEA)
    for shown in range(IDEAS_PER_PART * len(places), 0, -BATCH):
        yield Call(0, COLLAPSE_TOKENS + shown * TOKENS_PER_IDEA, min(shown, BATCH) * TOKENS_PER_IDEA // 2)


def estimated(estimates: Sequence[Estimate]) -> Spending:
    """The sum of what was estimated; one unpriced part leaves no cost."""
    return Spending(
        **{name: sum(getattr(e, name) for e in estimates) for name in ("calls", "input_tokens", "output_tokens")},
        cost_usd=_all_of(e.cost_usd for e in estimates),
    )


# -- simulations
STAND_IN = ("word " * REPLY_TOKENS)[: REPLY_TOKENS * 4].strip()


class SimulationEstimate(BaseModel):
    """What `--json` prints. Tokens are characters / 4 for the prompts and assumptions for the answers; `cost_usd` is None when unpriced."""

    agent: str
    actor_model: str
    lines: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Usd


def estimate_simulation(
    spec: RunSpec, *, situations: Sequence[Situation], actor_model: str = "", repeats: int = 1
) -> tuple[SimulationEstimate, Estimate]:
    """Estimate what the actor would need, and the judge of what it says, if every line of the situations is answered once.

    Args:
        spec: What is to be measured, of an agent.
        actor_model: Default the agent's own model, else `ACTOR_MODEL`.
        repeats: How often each situation is simulated.
    """
    if spec.agent is None:
        raise ValueError(f"{spec.target} is a channel; allowed: an agent")
    model = actor_of(spec.agent, actor_model)
    with transaction.atomic():
        try:
            simulation, prompts = _stand_in(spec.agent, situations, model, repeats)
            judging = estimate(simulation_spec(spec, simulation))
        finally:
            transaction.set_rollback(True)
    lines, said = len(prompts) * repeats, REPLY_TOKENS * len(prompts) * repeats
    sent = CALLS_PER_LINE * repeats * sum(prompts) + said
    acting = SimulationEstimate(
        agent=spec.agent.slug,
        actor_model=model,
        lines=lines,
        calls=CALLS_PER_LINE * lines,
        input_tokens=sent,
        output_tokens=said,
        cost_usd=ledger.estimate_cost(model, sent, said),
    )
    return acting, judging


def _stand_in(agent: Agent, situations: Sequence[Situation], model: str, repeats: int) -> tuple[Simulation, list[int]]:
    """Store a simulation with a stand-in for each answer; return it, and the tokens of the prompt for each line of its first repeat."""
    ident, scenes, _ = prepare(agent, situations, model, repeats, reuse=None)
    prompts: list[int] = []
    for scene in scenes:
        for turn, text in enumerate(scene.situation.lines, 1):
            tags = {**scene.channel.tags, TURN: str(turn)}
            common: dict[str, Any] = {"channel": scene.channel, "synthetic": True, "tags": tags}
            line = Message.objects.create(position=2 * turn - 1, outsider=scene.situation.speaker, text=text, **common)
            if scene.repeat == 1:
                prompts.append(prompt_tokens(agent, line))
            Message.objects.create(position=2 * turn, agent=agent, text=STAND_IN, **common)
    messages = sum(len(scene.situation.lines) for scene in scenes)
    simulation = Simulation(
        id=ident, agent=agent, actor_model=model, persona_digest="", conversations=(), messages=messages
    )
    return simulation, prompts


def prompt_tokens(agent: Agent, line: Message) -> int:
    """Tokens of the prompt with which the agent's turn would begin after this line."""
    turn = new_turn(agent=agent, channel=line.channel, trigger=line, overrides={"stages": []}, preview=True)
    prompt = build_prompt(turn)
    request = LLMRequest(
        role="actor",
        task="turn",
        system=prompt.system,
        turns=(prompt.user,),
        tools=tool_definitions(),
        label=Label(purpose="estimate"),
    )
    return estimate_tokens(request)
