"""End a reply that gets no further round: store its conversation in a channel, each message once, and end its gate session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.kit.text.cleaner import Cleaner
from agents.kit.work.queues import do_next
from agents.models import Agent, Channel, Message
from agents.models.conversations import names_of_agents, outsider_name
from agents.transcripts.ingest import store_ingested
from agents.transcripts.prepare import NAME_LIMIT, Author, Prepared, Target
from agents.transcripts.readers.traces import ASSISTANT, TOOL_RESULT, Call, Item, PastMessage, conversations
from agents.transcripts.records import SourceMessage
from agents.transcripts.sampling import find_sampler, sample_messages
from agents.transcripts.spans import said_last
from agents.transcripts.store import Rights
from correction.gate.quality_check import newest_version
from correction.gate.sessions import end_session, write_attempt
from correction.litellm.checking import TOOL, CallContext, load_session
from correction.litellm.models import GatedReply
from correction.litellm.replies import ReplySoFar, StoredResult
from correction.models import CorrectionLog, GateSession, Outcome

STORING = "agents.add_message"
LEASE = timedelta(seconds=60)
MOST_ATTEMPTS = 3  # leases of one reply before its crash is final
SECONDS_BEHIND_OTHERS = 5  # until a reply is looked at again that waits for an earlier one of its conversation
Status = GatedReply.Status


def work_one(*, owner: str) -> bool:
    """Store the reply that has been over longest; return whether there was one."""
    return do_next(GatedReply, _end, owner=owner, lease=LEASE, attempts=MOST_ATTEMPTS)


class NotStored(Exception):
    """A conversation cannot be stored; the sentence says why."""


def _end(row: GatedReply) -> dict[str, Any]:
    """Store a reply that is over; return how the work ends, as columns of its row.

    It waits where an earlier reply of its conversation is not stored yet, which is no attempt. A call that got no reply is cancelled.
    Its verdicts are stored also where the conversation cannot be.
    """
    if row.rounds == 0:
        return {"status": Status.CANCELLED, "context": {}}
    if _waits_for_earlier(row):
        later = timezone.now() + timedelta(seconds=SECONDS_BEHIND_OTHERS)
        return {"status": Status.PENDING, "lease_expires_at": later, "attempt": row.attempt - 1}
    context = CallContext.model_validate(row.context)
    replies = [ReplySoFar.model_validate(reply) for reply in row.replies]
    ended: dict[str, Any] = {"status": Status.COMPLETED, "context": {}, "replies": []}
    message: Message | None = None
    if row.conversation and row.agent is not None:
        try:
            message = _store_conversation(row, row.agent, context, replies)
        except NotStored as error:
            ended |= {"status": Status.FAILED, "error": str(error)}
    channel = Channel.objects.filter(slug=row.conversation).first() if row.conversation else None
    for number, reply in enumerate(replies):
        _end_session(reply, row, context, channel, message if number == 0 else None)
    return ended | {"channel": channel, "message": message}


def _waits_for_earlier(row: GatedReply) -> bool:
    """Return whether an earlier reply of the conversation is still open: what it says is said again in the messages of this one."""
    if not row.conversation:
        return False
    open_rows = GatedReply.objects.filter(conversation=row.conversation, status__in=GatedReply.OPEN)
    return open_rows.filter(pk__lt=row.pk, rounds__gt=0).exists()


def _store_conversation(
    row: GatedReply, agent: Agent, context: CallContext, replies: Sequence[ReplySoFar]
) -> Message | None:
    """Store what of the conversation is new, the reply as it was returned among it; return the reply, None where there is none.

    Of several choices the first is stored. Of a new conversation that `ingest_keep` leaves out nothing is.

    Raises:
        NotStored: The user of the token may not store messages, or the channel is a synthetic one.
    """
    slug = row.conversation
    if not row.user.has_perm(STORING):
        raise NotStored(
            f"the user {row.user.get_username()!r}, whose token LiteLLM uses, lacks the permission {STORING}"
        )
    text = replies[0].text if replies else ""
    call = Call(
        id=f"litellm:{row.pk}",
        line=0,
        conversation=slug,
        agent=agent.slug,
        is_model=True,
        started=row.created_at,
        ended=row.last_round_at,
        inputs=[Item(message.role, message.text, message.name) for message in context.messages],
        outputs=[Item(ASSISTANT, text)] if text.strip() else [],
    )
    with transaction.atomic():
        channel = Channel.objects.select_for_update().filter(slug=slug).first()
        if channel is not None and channel.synthetic:
            raise NotStored(f"channel {slug!r} is synthetic: real messages are never mixed with it")
        spoken = {slug: said_last(channel)} if channel is not None else {}
        call.inputs = [_skipped_unless_said(item, spoken.get(slug, []), agent) for item in call.inputs]
        new = [record for record in conversations([call], spoken) if isinstance(record, SourceMessage)]
        if new:
            # The channel is one of the gateway's own, by its name: what may store messages may make it and have the agent join.
            sampler = find_sampler()
            kept = sample_messages(_prepared(new, slug, agent), sampler).kept
            store_ingested(kept, rights=Rights(user=row.user_id), sampler=sampler)
    if not call.outputs:
        return None
    return Message.objects.filter(channel__slug=slug, external_id=f"{call.id}:{len(call.inputs)}").first()


def _skipped_unless_said(item: Item, earlier: Sequence[PastMessage], agent: Agent) -> Item:
    """Return a message of a call. It is skipped where a tool answered, and where it is the assistant's and not stored as the agent's:
    any client can make it up.
    """
    if item.role == TOOL:
        return replace(item, skip=TOOL_RESULT)
    if item.role != ASSISTANT:
        return item
    for speaker, text in earlier:
        if speaker == agent.slug and text.strip() == item.text.strip():
            return item
    return replace(item, skip="not said by the agent here")


def _prepared(messages: Sequence[SourceMessage], slug: str, agent: Agent) -> list[Prepared]:
    """Return messages as they are stored: the assistant's are the agent's, all others an outsider's, whatever their names."""
    cleaner = Cleaner()
    target = Target(slug=slug, name=slug)
    names_taken = names_of_agents()
    prepared: list[Prepared] = []
    for message in messages:
        author = Author(agent_id=agent.pk, slug=agent.slug)
        if message.role != ASSISTANT:
            name = "".join(char for char in " ".join(message.speaker.split()) if char.isprintable())
            author = Author(outsider=outsider_name(name[:NAME_LIMIT] or message.role, names_taken))
        prepared.append(
            Prepared(
                target=target,
                key=message.source_id,
                author=author,
                text=cleaner.shorten(cleaner.text(message.text)),
                sent_at=message.sent_at,
                parent_key="",
                tags={},
                payload={},
                synthetic=False,
                idempotency_key="",
            )
        )
    return prepared


def _end_session(
    reply: ReplySoFar, row: GatedReply, context: CallContext, channel: Channel | None, message: Message | None
) -> None:
    """End the gate session of a reply with its last attempt; one that was ended already (by a worker that died then) stays so.

    A reply of which nothing was checked has none: it is empty, or was only observed.
    """
    session = load_session(reply.session, agent=row.agent, speaker=context.speaker)
    if session.outcome:
        return
    session.channel = channel
    if session.attempts:  # it is stored already, from before there was a channel
        GateSession.objects.filter(pk=session.pk).update(channel=channel)
    if reply.withheld and reply.failure is not None:
        log = _attempt(reply.failure, session, row, text=reply.raw)
        write_attempt(log)
        end_session(log.session, outcome=Outcome.CORRECTED, message=message)
    elif reply.outcome == Outcome.FORCED_THROUGH and reply.failure is not None:  # a later sentence failed, too
        log = _attempt(reply.failure, session, row, text=reply.text, outcome=Outcome.FORCED_THROUGH)
        write_attempt(log, message=message)
    elif reply.outcome is not None:
        end_session(session, outcome=reply.outcome, message=message, sent=None if message is None else reply.best)
    elif reply.result is not None:
        log = _attempt(reply.result, session, row, text=reply.text)
        write_attempt(log, message=message)


def _attempt(
    result: StoredResult, session: GateSession, row: GatedReply, *, text: str, outcome: Outcome | None = None
) -> CorrectionLog:
    """Return the last attempt of a reply, not saved yet."""
    return result.load().log(
        session=session,
        attempt=session.next_number,
        outcome=outcome,
        persona_version_id=newest_version(row.agent),
        original_text=text,
        judged_text=text,
    )
