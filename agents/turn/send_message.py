"""Saying something: a draft passes the review stages; what passes is committed with everything that belongs to it.

Also queues turns: one that is asked for (`start_turn`), and those that a direct message calls forth (`queue_replies`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import sentry_sdk
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, OuterRef, Subquery
from django.utils import timezone

from agents.kit.text.fences import fault_of
from agents.kit.text.storable import storable
from agents.kit.work.queues import wake_workers
from agents.models import Agent, Channel, ChannelMember, Message, PersonaVersion, Run
from agents.models.conversations import validate_tags
from agents.turn.pipeline import (
    Accept,
    Draft,
    Overrides,
    Revise,
    SendResult,
    StageFailed,
    TraceEntry,
    Turn,
    agent_facts,
    pipeline,
    speaker_of,
)

KEY_CHARACTERS = 200


class SendRefused(ValueError):
    """The message cannot be said at all. Its text names what is wrong and what is allowed."""


class RequiredStageFailed(SendRefused):
    """A stage without which nothing may be said failed."""


class ChannelGone(LookupError):
    """The channel was deleted meanwhile."""


class TurnRefused(ValueError):
    """The turn cannot begin. Its text names what is wrong and what is allowed."""


def check_message(
    *, channel: Channel, text: str, parent: Message | None, key: str, tags: Mapping[str, str] | None
) -> None:
    """Check that text, parent, idempotency key and tags can be stored as a message of the channel.

    Raises:
        SendRefused: The text is blank, over 100,000 characters or holds what no database stores; the parent is in another channel; the
            key is over 200 characters; a tag is no pair of texts, or its key does not begin with a letter. Says what is allowed.
    """
    fault = fault_of(text)
    if fault:
        raise SendRefused(fault)
    if parent is not None and parent.channel_id != channel.pk:
        raise SendRefused(f"parent {parent.pk} is not in channel {channel.slug!r}; allowed: a message of that channel")
    if len(key) > KEY_CHARACTERS or storable(key) != key:
        raise SendRefused(
            f"idempotency_key has {len(key)} characters; allowed: at most {KEY_CHARACTERS}, without NUL characters"
        )
    if tags:
        try:
            validate_tags(dict(tags))
        except ValidationError as error:
            raise SendRefused("tags: " + " ".join(error.messages)) from error


@dataclass(frozen=True, slots=True)
class _Admission:
    """An agent that may speak in a channel.

    Attributes:
        version_id: Its latest persona version; None where it has none.
        facts: What is known of it, by the names that apps declare (`agent_facts`).
        was_sent: Whether an earlier send with the same idempotency key made a message.
    """

    version_id: int | None
    facts: dict[str, bool]
    was_sent: bool


def _admit(agent: Agent, channel: Channel, key: str) -> _Admission:
    """Check that the agent may speak in the channel, and read what sending needs to know of it; one query.

    Raises:
        SendRefused: It may not. What an earlier send with this key made is answered all the same.
    """
    newest_version = PersonaVersion.objects.filter(agent=OuterRef("pk")).order_by("-number").values("pk")[:1]
    facts = agent_facts()
    columns: dict[str, Any] = {
        **facts,
        "member": Exists(ChannelMember.objects.filter(agent=OuterRef("pk"), channel=channel)),
        "version": Subquery(newest_version),
    }
    if key:
        columns["earlier"] = Subquery(Message.objects.filter(idempotency_key=key).order_by().values("pk")[:1])
    row = Agent.objects.filter(pk=agent.pk).annotate(**columns).values("is_active", *columns).first()
    if row is None:
        raise SendRefused(f"agent {agent.slug!r} no longer exists")
    was_sent = row.get("earlier") is not None
    if not was_sent and not row["is_active"]:
        raise SendRefused(f"agent {agent.slug!r} is inactive; allowed: active agents")
    if not was_sent and not row["member"]:
        raise SendRefused(_no_member(agent, channel))
    return _Admission(row["version"], {name: row[name] for name in facts}, was_sent)


def _no_member(agent: Agent, channel: Channel) -> str:
    """Return the sentence that refuses an agent in a channel that it has not joined."""
    joined = Channel.objects.filter(memberships__agent=agent).order_by("slug").values_list("slug", flat=True)
    allowed = ", ".join(joined[:30]) or "none, it has joined no channel"
    return f"agent {agent.slug!r} is not a member of channel {channel.slug!r}; allowed: {allowed}"


_TAKE_POSITION = """
    UPDATE channels SET next_position = next_position + 1 WHERE id = %s RETURNING next_position - 1, synthetic
"""


def append(*, channel: Channel, **fields: Any) -> Message:
    """Save the next message of a channel, said now; it is synthetic where the channel is. Two statements, inside a short transaction.

    The statement that raises the counter also takes the position (`select_for_update` does nothing on SQLite), so two writers wait
    for each other and never share one.

    Args:
        channel: Where.
        fields: Further columns of `Message`.

    Raises:
        ChannelGone: There is no such channel any more.
        IntegrityError: A constraint speaks against it, e.g. the idempotency key is in use.
    """
    with connection.cursor() as cursor:
        cursor.execute(_TAKE_POSITION, [channel.pk])
        row = cursor.fetchone()
    if row is None:
        raise ChannelGone(f"channel {channel.slug!r} no longer exists")
    position, synthetic = row
    message = Message(channel=channel, position=position, synthetic=bool(synthetic), sent_at=timezone.now(), **fields)
    message.save(force_insert=True)
    return message


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
        if overrides is None:
            overrides = run.overrides if run is not None else {}
        speaker = speaker_of(agent, overrides)
        turn = Turn(agent=speaker, channel=channel, run=run, trigger=trigger, overrides=overrides)
    if session:
        turn.sessions[channel.pk] = session
    check_message(channel=channel, text=text, parent=parent, key=idempotency_key, tags=tags)
    channel_of_turn = turn.channel
    key_before = turn.draft_key
    turn.channel = channel
    turn.draft_key = idempotency_key
    try:
        with sentry_sdk.start_span(op="agents.send_message", name="send a message") as span:
            result = _review_and_commit(turn, Draft(text, dict(payload or {})), parent=parent, tags=tags)
            span.set_data("outcome", result.outcome)
            return result
    except StageFailed as error:
        raise RequiredStageFailed(f"not sent: a required stage failed ({error})") from error
    finally:  # the turn may say more, elsewhere
        turn.channel = channel_of_turn
        turn.draft_key = key_before


def _review_and_commit(
    turn: Turn, draft: Draft, *, parent: Message | None, tags: Mapping[str, str] | None
) -> SendResult:
    """Pass a draft of the turn through the review stages, and commit it or return it with their feedback.

    A draft whose key (`turn.draft_key`) committed a message before is not reviewed: the result is that message.

    Raises:
        SendRefused: The agent may not speak there, the channel is gone, or the key belongs to another message.
        StageFailed: A required stage failed.
    """
    first_entry = len(turn.trace)  # of the trace that is about this draft
    admission = _admit(turn.agent, turn.channel, turn.draft_key)
    turn.facts = admission.facts
    if admission.was_sent:
        return _result_of_earlier_send(_message_committed_first(turn, turn.channel, turn.draft_key), turn, first_entry)
    speaks_as_stored = not Overrides.of(turn.overrides).system_prompt
    if speaks_as_stored:  # under another prompt it speaks as no stored version
        turn.persona_version_id = turn.persona_version_id or admission.version_id
    outcome = _review_within_limits(turn, draft)
    if isinstance(outcome, Revise):
        return _sent_back(turn, draft.text, outcome, first_entry)
    message, is_new = commit(turn=turn, draft=outcome.draft, idempotency_key=turn.draft_key, parent=parent, tags=tags)
    if not is_new:
        return _result_of_earlier_send(message, turn, first_entry)
    return SendResult(
        committed=True,
        outcome=outcome.outcome or "sent",
        text=message.text,
        message=message,
        reports=dict(turn.reports),
        trace=turn.trace[first_entry:],
    )


def _result_of_earlier_send(message: Message, turn: Turn, first_entry: int) -> SendResult:
    """Return the result of a draft whose key had committed a message before; the stages' reports are not of that message."""
    return SendResult(
        committed=True, outcome="sent", text=message.text, message=message, trace=turn.trace[first_entry:]
    )


def commit(
    *,
    turn: Turn,
    draft: Draft,
    channel: Channel | None = None,
    idempotency_key: str | None = None,
    parent: Message | None = None,
    tags: Mapping[str, str] | None = None,
) -> tuple[Message, bool]:
    """Save a reviewed draft as a message, in one short transaction with what the stages log of it and the replies it queues.

    Args:
        turn: Whose words these are. Its session in the channel ends.
        draft: What is said.
        channel: Where; default the turn's channel of the moment.
        idempotency_key: The same key never commits twice.
        parent: The message whose thread it is said in; default the thread of the turn's trigger.
        tags: Tags of the message.

    Returns:
        The message, and whether it is new, not the one that the key had committed before.

    Raises:
        SendRefused: The channel is gone, or the key belongs to another message.
        StageFailed: A required stage failed; nothing was saved.
        IntegrityError: Another constraint than that of the key speaks against it.
    """
    where = channel or turn.channel
    trigger = turn.trigger
    parent_id: int | None = None
    if parent is not None:
        parent_id = parent.pk
    elif trigger is not None and trigger.channel_id == where.pk:
        parent_id = trigger.parent_id
    is_new = True
    try:
        with transaction.atomic():
            message = append(
                channel=where,
                agent=turn.agent,
                run=turn.run,
                persona_version_id=turn.persona_version_id,
                parent_id=parent_id,
                text=draft.text,
                payload=storable(dict(draft.payload)),
                idempotency_key=idempotency_key or None,
                tags={**Overrides.of(turn.overrides).tags, **(tags or {})},
            )
            pipeline(turn.overrides).committed(turn, message)  # calls the hook `committed` of every stage, e.g. to log
            queue_replies(message=message, depth=turn.run.depth + 1 if turn.run is not None else 1)
    except ChannelGone as error:
        raise SendRefused(str(error)) from error
    except IntegrityError:  # another process was faster with this key; the savepoint keeps an outer transaction usable
        if not idempotency_key or not Message.objects.filter(idempotency_key=idempotency_key).exists():
            raise
        message = _message_committed_first(turn, where, idempotency_key)
        is_new = False
    turn.sessions.pop(where.pk, None)
    turn.revisions.pop(where.pk, None)
    return message, is_new


def _review_within_limits(turn: Turn, draft: Draft) -> Accept | Revise:
    """Return what the stages decide of the draft, and count it where they send it back.

    It is accepted as the agent wrote it, and the trace says why, where a stage rewrote it to what cannot be said, or where a stage
    would send it back once more than `TURN_MAX_REVISIONS` allows.

    Raises:
        StageFailed: A required stage failed.
    """
    outcome = pipeline(turn.overrides).review(turn, draft)
    if isinstance(outcome, Accept):
        fault = fault_of(outcome.draft.text)
        if fault is None:
            return outcome
        why = f"a stage made a draft that cannot be said ({fault}); sent as the agent wrote it"
    else:
        times = turn.revisions.get(turn.channel.pk, 0)
        if times < settings.TURN_MAX_REVISIONS:
            turn.revisions[turn.channel.pk] = times + 1
            return outcome
        why = f"sent back {times} times already (TURN_MAX_REVISIONS); sent as it is"
    turn.trace.append(TraceEntry("pipeline", "review", why=why))
    return Accept(draft)


def _sent_back(turn: Turn, text: str, revise: Revise, first_entry: int) -> SendResult:
    """Return the result of a draft that a stage sent back; the next attempt continues its session.

    The feedback is masked: it names nobody whom the agent must not know (`Turn.mask`).

    Args:
        text: The draft.
        first_entry: Index of the first entry of the trace that is about this draft.
    """
    if revise.session:
        turn.sessions[turn.channel.pk] = revise.session
    return SendResult(
        committed=False,
        outcome=revise.outcome or "sent_back",
        text=text,
        feedback=turn.mask(revise.feedback),
        session=turn.session,
        reports=dict(turn.reports),
        trace=turn.trace[first_entry:],
    )


def _message_committed_first(turn: Turn, channel: Channel, key: str) -> Message:
    """Return the message that this idempotency key committed first, and end the turn's session, with its revisions, in the channel.

    Raises:
        SendRefused: It is of another agent or in another channel.
    """
    message = Message.objects.select_related("channel", "agent").get(idempotency_key=key)
    if message.agent_id != turn.agent.pk or message.channel_id != channel.pk:
        raise SendRefused(
            f"idempotency key {key!r} was used for another message (by {message.author_name} in {message.channel.slug}); "
            "allowed: a key per message"
        )
    turn.sessions.pop(channel.pk, None)
    turn.revisions.pop(channel.pk, None)
    return message


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
        idempotency_key: The same key queues one turn only: the first is returned as it is, whatever the other arguments.

    Raises:
        TurnRefused: The agent is inactive or not a member, the trigger stands elsewhere, or the key belongs to another turn.
    """
    if not agent.is_active:
        raise TurnRefused(f"agent {agent.slug!r} is inactive; allowed: active agents")
    if not ChannelMember.objects.filter(agent=agent, channel=channel).exists():
        raise TurnRefused(_no_member(agent, channel))
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
    """Save the row that is the work, and wake a worker when the transaction is committed.

    Args:
        idempotency_key: Of the turn; None or empty = it has none.
        fields: Further columns of `Run`.

    Returns:
        The new run; where the key had queued one before, that one, which may be of another agent: nothing is saved then.
    """
    try:
        with transaction.atomic():
            run: Run = Run.objects.create(
                agent=agent, channel=channel, idempotency_key=idempotency_key or None, **fields
            )
    except IntegrityError:
        if not idempotency_key:
            raise
        first: Run | None = Run.objects.filter(idempotency_key=idempotency_key).first()
        if first is None:
            raise
        return first
    transaction.on_commit(partial(wake_workers, "interactive"))
    return run


def queue_replies(*, message: Message, depth: int) -> list[Run]:
    """Queue the turns of agents that an agent's direct message is for; none past `TURN_MAX_REPLY_DEPTH`, none in a simulation.

    A turn that still waits to answer the same conversation answers this message instead of an older one: a person who says two things at
    once gets one reply.

    Args:
        message: What was just saved, in the same transaction.
        depth: Of the turns to queue: how many agents' replies led to them without a person.

    Returns:
        The turns queued now, without those that waited already.
    """
    channel = message.channel
    if channel.kind != Channel.Kind.DM or message.synthetic or depth > settings.TURN_MAX_REPLY_DEPTH:
        return []
    queued = []
    for other in agents_of(channel):
        if other.pk == message.agent_id:
            continue
        # A turn that was leased before (`attempt`) has read the conversation; one with a prompt does what an operator asks.
        waiting = Run.objects.filter(
            agent=other, channel=channel, depth=depth, status=Run.Status.PENDING, attempt=0, prompt=""
        )
        is_waiting = waiting.update(trigger=message)  # conditional: one that is being leased right now does not count
        if not is_waiting:
            key = reply_key(message, other)
            queued.append(queue(agent=other, channel=channel, trigger=message, depth=depth, idempotency_key=key))
    return queued


def reply_key(message: Message, agent: Agent) -> str:
    """Return the idempotency key of the turn in which `agent` answers `message`."""
    return f"message:{message.pk}:{agent.pk}"


def agents_of(channel: Channel) -> list[Agent]:
    """Return the active agents of a channel."""
    member = ChannelMember.objects.filter(channel=channel, agent=OuterRef("pk"))
    return list(Agent.objects.filter(Exists(member), is_active=True).order_by("slug"))
