"""Plain functions that put an agent, a channel or a message into the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from agents.models import Agent, Channel, Message
from agents.personas.persona import TraitValue, save_persona

MONDAY = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)


def make_agent(
    slug: str = "ada",
    *,
    display_name: str = "",
    system_prompt: str = "You are Ada, a dry and careful clerk.",
    traits: Sequence[TraitValue] = (),
    **fields: Any,
) -> Agent:
    """An agent with its first persona version."""
    agent = Agent(slug=slug, display_name=display_name or slug.capitalize(), system_prompt=system_prompt, **fields)
    save_persona(agent=agent, traits=list(traits), note="test")
    return agent


def make_channel(slug: str = "office", *, kind: str = "public", name: str = "") -> Channel:
    return Channel.objects.create(slug=slug, kind=kind, name=name or slug)


def say(channel: Channel, author: Agent | str, text: str, **fields: Any) -> Message:
    """The next message of a channel, by an agent or by an outsider of that name."""
    channel.refresh_from_db()
    message = Message(
        channel=channel,
        position=channel.next_position,
        agent=author if isinstance(author, Agent) else None,
        outsider=author if isinstance(author, str) else "",
        text=text,
        **fields,
    )
    channel.next_position += 1
    channel.save()
    message.save()
    return message


def talk(agent: Agent, texts: Iterable[str], *, channel: Channel | None = None, **fields: Any) -> list[Message]:
    """What an agent says in a channel, a minute apart from Monday nine o'clock on."""
    if channel is None:
        channel = Channel.objects.filter(slug="office").first() or make_channel()
    channel.refresh_from_db()
    messages = [
        Message(
            channel=channel,
            position=channel.next_position + minute,
            agent=agent,
            text=text,
            **{"sent_at": MONDAY + timedelta(minutes=minute), **fields},
        )
        for minute, text in enumerate(texts)
    ]
    channel.next_position += len(messages)
    channel.save()
    return Message.objects.bulk_create(messages)


def speaking(slug: str, texts: Iterable[str], **talked: Any) -> Agent:
    """An agent that said this, see `talk`."""
    agent = make_agent(slug)
    talk(agent, texts, **talked)
    return agent
