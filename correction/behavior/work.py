"""Requests as work: queued when a message arrives, which costs its sender two statements, and read by a worker, tier by tier."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.chat import is_chat
from agents.kit.llm.endpoints import model_of
from agents.kit.models.lease import LeaseLost
from agents.kit.running import retry_on_outage
from agents.kit.text.wording import counted
from agents.kit.work.queues import do_next, wake_workers
from agents.models import Agent, Message
from agents.personas.persona import persona_digest
from agents.turn.receive import text_addressed_to
from correction.behavior.applying import settle_request
from correction.behavior.models import BehaviorRequest
from correction.behavior.own_words import own_words
from correction.behavior.policy import requester_of, why_not_heard
from correction.behavior.postponing import MOST_ATTEMPTS, NO_TRY, after_failure, one_call, over_budget
from correction.behavior.scope import key_of, traits_in
from correction.behavior.tiers import (
    JUDGED_WITHOUT_MODEL,
    TIERS,
    Answers,
    answers_without_model,
    ask,
    context_of,
    next_tier,
    subject_of,
    warnings_about,
)
from correction.config.settings import ResolvedConfig, resolve_config, resolve_defaults
from evaluation.models import is_heuristic

Status = BehaviorRequest.Status
UNCLEAR = "which behaviour is meant could not be made out"
UNREAD = "; the offline detector reads this message alone, and a model would be shown those before it"
MOST_MAPS = 3  # times the map tier is asked of one request while others change the persona under it
NEW = timedelta(days=1)  # an older message is not read: what another program sends again later was long decided


def hear(*, message: Message, agent: Agent) -> str:
    """Queue what a person said to an agent (`queue`); return why a request of this person does not count, empty where it does."""
    config = resolve_config(agent)
    if queue(message=message, agent=agent, config=config) is None:
        return ""
    why = why_not_heard(requester_of(message), config)
    return f"not read for behaviour requests: {why}" if why else ""


def note_on(messages: Sequence[Message]) -> str:
    """What a program that hands in messages from elsewhere is to know about requests in them; empty where no person speaks in them."""
    if not (people := sum(message.agent_id is None for message in messages)):
        return ""
    default = resolve_defaults()["behavior_requesters"]
    return (
        f"{counted(people, 'message')} of people not read for behaviour requests: only what comes in at POST /api/messages/ is, from those "
        f"whom behavior_requesters lets ask (default here: {default}); outsiders only where it is anyone"
    )


def queue(*, message: Message, agent: Agent, config: ResolvedConfig | None = None) -> BehaviorRequest | None:
    """Have what a person said to an agent read, once; None where it is not. Calls no model.

    Only what people say counts, never an agent's words, and nothing in simulations; in a scratch chat it holds in that chat.
    """
    age = timezone.now() - (message.sent_at or message.created_at)
    is_simulated = message.synthetic and not is_chat(message.channel)
    if message.agent_id is not None or is_simulated or not agent.is_active or age > NEW:
        return None
    if not (config or resolve_config(agent))["behavior_requests_enabled"]:
        return None
    try:
        with transaction.atomic():
            request: BehaviorRequest = BehaviorRequest.objects.create(message=message, agent=agent)
    except IntegrityError:  # it was queued before, or message or agent are gone
        return BehaviorRequest.objects.filter(message=message, agent=agent).first()
    transaction.on_commit(wake_workers)
    return request


def work_one(*, owner: str) -> bool:
    """Read the request whose turn it is; return whether there was one."""
    return do_next(
        BehaviorRequest,
        lambda request: _read(request, owner),
        owner=owner,
        lease=one_call(),
        attempts=MOST_ATTEMPTS,
        handed_back=NO_TRY,
    )


def _read(request: BehaviorRequest, owner: str) -> dict[str, Any] | None:
    """Ask the tiers that have no answer yet, store each answer as it arrives, and have the policy decide.

    Returns:
        The columns of how the work ends; None when the policy ended it.

    Raises:
        LeaseLost: Another worker has it, or it was cancelled.
    """
    message = Message.objects.select_related("channel", "user").filter(behavior_requests=request).first()
    agent = Agent.objects.filter(behavior_requests=request).first()
    if message is None or agent is None:
        return {"status": Status.CANCELLED, "error": f"the {'message' if message is None else 'agent'} was deleted"}
    if why := _why_not(message, agent):
        return {"status": Status.CANCELLED, "error": why}
    heard, judge = text_addressed_to(message, agent), model_of("judge")
    words, elsewhere = own_words(heard), len(message.text.strip()) - len(heard.strip())
    for asked in range(1, MOST_MAPS + 1):
        answers: Answers = {tier: said for tier in TIERS if (said := getattr(request, f"{tier}_result")) is not None}
        if not answers and (answers := answers_without_model(words)):
            gate = answers["gate"]
            _store(request, owner, gate_result=gate, confidence=gate["confidence"], judge=JUDGED_WITHOUT_MODEL)
        while (tier := next_tier(answers)) is not None:
            if paused := over_budget(agent, judge):
                return paused
            if not request.extend_lease(owner=owner, lease=one_call()):
                raise LeaseLost("another worker has it")
            agent.refresh_from_db(fields=["system_prompt"])  # as it is now: the answers before took their time
            config = resolve_config(agent)
            subject = subject_of(agent, traits_in(agent, key_of(message, config)))
            context = context_of(message, agent, config) if tier != "gate" else ()
            reply = ask(tier, words=words, subject=subject, answers=answers, context=context, work_id=request.work_id)
            fields: dict[str, Any] = {f"{tier}_call_id": reply.call_id, "judge": judge}
            if not reply.ok:
                return {**after_failure(request, reply, where=tier), **fields}
            fields[f"{tier}_result"] = answers[tier] = reply.value
            if tier == "gate":
                fields["confidence"] = reply.value["confidence"]
            if tier == "map":
                fields["map_digest"] = persona_digest(system_prompt=subject.persona, traits=subject.traits)
            _store(request, owner, **fields)
        warnings = warnings_about(words, answers)
        if elsewhere > 0:
            warnings.append(f"{elsewhere:,} characters of the message were not read: they are said to others")
        if "map" not in answers:
            asks = answers["gate"]["has_request"]
            return {
                "status": Status.DETECTED if asks else Status.NO_REQUEST,
                "operation": BehaviorRequest.Operation.NONE,
                "why": UNCLEAR + UNREAD * is_heuristic(judge) if asks else answers["gate"]["reason"],
                "warnings": warnings,
            }
        if settle_request(request=request, owner=owner, again=asked < MOST_MAPS, warnings=warnings):
            break
    return None


def _why_not(message: Message, agent: Agent) -> str:
    """Why no model is asked about the message; empty when one is."""
    config = resolve_config(agent)
    if not config["behavior_requests_enabled"]:
        return "behavior_requests_enabled was switched off before it was read"
    return why_not_heard(requester_of(message), config) if agent.is_active else "the agent is inactive"


def _store(request: BehaviorRequest, owner: str, **fields: Any) -> None:
    """Store an answer, so that it is paid for once."""
    mine = BehaviorRequest.objects.filter(pk=request.pk, status=Status.RUNNING, lease_owner=owner)
    if not retry_on_outage(lambda: mine.update(**fields)):
        raise LeaseLost("another worker has it, or it was cancelled")
