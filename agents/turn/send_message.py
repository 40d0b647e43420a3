"""Saying something: the draft passes the review stages; what they let pass is committed with everything that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sentry_sdk
from django.conf import settings
from django.db import IntegrityError, transaction

from agents.llm.extraction import storable
from agents.models import Agent, Channel, Message, Run
from agents.turn.admission import RequiredStageFailed, SendRefused, admit, check_extras, fault_of
from agents.turn.channel_log import ChannelGone, append
from agents.turn.overrides import tags_of
from agents.turn.pipeline import StageFailed, pipeline
from agents.turn.starting import queue_replies
from agents.turn.values import Accept, Draft, Revise, SendResult, TraceEntry, Turn

__all__ = ["RequiredStageFailed", "SendRefused", "commit", "send_message"]


def send_message(
    *,
    agent: Agent,
    channel: Channel,
    text: str,
    payload: Mapping[str, Any] | None = None,
    session: str = "",
    idempotency_key: str = "",
    run: Run | None = None,
    trigger: Message | None = None,
    turn: Turn | None = None,
    overrides: Mapping[str, Any] | None = None,
    parent: Message | None = None,
    tags: Mapping[str, str] | None = None,
) -> SendResult:
    """Pass a draft through the review stages and commit it, or return the feedback with which it is sent back.

    Stages may call models: no transaction may be open here. With every stage idle this costs at most three statements more than
    saving a message.

    Args:
        agent: Who speaks; active, and a member of `channel`.
        channel: Where.
        text: The draft, 1 to 100,000 characters, not only white space.
        payload: Typed data beside the text.
        session: Continues the message that an earlier result sent back under this session.
        idempotency_key: The same key never commits twice, whatever the text; it returns the message committed first (outcome ``sent``).
        run: The run it belongs to.
        trigger: The message it answers.
        turn: The turn it belongs to; without one this send is a turn of its own.
        overrides: Settings of the stages for a turn of its own; default those of `run`.
        parent: The message whose thread it is said in; default the thread of the trigger, if it is in one.
        tags: Tags of the message.

    Raises:
        SendRefused: It cannot be said: the text, the channel, the agent, the parent, the key, or a required stage that failed
            (`RequiredStageFailed`).
    """
    if turn is None:
        own = overrides if overrides is not None else (run.overrides if run is not None else {})
        turn = Turn(agent=agent, channel=channel, run=run, trigger=trigger, overrides=own)
    if session:
        turn.sessions[channel.pk] = session
    if fault := fault_of(text):
        raise SendRefused(fault)
    check_extras(idempotency_key, tags)
    if parent is not None and parent.channel_id != channel.pk:
        raise SendRefused(f"parent {parent.pk} is not in channel {channel.slug!r}; allowed: a message of that channel")
    home, key_before, begun = turn.channel, turn.draft_key, len(turn.trace)
    turn.channel, turn.draft_key = channel, idempotency_key
    try:
        with sentry_sdk.start_span(op="agents.send_message", name="send a message") as span:
            admission = admit(agent, channel, idempotency_key)
            is_first = admission.earlier_id is None
            draft = Draft(text, dict(payload or {}))
            outcome: Accept | Revise = Accept(draft)
            if not is_first:
                message = _first_result(turn, channel, idempotency_key)
            else:
                turn.persona_version_id = turn.persona_version_id or admission.persona_version_id
                outcome = _review(turn, draft)
                if isinstance(outcome, Revise):
                    span.set_data("outcome", outcome.outcome or "sent_back")
                    return _sent_back(turn, text, outcome, begun)
                message, is_first = _save(turn, channel, outcome.draft, idempotency_key or None, parent, tags)
            word = (outcome.outcome if is_first else "") or "sent"
            span.set_data("outcome", word)
    except StageFailed as error:
        raise RequiredStageFailed(f"not sent: a required stage failed ({error})") from error
    finally:
        turn.channel, turn.draft_key = home, key_before
    return SendResult(
        committed=True,
        outcome=word,
        text=message.text,
        message=message,
        reports=dict(turn.reports) if is_first else {},  # what the stages said of a draft that is not this message
        trace=turn.trace[begun:],
    )


def commit(
    *,
    turn: Turn,
    draft: Draft,
    channel: Channel | None = None,
    idempotency_key: str | None = None,
    parent: Message | None = None,
    tags: Mapping[str, str] | None = None,
) -> Message:
    """Save a reviewed draft as a message, in one short transaction with what the stages log of it and the replies it queues.

    Args:
        turn: Whose words these are. Its session in the channel ends.
        draft: What is said.
        channel: Where; default the turn's channel of the moment.
        idempotency_key: The same key never commits twice: the message committed first is returned.
        parent: The message whose thread it is said in; default the thread of the turn's trigger.
        tags: Tags of the message.

    Raises:
        SendRefused: The channel is gone, or the key belongs to another message.
        StageFailed: A required stage failed; nothing was saved.
    """
    return _save(turn, channel or turn.channel, draft, idempotency_key, parent, tags)[0]


def _save(
    turn: Turn,
    where: Channel,
    draft: Draft,
    idempotency_key: str | None,
    parent: Message | None,
    tags: Mapping[str, str] | None,
) -> tuple[Message, bool]:
    """What `commit` does; and whether the message is new, not the one that the key had committed before."""
    is_first = True
    try:
        with transaction.atomic():
            message = append(
                channel=where,
                agent=turn.agent,
                run=turn.run,
                persona_version_id=turn.persona_version_id,
                parent_id=parent.pk if parent is not None else _thread(turn, where),
                text=draft.text,
                payload=storable(dict(draft.payload)),
                idempotency_key=idempotency_key or None,
                tags={**tags_of(turn.overrides), **(tags or {})},
            )
            pipeline(turn.overrides).committed(turn, message)
            queue_replies(message=message, depth=turn.run.depth + 1 if turn.run is not None else 1)
    except ChannelGone as error:
        raise SendRefused(str(error)) from error
    except IntegrityError:  # somebody else was faster with this key; the savepoint keeps an outer transaction usable
        if not idempotency_key or not Message.objects.filter(idempotency_key=idempotency_key).exists():
            raise
        message, is_first = _first_result(turn, where, idempotency_key), False
    turn.sessions.pop(where.pk, None)
    turn.revisions.pop(where.pk, None)
    return message, is_first


def _review(turn: Turn, draft: Draft) -> Accept | Revise:
    """What the stages say of the draft; past the hard cap on revisions it passes as it is, and the trace says so."""
    outcome = pipeline(turn.overrides).review(turn, draft)
    if isinstance(outcome, Accept):
        if (fault := fault_of(outcome.draft.text)) is None:
            return outcome
        return _passed_over(
            turn, draft, f"a stage made a draft that cannot be said ({fault}); sent as the agent wrote it"
        )
    times = turn.revisions.get(turn.channel.pk, 0)
    if times >= settings.TURN_MAX_REVISIONS:
        return _passed_over(turn, draft, f"sent back {times} times already (TURN_MAX_REVISIONS); sent as it is")
    turn.revisions[turn.channel.pk] = times + 1
    return outcome


def _passed_over(turn: Turn, draft: Draft, why: str) -> Accept:
    turn.trace.append(TraceEntry("pipeline", "review", why=why))
    return Accept(draft)


def _sent_back(turn: Turn, text: str, revise: Revise, begun: int) -> SendResult:
    if revise.session:
        turn.sessions[turn.channel.pk] = revise.session
    return SendResult(
        committed=False,
        outcome=revise.outcome or "sent_back",
        text=text,
        feedback=revise.feedback,
        session=turn.session,
        reports=dict(turn.reports),
        trace=turn.trace[begun:],
    )


def _first_result(turn: Turn, channel: Channel, key: str) -> Message:
    message = Message.objects.select_related("channel", "agent").get(idempotency_key=key)
    if message.agent_id != turn.agent.pk or message.channel_id != channel.pk:
        raise SendRefused(
            f"idempotency key {key!r} was used for another message (by {message.author_name} in {message.channel.slug}); "
            "allowed: a key per message"
        )
    turn.sessions.pop(channel.pk, None)
    turn.revisions.pop(channel.pk, None)
    return message


def _thread(turn: Turn, channel: Channel) -> int | None:
    trigger = turn.trigger
    return trigger.parent_id if trigger is not None and trigger.channel_id == channel.pk else None
