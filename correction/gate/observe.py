"""Observe mode: messages are sent at once and judged afterwards, so that a team learns the false-alarm rate before it enforces.

A person can also have messages judged that were sent before, with an estimate first (`estimate_check`, `judge_later`).

With `observe_by_batches` the messages of an agent are submitted together, after ten minutes or when 200 wait, and judged by the answers
when these are there. Until then a row is pending; it names its batch.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from statistics import median
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet, prefetch_related_objects
from django.utils import timezone

from agents.kit.llm import Label, LLMRequest, Reply, complete_together, estimate_tokens, ledger, request_digest
from agents.kit.llm import Status as ReplyStatus
from agents.kit.llm.endpoints import route_of
from agents.kit.llm.providers import is_remote
from agents.kit.models import Leasable
from agents.kit.work.batches import (
    NO_ANSWER,
    Answers,
    BatchRefused,
    Outgoing,
    forget_answers,
    next_round,
    reply_of,
    request_key,
    submit_batch,
    why_no_batches,
)
from agents.kit.work.queues import do_next, wake_workers
from agents.models import Agent, Message
from agents.turn.pipeline import speaker_of
from correction.config.settings import resolve_all, resolve_config
from correction.costs import over_budget
from correction.gate.check import (
    Action,
    CheckPlan,
    action_of_message,
    check_action_quality,
    label_of,
    load_propositions,
    plan_check,
    questions_of,
)
from correction.gate.stage import new_observation, write_attempt
from correction.models import CorrectionLog, GateMode, GateSession, ObservedMessage, Outcome
from correction.sampling import is_observed
from evaluation.judge.questions import Question, build_request
from evaluation.runs.planning import answer_length

Status = Leasable.Status
MOST_ATTEMPTS = 5  # leases of one observation before its crash is final; one in a batch takes three
BATCH_WAIT = timedelta(minutes=10)  # until a message goes out in a batch with the others of its agent
MOST_TOGETHER = 200  # messages of a batch; so many do not wait for others

logger = logging.getLogger(__name__)


def queue_ingested(messages: Sequence[Message]) -> int:
    """Queue those of newly stored messages whose agents are only observed and whose conversations are drawn; return how many.

    Called for imported messages, inside the transaction that stores them; workers wake once that is committed. Messages of people, and
    of agents whose gate is off or enforces, are passed over. An agent's sample rate is the share of its conversations, 0 to 1.
    """
    agents = Agent.objects.filter(pk__in={message.agent_id for message in messages if message.agent_id is not None})
    rates: dict[int | None, Decimal] = {}
    for agent, config in resolve_all(agents.select_related("evaluation_config")):
        if config.gate_mode == GateMode.OBSERVE and not config.gate_is_off:
            rates[agent.pk] = config["observe_sample_rate"]
    queued: list[ObservedMessage] = []
    for message in messages:
        rate = rates.get(message.agent_id)
        if rate is not None and is_observed(message.channel.slug, rate):
            queued.append(new_observation(message, rate=rate))
    ObservedMessage.objects.bulk_create(queued)
    if queued:
        transaction.on_commit(wake_workers)
    return len(queued)


def judge_later(*, messages: Sequence[Message], dimensions: Sequence[str]) -> int:
    """Queue messages that were sent to be judged on these dimensions, whatever their agents' gates do; return how many.

    Those that wait already are left as they are, and a message that was judged is judged again (its verdict stays in the log).
    Workers wake once the transaction is committed.
    """
    prefetch_related_objects(list(messages), "channel")
    with transaction.atomic():
        observed = ObservedMessage.objects.filter(message__in=messages)
        observed.filter(status__in=ObservedMessage.FINAL).delete()  # a message has one row at most
        waiting = set(observed.values_list("message", flat=True))
        queued = [new_observation(message, dimensions) for message in messages if message.pk not in waiting]
        ObservedMessage.objects.bulk_create(queued, ignore_conflicts=True)  # another process may have queued the same
        if queued:
            transaction.on_commit(wake_workers)
    return len(queued)


LATEST_CHECKS = 50  # whose median is the estimated time


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEstimate:
    """What judging one message takes.

    Attributes:
        calls: Calls of a model over the network.
        cost_usd: None where the model has no price.
        seconds: The median of the latest checks by this judge, whatever the dimensions; None where there was none.
    """

    calls: int
    cost_usd: Decimal | None
    seconds: float | None


def estimate_check(*, message: Message, agent: Agent, dimensions: Sequence[str]) -> CheckEstimate:
    """Estimate what judging a message like this one takes, from its very prompts (tokens are characters / 4). Asks no model.

    Calls and cost are 0 for a judge that answers in this process.
    """
    judge = str(settings.JUDGE_MODEL)
    seconds = _median_seconds(judge)
    if not is_remote(judge):
        return CheckEstimate(calls=0, cost_usd=Decimal(0), seconds=seconds)
    propositions = load_propositions(
        agent_slug=agent.slug,
        dimensions=dimensions,
        hard=resolve_config(agent).hard_dimensions,
        seeded=agent.seeded,
    )
    action = action_of_message(message, agent, propositions)
    label = Label(purpose="gate", mechanism="gate", agent_id=agent.pk)
    questions = [question for _, question in questions_of(action, propositions, label, gate=False)]
    return CheckEstimate(calls=len(questions), cost_usd=_estimated_cost(questions, judge), seconds=seconds)


def _estimated_cost(questions: Sequence[Question], judge: str, *, batch: bool = False) -> Decimal | None:
    """Return the US dollars that answering the questions costs; None where the judge has no price."""
    total = Decimal(0)
    for question in questions:
        tokens_out = len(question.propositions) * answer_length(judge).tokens
        cost = ledger.estimate_cost(judge, estimate_tokens(build_request(question)), tokens_out, batch=batch)
        if cost is None:
            return None
        total += cost
    return total


def _median_seconds(judge: str) -> float | None:
    """Return the median time of the latest checks by this judge; None where none of the newest is its."""
    newest = CorrectionLog.objects.order_by("-pk").values_list("judge", "duration_ms")[: 10 * LATEST_CHECKS]
    durations = [duration_ms for asked_judge, duration_ms in newest if asked_judge == judge][:LATEST_CHECKS]
    if not durations:
        return None
    return median(durations) / 1000


def work_one(*, owner: str) -> bool:
    """Judge the message that has waited longest to be observed, or submit a batch of them; return whether there was one."""
    return do_next(ObservedMessage, partial(_do, owner=owner), owner=owner, lease=_lease(), attempts=MOST_ATTEMPTS)


def _lease() -> timedelta:
    return timedelta(seconds=settings.LLM_EVALUATION_DEADLINE + 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observation:
    """A message that is to be judged, with what it is judged by."""

    observed: ObservedMessage
    message: Message
    session: GateSession
    plan: CheckPlan
    action: Action


def _prepare(observed: ObservedMessage) -> _Observation | str:
    """Read what a message is judged by; or say why it is not judged.

    It is not where the message is gone or no agent's, or where the gate was switched off and no person named dimensions.
    """
    message = Message.objects.select_related("agent", "channel", "run").filter(pk=observed.message_id).first()
    if message is None or message.agent is None:
        return "the message is gone, or no agent's"
    overrides = message.run.overrides if message.run is not None else {}
    agent = speaker_of(message.agent, overrides)
    config = resolve_config(agent, overrides)
    # Dimensions are named where a person asked for the judgement: then it is made with a gate that is off, too.
    if config.gate_is_off and not observed.dimensions:
        return "the gate was switched off before the message was judged"
    session = GateSession(
        uuid=observed.session,  # fixed when it was queued: of two workers that judge it only one can store the session
        source=GateSession.Source.OBSERVE,
        agent=agent,
        channel=message.channel,
        run_id=message.run_id,
        inclusion_weight=observed.inclusion_weight,
    )
    plan = plan_check(
        agent=agent,
        config=config,
        dimensions=observed.dimensions,
        # None: as configured. Where a person asked, rules are checked unless somebody switched them off.
        check_rules=config.rules_if_asked if observed.dimensions else None,
    )
    action = action_of_message(message, agent, plan.propositions)
    return _Observation(observed=observed, message=message, session=session, plan=plan, action=action)


def _do(observed: ObservedMessage, *, owner: str) -> dict[str, Any]:
    """Judge one message and log it, or have it wait for a batch; return how the work ends, as columns of its row."""
    observation = _prepare(observed)
    if isinstance(observation, str):
        return _cancelled(observation)
    if not _may_be_batched(observation):
        return _judge_and_log(observation)
    due = observed.created_at + BATCH_WAIT
    others = ObservedMessage.objects.filter(
        status=Status.PENDING, batch="", dimensions=[], whose=observed.whose
    ).order_by("pk")[:MOST_TOGETHER]
    if timezone.now() < due and len(others) < MOST_TOGETHER:
        return {"status": Status.PENDING, "lease_expires_at": due}  # until then others may come
    _submit_together(observation, list(others), owner=owner)
    return {"status": Status.PENDING}


def _judge_and_log(observation: _Observation) -> dict[str, Any]:
    """Judge one message and log it; return how the work ends, as columns of its row.

    Raises:
        IntegrityError: The attempt could not be stored, though the message is there and no other worker judged it.
    """
    observed = observation.observed
    message = observation.message
    result = check_action_quality(
        observation.action,
        observation.plan,
        run_id=message.run_id,
        work_id=observation.session.work_id,
        deadline=settings.LLM_EVALUATION_DEADLINE,  # no one waits for it
        gate=False,
        ask=partial(_ask_batch, observed.batch) if observed.batch else complete_together,
    )
    log = result.log(
        session=observation.session,
        attempt=1,
        outcome=Outcome.OBSERVED,
        persona_version_id=message.persona_version_id,
        original_text=message.text,
        judged_text=message.text,
        payload=message.payload,
    )
    try:
        write_attempt(log, message=message)
    except IntegrityError:
        if not Message.objects.filter(pk=message.pk).exists():
            return _cancelled("the message was deleted while it was judged")
        # Another worker may have been faster, after this one lost its lease: then the session is there.
        if not GateSession.objects.filter(uuid=observed.session).exists():
            raise
    if observed.batch and not _others_of_batch(observed).exists():
        forget_answers(observed.batch)
    return {"status": Status.COMPLETED, "error": ""}


def _cancelled(reason: str) -> dict[str, Any]:
    return {"status": Status.CANCELLED, "error": reason}


# -- in batches
def _may_be_batched(observation: _Observation) -> bool:
    """Return whether a message waits for a batch: it was in none, no person waits for it, and there is something to ask and to spend."""
    observed = observation.observed
    config = observation.plan.config
    if observed.batch or observed.dimensions or not config["observe_by_batches"] or why_no_batches(route_of("judge")):
        return False
    if observation.plan.propositions.problem or not observation.plan.propositions.all_judged:
        return False
    return not (config.has_budget and over_budget(observation.plan.agent, config))


def _submit_together(first: _Observation, others: Sequence[ObservedMessage], *, owner: str) -> None:
    """Submit what is asked about a message and others of its agent as one batch. Where it is refused each is asked about at once later.

    Each row gets the name of the batch before that is sent: should this process be killed, none is asked again that may have been.
    """
    name = f"observed:{uuid.uuid4().hex}"
    outgoing = Outgoing(name, route_of("judge"), next_round(name))
    planned = _add_questions(outgoing, first)
    taken: list[ObservedMessage] = []
    try:
        for row in others:
            if outgoing.is_full:
                break
            # One that is not due yet may be taken along.
            if not row.acquire(owner=owner, lease=_lease(), resumable=(Status.PENDING,)):
                continue
            taken.append(row)
            observation = _prepare(row)
            if not isinstance(observation, str) and _may_be_batched(observation):
                planned += _add_questions(outgoing, observation)
        try:
            submit_batch(
                outgoing,
                owner=owner,
                allowed=partial(first.observed.extend_lease, owner=owner, lease=_lease()),
                agent_id=first.message.agent_id,
                planned=planned,
            )
        except BatchRefused as problem:
            logger.warning("%s: %s; the messages are judged one by one", name, problem)
    finally:
        for row in taken:
            row.finish(owner=owner, status=Status.PENDING)


def _add_questions(outgoing: Outgoing, observation: _Observation) -> Decimal:
    """Add what is asked about a message to a batch, and note the batch on its row; return the US dollars it is expected to cost."""
    label = label_of(observation.plan, run_id=observation.message.run_id, work_id=observation.session.work_id)
    asked = questions_of(observation.action, observation.plan.propositions, label, gate=False)
    questions = [question for _, question in asked]
    for question in questions:
        request = build_request(question)
        outgoing.add(request, request_digest(request))
    observation.observed.batch = outgoing.work_id
    ObservedMessage.objects.filter(pk=observation.observed.pk).update(batch=outgoing.work_id)
    return _estimated_cost(questions, str(settings.JUDGE_MODEL), batch=True) or Decimal(0)


def _ask_batch(name: str, requests: Sequence[LLMRequest], *, deadline: float) -> list[Reply]:
    """Return what a batch answered; ask at once, at full price, what it brought no usable answer to."""
    route = route_of("judge")
    keys = [request_key(request, request_digest(request)) for request in requests]
    answers = Answers(name, keys)
    replies: dict[int, Reply] = {}
    for number, (request, key) in enumerate(zip(requests, keys, strict=True)):
        row = answers.take(key)
        # One that another judge answered, before the settings named this one, is asked again.
        if row is None or row.result in NO_ANSWER or row.batch.model != route.model:
            continue
        reply = reply_of(request, row, route)
        if reply.status is not ReplyStatus.MALFORMED:
            replies[number] = reply
    missing = [number for number in range(len(requests)) if number not in replies]
    if missing:
        asked = complete_together([requests[number] for number in missing], deadline=deadline)
        replies |= dict(zip(missing, asked, strict=True))
    return [replies[number] for number in range(len(requests))]


def _others_of_batch(observed: ObservedMessage) -> QuerySet[ObservedMessage]:
    """Return the messages of the same batch that are still to be judged."""
    return ObservedMessage.objects.filter(batch=observed.batch, status__in=ObservedMessage.OPEN).exclude(pk=observed.pk)
