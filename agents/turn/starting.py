"""Queuing turns: one that somebody asks for, and those that a message in a direct message calls forth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef

from agents.models import Agent, Channel, ChannelMember, Message, Run
from agents.work.queues import wake_for_turns


class TurnRefused(ValueError):
    """The turn cannot be taken. Its text names what is wrong and what is allowed."""


def start_turn(
    *,
    agent: Agent,
    channel: Channel,
    prompt: str = "",
    trigger: Message | None = None,
    depth: int = 0,
    overrides: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
) -> Run:
    """Queue a turn; a worker (`manage.py work`) takes it.

    Args:
        agent: Who is to act; active, and a member of `channel`.
        channel: Where.
        prompt: What an operator asks of this turn; shown to the agent, not said in the channel.
        trigger: The message it answers.
        depth: How many agents' replies led to it without a person.
        overrides: Settings of the stages for this turn only.
        idempotency_key: The same key queues one turn only: the first is returned.

    Raises:
        TurnRefused: The agent is inactive or not a member, the trigger stands elsewhere, or the key belongs to another turn.
    """
    if not agent.is_active:
        raise TurnRefused(f"agent {agent.slug!r} is inactive; allowed: active agents")
    joined = Channel.objects.filter(memberships__agent=agent).order_by("slug").values_list("slug", flat=True)
    if not joined.filter(pk=channel.pk).exists():
        allowed = ", ".join(joined[:30]) or "none, it has joined no channel"
        raise TurnRefused(f"agent {agent.slug!r} is not a member of channel {channel.slug!r}; allowed: {allowed}")
    if trigger is not None and trigger.channel_id != channel.pk:
        raise TurnRefused(
            f"message {trigger.pk} is not in channel {channel.slug!r}; allowed: a message of that channel"
        )
    fields = {"prompt": prompt, "trigger": trigger, "depth": depth, "overrides": dict(overrides or {})}
    run = queue(agent=agent, channel=channel, idempotency_key=idempotency_key, **fields)
    if (run.agent_id, run.channel_id) != (agent.pk, channel.pk):
        raise TurnRefused(f"idempotency key {idempotency_key!r} was used for another turn (run {run.pk})")
    return run


def queue(*, agent: Agent, channel: Channel, idempotency_key: str | None = None, **fields: Any) -> Run:
    """Save the row that is the work, once per key, and wake a worker when the transaction is through."""
    try:
        with transaction.atomic():
            run: Run = Run.objects.create(
                agent=agent, channel=channel, idempotency_key=idempotency_key or None, **fields
            )
    except IntegrityError:
        first: Run | None = Run.objects.filter(idempotency_key=idempotency_key).first() if idempotency_key else None
        if first is None:
            raise
        return first
    transaction.on_commit(wake_for_turns)
    return run


def queue_replies(*, message: Message, depth: int) -> list[Run]:
    """Queue the turns that an agent's direct message calls forth; none past `TURN_MAX_REPLY_DEPTH`, none for played speech.

    A turn that still waits to answer the same conversation answers this message instead of an older one: who says two things at
    once gets one reply.

    Args:
        message: What was just saved, in the same transaction.
        depth: Of the turns to queue.
    """
    channel = message.channel
    if channel.kind != Channel.Kind.DM or message.synthetic or depth > settings.TURN_MAX_REPLY_DEPTH:
        return []
    queued = []
    for other in agents_of(channel):
        if other.pk == message.agent_id:
            continue
        waiting = Run.objects.filter(
            agent=other, channel=channel, depth=depth, status=Run.Status.PENDING, attempt=0, prompt=""
        )
        if not waiting.update(trigger=message):  # conditional: one that is being claimed right now does not count
            key = reply_key(message, other)
            queued.append(queue(agent=other, channel=channel, trigger=message, depth=depth, idempotency_key=key))
    return queued


def reply_key(message: Message, agent: Agent) -> str:
    """Idempotency key of the turn in which `agent` answers `message`."""
    return f"message:{message.pk}:{agent.pk}"


def agents_of(channel: Channel) -> list[Agent]:
    """The active agents of a channel."""
    member = ChannelMember.objects.filter(channel=channel, agent=OuterRef("pk"))
    return list(Agent.objects.filter(Exists(member), is_active=True).order_by("slug"))
