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
from correction.behavior.own_words import OwnWords, own_words
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
UNCLEAR_BEHAVIOR = "which behaviour is meant could not be made out"
READS_ONE_MESSAGE = "; the offline detector reads this message alone, and a model would be shown those before it"
MOST_MAPPINGS = 3  # times the map tier is asked of one request while others change the persona under it
OLDEST_READ = timedelta(days=1)  # an older message is not read: what another program sends again later was long decided


def hear(*, message: Message, agent: Agent) -> str:
    """Queue a person's message to an agent (`queue`); return why a request of this person does not count, empty where it does."""
    config = resolve_config(agent)
    if queue(message=message, agent=agent, config=config) is None:
        return ""
    why = why_not_heard(requester_of(message), config)
    return f"not read for behaviour requests: {why}" if why else ""


def note_on(messages: Sequence[Message]) -> str:
    """Return a sentence for a program that imports messages: those of people are not read for requests; empty where no person wrote any."""
    from_people = sum(message.agent_id is None for message in messages)
    if not from_people:
        return ""
    default = resolve_defaults()["behavior_requesters"]
    unread = f"{counted(from_people, 'message')} of people not read for behaviour requests"
    return (
        f"{unread}: only what comes in at POST /api/messages/ is, from those whom behavior_requesters lets ask (default here: {default}); "
        "outsiders only where it is anyone"
    )


def queue(*, message: Message, agent: Agent, config: ResolvedConfig | None = None) -> BehaviorRequest | None:
    """Queue a person's message to an agent to be read; return its request, the stored one where it was queued before. Calls no model.

    None where it is not read: an agent wrote it, it is simulated (but not in a scratch chat), the agent is inactive, the message is
    older than a day, requests are switched off, or message or agent are gone. Workers wake once the transaction is committed.

    Args:
        config: The agent's; None: it is read here.
    """
    age = timezone.now() - (message.sent_at or message.created_at)
    is_simulated = message.synthetic and not is_chat(message.channel)
    if message.agent_id is not None or is_simulated or not agent.is_active or age > OLDEST_READ:
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
    """Read the request whose turn it is; return whether there was one. An interruption, or an empty budget, costs it no try."""
    return do_next(
        BehaviorRequest,
        lambda request: _read_request(request, owner),
        owner=owner,
        lease=one_call(),
        attempts=MOST_ATTEMPTS,
        handed_back=NO_TRY,
    )


def _read_request(request: BehaviorRequest, owner: str) -> dict[str, Any] | None:
    """Ask the tiers that have no answer yet, store each answer as it arrives, and have the policy decide.

    Returns:
        The columns of how the work ends; None when the policy ended it, which stored them.

    Raises:
        LeaseLost: Another worker has it, or it was cancelled.
    """
    message = Message.objects.select_related("channel", "user").filter(behavior_requests=request).first()
    agent = Agent.objects.filter(behavior_requests=request).first()
    if message is None or agent is None:
        gone = "message" if message is None else "agent"
        return {"status": Status.CANCELLED, "error": f"the {gone} was deleted"}
    if why := _why_not_read(message, agent):
        return {"status": Status.CANCELLED, "error": why}
    addressed = text_addressed_to(message, agent)
    words = own_words(addressed)
    # Another round only where the persona was changed after the map tier saw it: then that tier is asked again.
    for mapping in range(1, MOST_MAPPINGS + 1):
        answers = _stored_answers(request)
        if not answers:
            answers = answers_without_model(words)
            if answers:
                gate = answers["gate"]
                _store_answer(
                    request, owner, gate_result=gate, confidence=gate["confidence"], judge=JUDGED_WITHOUT_MODEL
                )
        ending = _ask_open_tiers(request, owner, message, agent, words, answers)
        if ending is not None:
            return ending
        warnings = warnings_about(words, answers)
        unread = len(message.text.strip()) - len(addressed.strip())
        if unread > 0:
            warnings.append(f"{unread:,} characters of the message were not read: they are said to others")
        if "map" not in answers:  # it asks for nothing, or for nothing clear
            return _ending_without_map(answers, warnings)
        if settle_request(request=request, owner=owner, again=mapping < MOST_MAPPINGS, warnings=warnings):
            break
    return None


def _stored_answers(request: BehaviorRequest) -> Answers:
    """Return the answers that an earlier try stored, by tier."""
    answers: Answers = {}
    for tier in TIERS:
        answer = getattr(request, f"{tier}_result")
        if answer is not None:
            answers[tier] = answer
    return answers


def _ask_open_tiers(
    request: BehaviorRequest, owner: str, message: Message, agent: Agent, words: OwnWords, answers: Answers
) -> dict[str, Any] | None:
    """Ask the tiers that have no answer yet, in their order, and store each answer; adds to `answers`.

    Returns:
        The columns of the request where a call failed (to be tried later, or failed) or the budget is spent; None where no tier is left
        to ask.

    Raises:
        LeaseLost: Another worker has it, or it was cancelled.
    """
    judge = model_of("judge")
    while (tier := next_tier(answers)) is not None:
        if paused := over_budget(agent, judge):
            return paused
        if not request.extend_lease(owner=owner, lease=one_call()):
            raise LeaseLost("another worker has it")
        agent.refresh_from_db(fields=["system_prompt"])  # as it is now: the answers before took their time
        config = resolve_config(agent)
        subject = subject_of(agent, traits_in(agent, key_of(message, config)))
        context: tuple[str, ...] = ()
        if tier != "gate":  # that is asked about this message alone
            context = context_of(message, agent, config)
        reply = ask(tier, words=words, subject=subject, answers=answers, context=context, work_id=request.work_id)
        columns: dict[str, Any] = {f"{tier}_call_id": reply.call_id, "judge": judge}
        if not reply.ok:
            return {**after_failure(request, reply, where=tier), **columns}
        answers[tier] = reply.value
        columns[f"{tier}_result"] = reply.value
        if tier == "gate":
            columns["confidence"] = reply.value["confidence"]
        if tier == "map":
            columns["map_digest"] = persona_digest(system_prompt=subject.persona, traits=subject.traits)
        _store_answer(request, owner, **columns)
    return None


def _ending_without_map(answers: Answers, warnings: list[str]) -> dict[str, Any]:
    """Return the columns of a message that asks for nothing, or for something that is not clear."""
    gate = answers["gate"]
    ending = {
        "status": Status.NO_REQUEST,
        "operation": BehaviorRequest.Operation.NONE,
        "why": gate["reason"],
        "warnings": warnings,
    }
    if gate["has_request"]:
        ending["status"] = Status.DETECTED
        ending["why"] = UNCLEAR_BEHAVIOR
        if is_heuristic(model_of("judge")):
            ending["why"] += READS_ONE_MESSAGE
    return ending


def _why_not_read(message: Message, agent: Agent) -> str:
    """Return why no model is asked about the message; empty when one is."""
    config = resolve_config(agent)
    if not config["behavior_requests_enabled"]:
        return "behavior_requests_enabled was switched off before it was read"
    if not agent.is_active:
        return "the agent is inactive"
    return why_not_heard(requester_of(message), config)


def _store_answer(request: BehaviorRequest, owner: str, **fields: Any) -> None:
    """Store an answer, so that it is paid for once.

    Raises:
        LeaseLost: Another worker has it, or it was cancelled.
    """
    leased_row = BehaviorRequest.objects.filter(pk=request.pk, status=Status.RUNNING, lease_owner=owner)
    if not retry_on_outage(lambda: leased_row.update(**fields)):
        raise LeaseLost("another worker has it, or it was cancelled")
