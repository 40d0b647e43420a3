"""Observe mode: messages are sent at once and judged afterwards, so that a team learns the false-alarm rate before it enforces.

A person can also have messages judged that were said before, with an estimate first (`needs_of`, `judge_later`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from statistics import median
from typing import NamedTuple

from django.conf import settings
from django.db import IntegrityError, transaction

from agents.kit.llm import Label, estimate_tokens, ledger
from agents.kit.llm.endpoints import provider_of
from agents.kit.models import Leasable
from agents.kit.work.queues import do_next, wake_workers
from agents.models import Agent, Message
from agents.turn.pipeline import speaker_of
from correction.config.settings import resolve_all, resolve_config
from correction.gate.check import action_of_message, check_action_quality, load_propositions, questions_of
from correction.gate.stage import is_sampled, write
from correction.models import CorrectionLog, GateMode, GateSession, ObservedMessage, Outcome
from evaluation.judge.questions import build_request
from evaluation.runs.planning import answer_length

logger = logging.getLogger(__name__)

Status = Leasable.Status
MOST_ATTEMPTS = 3  # leases of one observation before its crash is final


def queue_ingested(messages: Sequence[Message]) -> int:
    """Have those of newly stored messages judged later whose agents are observed and that are sampled; returns how many.

    What `ingest_observers` names: called inside the transaction that stores them.
    """
    agents = Agent.objects.filter(pk__in={m.agent_id for m in messages if m.agent_id is not None})
    rates = {
        agent.pk: config["observe_sample_rate"]
        for agent, config in resolve_all(agents.select_related("evaluation_config"))
        if config.gate_mode == GateMode.OBSERVE and not config.gate_is_off
    }
    sampled = [m for m in messages if m.agent_id and is_sampled(m.pk, rates.get(m.agent_id, 0))]
    ObservedMessage.objects.bulk_create(
        [ObservedMessage(message=m, session=uuid.uuid4(), whose=m.agent_id or 0) for m in sampled]
    )
    if sampled:
        transaction.on_commit(wake_workers)
    return len(sampled)


def judge_later(*, messages: Sequence[Message], dimensions: Sequence[str]) -> int:
    """Queue messages that were said to be judged on these dimensions, whatever their agents' gates do; returns how many.

    Those that wait already are left as they are, and a message that was judged is judged again.
    """
    with transaction.atomic():
        there = ObservedMessage.objects.filter(message__in=messages)
        there.filter(status__in=ObservedMessage.FINAL).delete()
        waiting = set(there.values_list("message", flat=True))
        queued = [
            ObservedMessage(message=m, session=uuid.uuid4(), whose=m.agent_id or 0, dimensions=list(dimensions))
            for m in messages
            if m.pk not in waiting
        ]
        ObservedMessage.objects.bulk_create(queued, ignore_conflicts=True)
        if queued:
            transaction.on_commit(wake_workers)
    return len(queued)


MEASURED = 50  # latest checks whose time is looked at


class Needs(NamedTuple):
    """What judging one message takes."""

    calls: int  # of a model over the network
    cost_usd: Decimal | None  # None where the model has no price
    seconds: (
        float | None
    )  # the median of the latest checks by this judge, whatever the dimensions; None where there was none


def needs_of(*, message: Message, agent: Agent, dimensions: Sequence[str]) -> Needs:
    """Estimate what judging a message like this one takes, from its very prompts (tokens are characters / 4). Asks no model."""
    judge = str(settings.JUDGE_MODEL)
    newest = CorrectionLog.objects.order_by("-pk").values_list("judge", "duration_ms")[: 10 * MEASURED]
    times = [took for by, took in newest if by == judge][:MEASURED]
    seconds = median(times) / 1000 if times else None
    if provider_of(judge) != "anthropic":
        return Needs(0, Decimal(0), seconds)
    propositions = load_propositions(
        agent_slug=agent.slug,
        dimensions=dimensions,
        hard=resolve_config(agent).hard_dimensions,
        seeded=agent.seeded,
    )
    length, label = answer_length(judge), Label(purpose="gate", mechanism="gate", agent_id=agent.pk)
    action = action_of_message(message, agent, propositions)
    costs = []
    for _, question in questions_of(action, propositions, label, gate=False):
        answered = len(question.propositions) * length.tokens
        costs.append(ledger.estimate_cost(judge, estimate_tokens(build_request(question)), answered))
    return Needs(len(costs), None if None in costs else sum(filter(None, costs), Decimal(0)), seconds)


def work_one(*, owner: str) -> bool:
    """Judge the message that has waited longest to be observed; return whether there was one."""
    lease = timedelta(seconds=settings.LLM_EVALUATION_DEADLINE + 60)
    return do_next(ObservedMessage, _judge, owner=owner, lease=lease, attempts=MOST_ATTEMPTS)


def _judge(observed: ObservedMessage) -> dict[str, str]:
    """Judge one message and log it; how the work ends, as columns."""
    message = Message.objects.select_related("agent", "channel", "run").filter(pk=observed.message_id).first()
    if message is None or (agent := message.agent) is None:
        return {"status": Status.CANCELLED, "error": "the message is gone, or no agent's"}
    overrides = message.run.overrides if message.run is not None else {}
    agent, config = speaker_of(agent, overrides), resolve_config(agent, overrides)
    if config.gate_is_off and not observed.dimensions:
        return {"status": Status.CANCELLED, "error": "the gate was switched off before the message was judged"}
    session = GateSession(
        uuid=observed.session,
        source=GateSession.Source.OBSERVE,
        agent=agent,
        channel=message.channel,
        run_id=message.run_id,
    )
    result = check_action_quality(
        agent=agent,
        config=config,
        run_id=message.run_id,
        work_id=session.work_id,
        deadline=settings.LLM_EVALUATION_DEADLINE,  # no one waits for it
        action=lambda propositions: action_of_message(message, agent, propositions),
        gate=False,
        dimensions=observed.dimensions,
        rules=config.rules_if_asked if observed.dimensions else None,
    )
    log = result.log(
        session=session,
        attempt=1,
        outcome=Outcome.OBSERVED,
        persona_version_id=message.persona_version_id,
        original_text=message.text,
        judged_text=message.text,
        payload=message.payload,
    )
    try:
        write(log, message=message)
    except IntegrityError:
        if not Message.objects.filter(pk=message.pk).exists():
            return {"status": Status.CANCELLED, "error": "the message was deleted while it was judged"}
        if not GateSession.objects.filter(uuid=observed.session).exists():
            raise
    return {
        "status": Status.COMPLETED,
        "error": "",
    }  # also when another worker was faster after this one lost its lease
