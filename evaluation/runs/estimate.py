"""Estimate what an evaluation would need (judgements, calls, tokens, US dollars) before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from django.db import transaction
from pydantic import BaseModel, Field

from agents.kit.llm import Label, LLMRequest, estimate_tokens, ledger
from agents.kit.llm.providers import is_remote
from agents.kit.text.fences import new_nonce
from agents.models import Agent, Message
from agents.turn.prompt import build_prompt, new_turn
from agents.turn.tools import tool_definitions
from evaluation.dimensions import COUNTED
from evaluation.judge.examples import load_examples
from evaluation.judge.questions import Question, build_request
from evaluation.models import EvaluationRun
from evaluation.propositions.files import load_all
from evaluation.propositions.schema import Proposition
from evaluation.runs.ideas import IDEAS_COMPARED_AT_ONCE, listing_request
from evaluation.runs.judging import OpenItem, questions, settle
from evaluation.runs.numbers import Spending, Usd
from evaluation.runs.planning import (
    AnswerLength,
    Plan,
    answer_length,
    channel_specs,
    make_plan,
    new_run,
    repeated,
    subject_of,
)
from evaluation.runs.simulating import simulation_spec
from evaluation.runs.spec import RunSpec
from evaluation.scorers import SCORERS, ReadsAhead, ideas_quantity
from evaluation.scorers.reading import Ends, read_plain_messages
from evaluation.scorers.subjects import ChannelSubject, Item, Subject
from evaluation.simulation.conversations import TURN, Simulation, actor_of, prepare
from evaluation.simulation.situations import CALLS_PER_LINE, REPLY_TOKENS, Situation

IDEAS_PER_PART = 12  # of a conversation; an assumption: how many there are is what is asked
TOKENS_PER_IDEA = 40  # an assumption
COLLAPSE_TOKENS = 300  # of the instructions for collapsing a list


class Estimate(Spending):
    """Before a run; of an agent, or of a channel (the other name is empty).

    Tokens are characters / 4 for the prompt, and `output_tokens_per_claim` for each answered proposition; prompt caching is not assumed.
    The cost is None when unpriced. `counts_ideas`: whether calls to list ideas are among them.
    """

    agent: str
    channel: str
    judge: str
    judgements: int
    without_a_call: int
    output_tokens_per_claim: AnswerLength
    counts_ideas: bool = Field(False, exclude=True)


class Call(NamedTuple):
    """A call that would be made: how many judgements it settles, and its tokens."""

    settles: int
    input_tokens: int
    output_tokens: int


def estimate(spec: RunSpec) -> Estimate:
    """Estimate what measuring this would need, without the channels of an agent."""
    return _estimate(make_plan(spec), answer_length(spec.judge_model), {})


def estimate_all(specs: Sequence[RunSpec]) -> list[Estimate]:
    """Estimate what measuring these would need, then what the channels of these agents would, each once.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    files = load_all()
    length_of = cache(answer_length)
    window_ends: dict[tuple[object, ...], Ends] = {}
    channels: dict[int, RunSpec] = {}
    for spec in specs:
        for channel_spec, _ in channel_specs(spec):
            channels[channel_spec.target.pk] = channel_spec
    estimates: list[Estimate] = []
    for spec in (*specs, *channels.values()):
        plan = make_plan(spec, files=files)
        estimates.append(_estimate(plan, length_of(spec.judge_model), window_ends))
    return estimates


def estimate_before(specs: Sequence[RunSpec]) -> list[Estimate] | None:
    """Estimate like `estimate_all`; None where the judge needs no network: its calls cost nothing."""
    if any(is_remote(spec.judge_model) for spec in specs):
        return estimate_all(specs)
    return None


def _estimate(plan: Plan, length: AnswerLength, window_ends: dict[tuple[object, ...], Ends]) -> Estimate:
    """Estimate what a planned run would need, by making all its questions; nothing is asked or stored.

    Args:
        length: How long the judge's answers are taken to be.
        window_ends: Where windows end that were read before; what is read now is added.
    """
    spec = plan.spec
    run = new_run(plan)
    subject = subject_of(run)
    if isinstance(subject, Subject):
        subject.read = window_ends
    judgements = 0
    calls: list[Call] = []
    for dimension in spec.own_dimensions:
        planned = SCORERS[dimension].plan(subject, plan.propositions[dimension])
        if spec.swap_test:  # only a text that was said in one message can be swapped
            planned = [item for item in planned if item.message_id is not None]
        items = list(repeated(planned, run.repeats))
        judgements += len(items)
        calls += _calls_of_dimension(dimension, items, subject, run, length)
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
        cost_usd=ledger.sum_if_all_priced(costs),
        output_tokens_per_claim=length,
        counts_ideas=any(dimension in COUNTED for dimension in spec.own_dimensions),
    )


def _calls_of_dimension(
    dimension: str, items: Sequence[Item], subject: Subject | ChannelSubject, run: EvaluationRun, length: AnswerLength
) -> list[Call]:
    """Return the calls that judging these items would make; none where the dimension cannot be evaluated."""
    if SCORERS[dimension].not_evaluable(subject):
        return []
    nonce = new_nonce()
    calls: list[Call] = []
    if isinstance(subject, ChannelSubject) and dimension in COUNTED:
        for item in items:
            calls += _calls_for_ideas(item.proposition, subject, run, nonce)
    else:
        for question in _questions(dimension, items, subject, run, nonce):
            calls += _calls_for_question(question, length.tokens)
    return calls


def estimate_questions(questions: Iterable[Question], *, judge: str) -> Spending:
    """Estimate what asking these would need, as `estimate` does for an evaluation."""
    tokens_per_proposition = answer_length(judge).tokens
    calls: list[Call] = []
    for question in questions:
        calls += _calls_for_question(question, tokens_per_proposition)
    costs = [ledger.estimate_cost(judge, call.input_tokens, call.output_tokens) for call in calls]
    return Spending(
        calls=len(calls),
        input_tokens=sum(call.input_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        cost_usd=ledger.sum_if_all_priced(costs),
    )


def _calls_for_question(question: Question, tokens_per_proposition: int) -> list[Call]:
    """Return the calls that a question would take: a double check takes two."""
    number = len(question.propositions)
    sent = estimate_tokens(build_request(question))
    answered = number * tokens_per_proposition
    calls = [Call(number, sent, answered)]
    if question.double_check:  # the second call sends the question and its answer again
        calls.append(Call(0, sent + answered, answered))
    return calls


def _questions(
    dimension: str, items: Sequence[Item], subject: Subject | ChannelSubject, run: EvaluationRun, nonce: str
) -> Iterator[Question]:
    """Yield the questions that would be asked about these items; none for those that need no judge or have no text."""
    keys: set[int] = set()
    for item in items:
        keys.update(key for key in (item.message_id, item.compared_with_id) if key is not None)
    messages = Message.objects.select_related("channel").in_bulk(list(keys))
    scorer = SCORERS[dimension]
    if isinstance(scorer, ReadsAhead):
        scorer.read_ahead(subject, messages.values())
    open_items: list[OpenItem[Item]] = []
    for item in items:
        message = messages.get(item.message_id or 0)
        earlier = messages.get(item.compared_with_id or 0)
        if settle(item.proposition, message, subject, earlier, run.additional_context) is None:
            open_items.append(OpenItem(item, item.proposition, message, earlier, item.repeat))
    question_groups = questions(
        open_items,
        subject,
        run,
        dimension=dimension,
        nonce=nonce,
        label=lambda _: Label(purpose="estimate"),
        examples=load_examples(run),
    )
    for group in question_groups:
        if group.question is not None:
            yield group.question


def _calls_for_ideas(
    proposition: Proposition, subject: ChannelSubject, run: EvaluationRun, nonce: str
) -> Iterator[Call]:
    """Yield one call per part, then those that collapse what they list: 12 ideas a part, since how many there are is not known yet.

    The first call stands for the one judgement that all of them make.
    """
    stretches = list(ideas_quantity.stretches(subject))
    label = Label(purpose="estimate")
    for number, (first, last) in enumerate(stretches, 1):
        messages = read_plain_messages(subject.messages().filter(position__range=(first, last)))
        request = listing_request(
            name=subject.name,
            proposition=proposition,
            events=[subject.event(message) for message in messages],
            part=(number, len(stretches)),
            label=label,
            model=run.judge,
            nonce=nonce,
        )
        settles = 1 if number == 1 else 0  # all calls together make one judgement
        yield Call(settles, estimate_tokens(request), IDEAS_PER_PART * TOKENS_PER_IDEA)
    # Each call is shown one list, of which up to 60 ideas are new; it answers for about half of these.
    for listed in range(IDEAS_PER_PART * len(stretches), 0, -IDEAS_COMPARED_AT_ONCE):
        compared = min(listed, IDEAS_COMPARED_AT_ONCE)
        yield Call(0, COLLAPSE_TOKENS + listed * TOKENS_PER_IDEA, compared * TOKENS_PER_IDEA // 2)


def estimated(estimates: Sequence[Spending]) -> Spending:
    """Sum up what was estimated; one unpriced part leaves no cost."""
    return Spending(
        calls=sum(part.calls for part in estimates),
        input_tokens=sum(part.input_tokens for part in estimates),
        output_tokens=sum(part.output_tokens for part in estimates),
        cost_usd=ledger.sum_if_all_priced(part.cost_usd for part in estimates),
    )


# -- simulations
STAND_IN = ("word " * REPLY_TOKENS)[: REPLY_TOKENS * 4].strip()


class SimulationEstimate(BaseModel):
    """An estimate of simulating one agent, as `--json` prints it.

    Tokens are characters / 4 for the prompts and assumptions for the answers; `cost_usd` is None when unpriced.
    """

    agent: str
    actor_model: str
    lines: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Usd


class ActorAndJudge(NamedTuple):
    """The estimates of simulating the speech of an agent, and of judging it."""

    acting: SimulationEstimate
    judging: Estimate


def estimate_simulation(
    spec: RunSpec, *, situations: Sequence[Situation], actor_model: str = "", repeats: int = 1
) -> ActorAndJudge:
    """Estimate what the actor would need, and the judge of what it says, if every line of the situations is answered once.

    A simulation with stand-ins for the answers is stored for it and rolled back.

    Args:
        spec: What is to be measured, of an agent.
        actor_model: Default the agent's own model, else `ACTOR_MODEL`.
        repeats: How often each situation is simulated.

    Raises:
        ValueError: The spec is of a channel.
        PropositionError: Proposition files cannot be used.
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
    lines = len(prompts) * repeats  # `prompts` are those of the first repeat
    answered = REPLY_TOKENS * lines
    # Each call of a line sends its prompt; the last one also what was answered before it.
    sent = CALLS_PER_LINE * repeats * sum(prompts) + answered
    acting = SimulationEstimate(
        agent=spec.agent.slug,
        actor_model=model,
        lines=lines,
        calls=CALLS_PER_LINE * lines,
        input_tokens=sent,
        output_tokens=answered,
        cost_usd=ledger.estimate_cost(model, sent, answered),
    )
    return ActorAndJudge(acting, judging)


def _stand_in(agent: Agent, situations: Sequence[Situation], model: str, repeats: int) -> tuple[Simulation, list[int]]:
    """Store a simulation with a stand-in for each answer; return it, and the tokens of the prompt for each line of its first repeat."""
    prepared = prepare(agent, situations, model, repeats, reuse=None)
    prompts: list[int] = []
    messages = 0
    for scene in prepared.scenes:
        for turn, text in enumerate(scene.situation.lines, 1):
            tags = {**scene.channel.tags, TURN: str(turn)}
            common: dict[str, Any] = {"channel": scene.channel, "synthetic": True, "tags": tags}
            # Lines and answers take turns: 1 is the first line, 2 its answer.
            line = Message.objects.create(position=2 * turn - 1, outsider=scene.situation.speaker, text=text, **common)
            if scene.repeat == 1:
                prompts.append(prompt_tokens(agent, line))
            Message.objects.create(position=2 * turn, agent=agent, text=STAND_IN, **common)
            messages += 1
    simulation = Simulation(
        id=prepared.id, agent=agent, actor_model=model, persona_digest="", conversations=(), messages=messages
    )
    return simulation, prompts


def prompt_tokens(agent: Agent, line: Message) -> int:
    """Estimate the tokens of the prompt with which the agent's turn would begin after this line."""
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
