"""Requests as work: queued when a message arrives, which costs its sender two statements, and looked at by a worker, tier by tier."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.llm import Reply
from agents.llm.endpoints import model_of
from agents.models import Agent, Message
from agents.persona import persona_digest
from agents.work.outages import outlasting
from agents.work.queues import do_next, wake_workers
from correction.behavior.applying import settle_request
from correction.behavior.postponing import HANDED_BACK, after_failure, midnight, resume
from correction.behavior.rules import may_ask, requester_of
from correction.behavior.tiers import (
    JUDGED_WITHOUT_MODEL,
    TIERS,
    Found,
    Subject,
    Tier,
    Words,
    ask,
    found_without_model,
    next_tier,
    own_words,
    subject_of,
    warnings_about,
)
from correction.config.settings import resolve_config
from correction.costs import evaluation_over_budget
from correction.models import BehaviorRequest

logger = logging.getLogger(__name__)

Status = BehaviorRequest.Status
UNCLEAR = "which behaviour is meant could not be made out"
MOST_MAPS = 3  # times the map tier is asked of one request while others change the persona under it
MOST_ATTEMPTS = 3  # claims of one request before its crash is final
NEW = timedelta(days=1)  # a message is only looked at when it is no older: what is heard again later was long decided


def queue(*, message: Message, agent: Agent) -> BehaviorRequest | None:
    """Have what a person said to an agent looked at, once; None where it is not looked at. Calls no model.

    Only what people say in conversations that are not played counts, never an agent's words.
    """
    age = timezone.now() - (message.sent_at or message.created_at)
    if message.agent_id is not None or message.synthetic or not agent.is_active or age > NEW:
        return None
    if not resolve_config(agent)["behavior_requests_enabled"]:
        return None
    try:
        with transaction.atomic():
            request: BehaviorRequest = BehaviorRequest.objects.create(message=message, agent=agent)
    except IntegrityError:  # it was heard of before, or message or agent are gone
        return BehaviorRequest.objects.filter(message=message, agent=agent).first()
    transaction.on_commit(wake_workers)
    return request


def work_one(*, owner: str) -> bool:
    """Look at the request whose turn it is; return whether there was one."""
    return do_next(
        BehaviorRequest,
        lambda request: _look_at(request, owner),
        owner=owner,
        lease=_lease(),
        attempts=MOST_ATTEMPTS,
        handed_back=HANDED_BACK,
    )


def resume_paused() -> str | None:
    """Queue again what waited for a budget until midnight UTC, or for another try. A chore."""
    return resume(BehaviorRequest.objects.all())


def _lease() -> timedelta:
    return timedelta(seconds=settings.LLM_EVALUATION_DEADLINE + 60)


def _look_at(request: BehaviorRequest, owner: str) -> None:
    """Ask the tiers that have no answer yet, store each answer as it arrives, and have the policy decide."""
    message = Message.objects.select_related("channel", "user").filter(behavior_requests=request).first()
    agent = Agent.objects.filter(behavior_requests=request).first()
    if message is None or agent is None:
        gone = "message" if message is None else "agent"
        request.finish(owner=owner, status=Status.CANCELLED, error=f"the {gone} was deleted")
        return
    if why := _why_not(message, agent):
        request.finish(owner=owner, status=Status.CANCELLED, error=why)
        return
    words = own_words(message.text)
    for asked in range(1, MOST_MAPS + 1):
        found = _asked(request, owner, agent, words)
        if found is None:
            return
        if "map" not in found:
            _end_without_change(request, owner, words, found)
            return
        warnings = warnings_about(words, found)
        if settle_request(request=request, owner=owner, again=asked < MOST_MAPS, warnings=warnings):
            return


def _why_not(message: Message, agent: Agent) -> str:
    """Why no model is asked about the message; empty when one is."""
    config = resolve_config(agent)
    if not config["behavior_requests_enabled"]:
        return "behavior_requests_enabled was switched off before it was looked at"
    if not agent.is_active:
        return "the agent is inactive"
    return may_ask(requester_of(message), config)


def _asked(request: BehaviorRequest, owner: str, agent: Agent, words: Words) -> Found | None:
    """The answers of all tiers that are to be asked, those that are stored among them; None when the work ended or was lost before."""
    found: Found = {tier: answer for tier in TIERS if (answer := getattr(request, f"{tier}_result")) is not None}
    if not found and (found := found_without_model(words)):
        kept = {"gate_result": found["gate"], "confidence": found["gate"]["confidence"], "judge": JUDGED_WITHOUT_MODEL}
        return found if _store(request, owner, kept) else None
    while (tier := next_tier(found)) is not None:
        if why := evaluation_over_budget(agent, model_of("judge")):
            request.finish(
                owner=owner, status=Status.PAUSED_BUDGET, error=why, lease_expires_at=midnight(), **HANDED_BACK
            )
            return None
        if not request.extend_lease(owner=owner, lease=_lease()):
            return None
        agent.refresh_from_db(fields=["system_prompt"])  # the persona as it is now: the answers before took their time
        subject = subject_of(agent)
        reply = ask(tier, words=words, subject=subject, found=found, work_id=request.work_id)
        if not _keep(request, owner, tier, reply, subject):
            return None
        found[tier] = reply.value
    return found


def _keep(request: BehaviorRequest, owner: str, tier: Tier, reply: Reply, shown: Subject) -> bool:
    """Store an answer, so that nobody pays for it again; False when there is none, or the work is another's by now."""
    fields: dict[str, Any] = {f"{tier}_call_id": reply.call_id, "judge": model_of("judge")}
    if not reply.ok:
        request.finish(owner=owner, **after_failure(request, reply, where=tier), **fields)
        return False
    fields[f"{tier}_result"] = reply.value
    if tier == "gate":
        fields["confidence"] = reply.value["confidence"]
    if tier == "map":
        fields["map_digest"] = persona_digest(system_prompt=shown.persona, traits=shown.traits)
    return _store(request, owner, fields)


def _store(request: BehaviorRequest, owner: str, fields: Mapping[str, Any]) -> bool:
    mine = BehaviorRequest.objects.filter(pk=request.pk, status=Status.RUNNING, lease_owner=owner)
    return bool(outlasting(lambda: mine.update(**fields)))


def _end_without_change(request: BehaviorRequest, owner: str, words: Words, found: Found) -> None:
    asks = found["gate"]["has_request"]
    request.finish(
        owner=owner,
        status=Status.DETECTED if asks else Status.NO_REQUEST,
        operation=BehaviorRequest.Operation.NONE,
        why=UNCLEAR if asks else found["gate"]["reason"],
        warnings=warnings_about(words, found),
    )
