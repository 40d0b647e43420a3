"""A human message arrives: it is saved, passed to the stages, and the agents it is addressed to get their turns."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from agents.kit.text.addressing import SHARED, Calls, Party, read_calls
from agents.kit.text.fences import check_name, fault_of
from agents.models import Agent, Channel, Message, Run
from agents.models.conversations import LONGEST_OUTSIDER, names_of_agents, outsider_name
from agents.turn.pipeline import StageFailed, pipeline
from agents.turn.send_message import (
    ChannelGone,
    SendRefused,
    agents_of,
    append,
    check_message,
    queue,
    reply_key,
)

logger = logging.getLogger(__name__)
MOST_REASONS = 5  # of names in a note
RECENT = 100  # messages of a channel: the people who wrote them may be called, too
MOST_ADDRESSED = 50  # agents by one message: the stages get it once for each, while its sender waits


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

    Addressed are, in a direct message, all agents in it; elsewhere those members whom the text calls, see
    `agents.kit.text.addressing`. In a simulation or a debate no agent is addressed. Stages may call models then: no transaction
    may be open here.

    Args:
        channel: Where.
        user: Who said it, or `outsider`, the name of a person who is no user; exactly one of the two.
        text: 1 to 100,000 characters, not only white space.
        parent: The message whose thread it is said in.
        idempotency_key: The same key saves one message only. Calling again with it makes up for what a crash left undone.
        tags: Tags of the message.

    Returns:
        The message; where the key had saved one before, that one. It is saved also where an agent's turn could not be queued.

    Raises:
        SendRefused: The text, the author, the parent, the tags or the key are not allowed, it is addressed to more than 50 agents, the
            channel is gone, or the key belongs to another message. Nothing is saved.
    """
    author = _checked_author(user, outsider)
    check_message(channel=channel, text=text, parent=parent, key=idempotency_key, tags=tags)
    agents: list[Agent] = []
    is_heard = not channel.synthetic and channel.kind != Channel.Kind.DEBATE
    if is_heard:
        agents = addressed(channel, text, parent=parent, author=author.key)
    if len(agents) > MOST_ADDRESSED:
        raise SendRefused(
            f"the message is addressed to {len(agents)} agents of channel {channel.slug!r}; allowed: at most {MOST_ADDRESSED}, "
            "named in a channel that is no direct message"
        )
    try:
        with transaction.atomic():
            message = append(
                channel=channel,
                user=user,
                outsider=author.outsider,
                text=text,
                parent=parent,
                idempotency_key=idempotency_key or None,
                tags=dict(tags or {}),
            )
    except ChannelGone as error:
        raise SendRefused(str(error)) from error
    except IntegrityError:
        if not idempotency_key:
            raise
        first = Message.objects.select_related("channel").filter(idempotency_key=idempotency_key).first()
        if first is None:
            raise
        if (first.channel_id, first.user_id, first.outsider) != (channel.pk, author.user_id, author.outsider):
            raise SendRefused(
                f"idempotency_key {idempotency_key!r} was used for another message; allowed: a key per message"
            ) from None
        message = first
    if message.synthetic:  # the channel may have become a simulation since it was read
        return message
    for agent in agents:
        try:
            _tell_stages_and_queue_turn(message, agent)
        except Exception:  # it is committed: the others are notified, and its sender is not asked to say it again
            logger.exception("no turn of agent %s for message %s", agent.slug, message.pk)
    return message


@dataclass(frozen=True, slots=True)
class _Author:
    """A person who says something: a user, or an outsider by the name under which they are stored."""

    user_id: int | None
    outsider: str

    @property
    def key(self) -> Hashable:
        return _person_key(self.user_id, self.outsider)


def _checked_author(user: AbstractBaseUser | None, outsider: str) -> _Author:
    """Return the author of a message, an outsider marked where an agent has the same name.

    Raises:
        SendRefused: There is none, or there are two, or the outsider's name cannot be stored.
    """
    name = outsider.strip()
    if user is not None and not name:
        return _Author(user.pk, "")
    if user is not None or not name:
        raise SendRefused("a message has one author; allowed: user, or outsider with a name, not both")
    fault = fault_of(name)
    if fault:
        raise SendRefused(f"outsider: {fault}")
    if len(name) > LONGEST_OUTSIDER:
        raise SendRefused(f"outsider has {len(name)} characters; allowed: at most {LONGEST_OUTSIDER}")
    try:
        return _Author(None, outsider_name(check_name(name), names_of_agents()))
    except ValueError as error:
        raise SendRefused(f"outsider: {error}") from None


def addressed(channel: Channel, text: str, *, parent: Message | None, author: Hashable) -> list[Agent]:
    """Return the active agents of the channel to whom a person's text is addressed; `author` is a key of `_person_key`."""
    members = agents_of(channel)
    if channel.kind == Channel.Kind.DM or not members:
        return members
    called = read_calls_in(channel, text, agents=members, parent=parent, author=author).called
    return [agent for agent in members if agent.pk in called]


def _tell_stages_and_queue_turn(message: Message, agent: Agent) -> None:
    """Pass the message to the stages, then queue the agent's turn; once, however often it is tried.

    Where a required stage fails no turn is queued, and the log says why.
    """
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


def why_nobody_is_called(message: Message) -> str:
    """Return why a person's message calls no agent of its group, and how to call one.

    E.g. ``no agent takes a turn: 'Ada' is named and not addressed; to call one, write @ada, or begin or end a sentence with its name
    and a comma``. Empty where it
    calls one, and where agents are not called: in direct messages, simulations and debates.
    """
    channel = message.channel
    if channel.synthetic or channel.kind in (Channel.Kind.DM, Channel.Kind.DEBATE):
        return ""
    agents = agents_of(channel)
    if not agents:
        return "no agent takes a turn: channel has no active agent as a member"
    author = _person_key(message.user_id, message.outsider)
    calls = read_calls_in(channel, message.text, agents=agents, parent=message.parent, author=author)
    slugs = {agent.pk: agent.slug for agent in agents}
    if calls.called & slugs.keys():
        return ""
    reasons: list[str] = []
    suggested: list[str] = [slugs[key] for _, key in calls.names if key in slugs]
    for name, key in calls.names:  # as written in the text, with the key of who has it: an agent, a person, or `SHARED`
        if key in slugs:
            reasons.append(f"{name[:80]!r} is named and not addressed")
            continue
        reasons.append(f"{name[:80]!r} " + ("is the name of several here" if key == SHARED else "is a person here"))
        suggested += _slugs_of_bearers(name, key, agents)  # agents that have this name, too
    why = "; ".join(reasons[:MOST_REASONS]) or "it names none of them"
    each_once = list(dict.fromkeys(suggested or slugs.values()))
    ways = ", ".join(f"@{slug}" for slug in each_once[:MOST_REASONS])
    return (
        f"no agent takes a turn: {why}; to call one, write {ways}, or begin or end a sentence with its name and a comma"
    )


def _slugs_of_bearers(name: str, key: Hashable, agents: Sequence[Agent]) -> list[str]:
    """Return the slugs of the agents that are called so."""
    full_name = Party.named(key, name).full_name
    parties = [_party(agent) for agent in agents]
    return [party.slug for party in parties if full_name in (party.slug, *party.names)]


def read_calls_in(
    channel: Channel, text: str, *, agents: Sequence[Agent], parent: Message | None = None, author: Hashable = None
) -> Calls:
    """Read whom a person's text calls in a channel, agents by their primary keys. One query.

    The people who wrote lately (the last 100 messages) are known by name, too, so that what is said to them is said to no agent. The
    author is not among them, nor anyone with the full name of an agent: that name calls the agent.

    Args:
        parent: The message that is replied to: its author is called by that alone.
        author: Key of `_person_key` of who wrote the text; None = unknown.
    """
    recent = Message.objects.filter(channel=channel).order_by("-position")
    rows: Any = recent.values_list(
        "agent_id", "user_id", "outsider", "user__username", "user__first_name", "user__last_name"
    )
    people: dict[Hashable, Any] = {}
    for row in rows[:RECENT]:
        agent_id, user_id, outsider, *_ = row
        if agent_id is None:
            people[_person_key(user_id, outsider)] = row
    parties = [_party(agent) for agent in agents]
    names_of_agents_here = {party.full_name for party in parties}
    for key, (_, _, outsider, username, first_name, last_name) in people.items():
        name = outsider or f"{first_name} {last_name}".strip() or username
        party = Party.named(key, name, slug=username or "", person=True)
        if key != author and party.full_name not in names_of_agents_here:
            parties.append(party)
    author_of_parent: Hashable = None
    if parent is not None:
        author_of_parent = parent.agent_id or _person_key(parent.user_id, parent.outsider)
    return read_calls(text, parties, replied_to=author_of_parent)


def _party(agent: Agent) -> Party:
    return Party.named(agent.pk, agent.display_name, slug=agent.slug, aliases=agent.aliases)


def _person_key(user_id: int | None, outsider: str | None) -> Hashable:
    """Return the key of a person who is a user, or an outsider of that name."""
    if user_id:
        return ("user", user_id)
    return ("outsider", outsider)


def text_addressed_to(message: Message, agent: Agent) -> str:
    """Return the sentences of a person's message that are said to an agent or to nobody in particular.

    All of the text where it is the only active agent of the channel; empty where every sentence is said to others.
    """
    agents = agents_of(message.channel)
    is_alone = [member.pk for member in agents] == [agent.pk]
    if is_alone:
        return message.text
    author = _person_key(message.user_id, message.outsider)
    calls = read_calls_in(message.channel, message.text, agents=agents, parent=message.parent, author=author)
    return calls.said_to(agent.pk)
