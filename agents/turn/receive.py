"""A human message arrives: it is saved, the stages hear of it, and the agents it is addressed to get their turns."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from agents.models import Agent, Channel, Message, Run
from agents.turn.pipeline import StageFailed, pipeline
from agents.turn.send_message import (
    ChannelGone,
    SendRefused,
    agents_of,
    append,
    check_extras,
    fault_of,
    queue,
    reply_key,
)

logger = logging.getLogger(__name__)
MOST_ADDRESSED = 50  # agents by one message: the stages hear of it once for each, while its sender waits


def receive_message(
    *,
    channel: Channel,
    user: AbstractBaseUser | None = None,
    outsider: str = "",
    text: str,
    parent: Message | None = None,
    idempotency_key: str = "",
    tags: Mapping[str, str] | None = None,
) -> Message:
    """Save what a person said and queue the turns of the agents it is addressed to.

    Addressed are, in a direct message, all agents in it; elsewhere those members whom the text names by ``@slug`` or display name.
    In a channel that is only played nobody is addressed. Stages may call models when they hear of it: no transaction may be open here.

    Args:
        channel: Where.
        user: Who said it, or `outsider`, the name of somebody who is no user; exactly one of the two.
        text: 1 to 100,000 characters, not only white space.
        parent: The message whose thread it is said in.
        idempotency_key: The same key saves one message only. Calling again with it makes up for what a crash left undone.
        tags: Tags of the message.

    Raises:
        SendRefused: The text, the author, the parent, the tags or the key cannot be taken, or it is addressed to too many agents.
    """
    _check(channel, user, outsider, text, parent, idempotency_key, tags)
    agents = [] if channel.synthetic else addressed(channel, text)
    if len(agents) > MOST_ADDRESSED:
        raise SendRefused(
            f"the message is addressed to {len(agents)} agents of channel {channel.slug!r}; allowed: at most {MOST_ADDRESSED}, "
            "named in a channel that is no direct message"
        )
    message = _save(channel, user, outsider, text, parent, idempotency_key, tags)
    for agent in agents if not message.synthetic else ():
        try:
            _hear(message, agent)
        except Exception:  # it is said: the others hear of it, and its sender is not told to say it again
            logger.exception("no turn of agent %s for message %s", agent.slug, message.pk)
    return message


def addressed(channel: Channel, text: str) -> list[Agent]:
    """The active agents of the channel whom a person's text is addressed to."""
    members = agents_of(channel)
    if channel.kind == Channel.Kind.DM:
        return members
    return [agent for agent in members if _named(agent, text)]


def _named(agent: Agent, text: str) -> bool:
    """Whether the text names the agent, whatever the case: ``@slug``, or the whole display name."""
    name = r"\s+".join(re.escape(word) for word in agent.display_name.split())
    mention = rf"(?<![\w@])@{re.escape(agent.slug)}(?![\w-])"
    return re.search(mention + (rf"|(?<!\w){name}(?!\w)" if name else ""), text, re.IGNORECASE) is not None


def _hear(message: Message, agent: Agent) -> None:
    """Let the stages hear of the message, then queue the agent's turn; once, however often it is tried."""
    key = reply_key(message, agent)
    if Run.objects.filter(idempotency_key=key).exists():
        return
    try:
        trace = pipeline().received(message=message, agent=agent)
    except StageFailed as error:
        logger.warning("no turn of agent %s for message %s: %s", agent.slug, message.pk, error)
        return
    queue(
        agent=agent,
        channel=message.channel,
        trigger=message,
        trace=[entry.as_json() for entry in trace],
        idempotency_key=key,
    )


def _save(
    channel: Channel,
    user: AbstractBaseUser | None,
    outsider: str,
    text: str,
    parent: Message | None,
    key: str,
    tags: Mapping[str, str] | None,
) -> Message:
    try:
        with transaction.atomic():
            return append(
                channel=channel,
                user=user,
                outsider=outsider.strip(),
                text=text,
                parent=parent,
                idempotency_key=key or None,
                tags=dict(tags or {}),
            )
    except ChannelGone as error:
        raise SendRefused(str(error)) from error
    except IntegrityError:
        first = Message.objects.select_related("channel").filter(idempotency_key=key).first() if key else None
        if first is None:
            raise
        mine = (first.channel_id, first.user_id, first.outsider) == (
            channel.pk,
            user.pk if user else None,
            outsider.strip(),
        )
        if not mine:
            raise SendRefused(
                f"idempotency_key {key!r} was used for another message; allowed: a key per message"
            ) from None
        return first


def _check(
    channel: Channel,
    user: AbstractBaseUser | None,
    outsider: str,
    text: str,
    parent: Message | None,
    key: str,
    tags: Mapping[str, str] | None,
) -> None:
    if (user is None) == (not outsider.strip()):
        raise SendRefused("a message has one author; allowed: user, or outsider with a name, not both")
    if fault := fault_of(outsider.strip() or "user"):
        raise SendRefused("outsider: " + fault)
    if len(outsider.strip()) > 200:
        raise SendRefused(f"outsider has {len(outsider.strip())} characters; allowed: at most 200")
    if fault := fault_of(text):
        raise SendRefused(fault)
    if parent is not None and parent.channel_id != channel.pk:
        raise SendRefused(f"parent {parent.pk} is not in channel {channel.slug!r}; allowed: a message of that channel")
    check_extras(key, tags)
