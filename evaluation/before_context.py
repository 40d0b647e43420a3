"""What was said just before messages, read for many of them at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from django.db.models import Q

from agents.models import Agent, Message
from evaluation.judge.prompts import Event
from evaluation.scorers.subjects import Said, said

SAID_BEFORE = 2  # messages shown before the one judged
NEAR = 10  # positions looked at in one query; what was simulated there makes it look further
AT_ONCE = 100  # messages per query: databases limit how many conditions one may have


def just_before(
    agent: Agent, messages: Sequence[Message], unseen: Collection[int] = ()
) -> dict[int, tuple[Event, ...]]:
    """The last things really said before each message in its channel, oldest first, by the message's key.

    Args:
        agent: Who is judged: what it said is its own action, everybody else's is what it answered to.
        messages: Messages of any channels. One query per hundred, and one for each that has only simulated ones near it.
        unseen: Keys of messages that are never shown.
    """
    found: dict[int, tuple[Event, ...]] = {}
    for start in range(0, len(messages), AT_ONCE):
        found |= _of_some(agent, messages[start : start + AT_ONCE], unseen)
    return found


def _of_some(agent: Agent, messages: Sequence[Message], unseen: Collection[int]) -> dict[int, tuple[Event, ...]]:
    near = Q(pk__in=[])
    for message in messages:
        near |= Q(channel=message.channel_id, position__lt=message.position, position__gte=message.position - NEAR)
    spoken = Message.objects.filter(synthetic=False).exclude(pk__in=unseen)
    by_channel: dict[int, list[Said]] = defaultdict(list)
    for row in said(spoken.filter(near).order_by("position")):
        by_channel[row.channel_id].append(row)
    found = {}
    for message in messages:
        first = message.position - NEAR
        rows = [row for row in by_channel[message.channel_id] if first <= row.position < message.position]
        rows = rows[-SAID_BEFORE:]
        if len(rows) < SAID_BEFORE and first > 1:
            before = spoken.filter(channel=message.channel_id, position__lt=message.position)
            rows = list(reversed(said(before.order_by("-position")[:SAID_BEFORE])))
        found[message.pk] = tuple(_event(agent, row) for row in rows)
    return found


def _event(agent: Agent, row: Said) -> Event:
    if row.agent_id == agent.pk:
        return Event("action", agent.display_name, row.text)
    return Event("stimulus", agent.display_name, row.text, speaker=row.author_name)
