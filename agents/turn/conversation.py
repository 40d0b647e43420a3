"""The conversation as an agent is shown it: which messages, and how each is written as data."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import timezone

from agents.models import Agent, Channel, Message
from agents.text.fences import neutral
from agents.text.names import one_line

MAX_CHANNELS = 30
EARLIER = "[… other messages were said before …]"


def recent_messages(*, channel: Channel, trigger: Message | None = None) -> list[Message]:
    """The last `TURN_HISTORY_MESSAGES` messages of the channel, or of the trigger's thread (its first message always), oldest first.

    Played speech is shown in channels that are played, and nowhere else.
    """
    limit = settings.TURN_HISTORY_MESSAGES
    said = _messages(channel)
    if trigger is None or trigger.parent_id is None:
        return list(said.order_by("-position")[:limit])[::-1]
    thread = list(said.filter(Q(pk=trigger.parent_id) | Q(parent_id=trigger.parent_id)).order_by("-position")[:limit])
    if all(message.pk != trigger.parent_id for message in thread):
        thread = thread[: limit - 1] + list(said.filter(pk=trigger.parent_id))
    return thread[::-1]


def _messages(channel: Channel) -> QuerySet[Message]:
    shown = Message.objects.filter(channel=channel).select_related("agent", "user", "channel")
    return shown if channel.synthetic else shown.filter(synthetic=False)


def lines(messages: Sequence[Message], *, agent: Agent) -> list[str]:
    """One entry per message: its number, who said it, when, and the text, which cannot pass for another entry.

    The number is the message's position in its channel.
    """
    entries = [_line(message, agent) for message in messages]
    if messages and messages[0].position > 1:
        entries.insert(0, EARLIER)
    return entries


def _line(message: Message, agent: Agent) -> str:
    who = "(you)" if message.agent_id == agent.pk else one_line(message.author_name)
    when = f" [{timezone.localtime(message.sent_at):%Y-%m-%d %H:%M}]" if message.sent_at else ""
    return f"{message.position}. {who}{when}: " + neutral(message.text)[0].replace("\n", "\n    | ")


def within_reach(agent: Agent, channel: Channel) -> QuerySet[Channel]:
    """The channels an agent can speak in while it is in `channel`, by slug.

    Those where it is a member; but what is played stays where it is played: from a played channel none but itself is reached, and
    from real ones no played one.
    """
    mine = Channel.objects.filter(memberships__agent=agent).order_by("slug")
    return mine.filter(pk=channel.pk) if channel.synthetic else mine.filter(synthetic=False)


def channel_lines(agent: Agent, channel: Channel) -> list[str]:
    """One line per channel within the agent's reach, by slug, with what kind it is and who else is in a direct message."""
    mine = within_reach(agent, channel)
    return [
        _channel_line(channel, agent)
        for channel in mine.prefetch_related("memberships__agent", "memberships__user")[:MAX_CHANNELS]
    ]


def _channel_line(channel: Channel, agent: Agent) -> str:
    if channel.kind == Channel.Kind.DM:
        members = [member for member in channel.memberships.all() if member.agent_id != agent.pk]
        names = [m.agent.display_name if m.agent else m.user.get_username() if m.user else "" for m in members]
        return f"{_flat(channel.slug)}: direct message with {', '.join(one_line(name) for name in names) or 'nobody'}"
    topic = f", about: {_flat(channel.topic)}" if channel.topic.strip() else ""
    return f"{_flat(channel.slug)}: {channel.kind} channel {one_line(channel.name)}{topic}"


def _flat(text: str) -> str:
    return neutral(" ".join(text.split()), 200)[0]
