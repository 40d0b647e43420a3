"""The object an address names, or a 404 that says which there are."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework.exceptions import NotFound, ValidationError

from agents.api.filters import no_channel
from agents.finding import no_agent
from agents.models import Agent, Channel, Message


def the_agent(slug: str, among: QuerySet[Agent] | None = None) -> Agent:
    found = (Agent.objects.all() if among is None else among).filter(slug=slug).first()
    if found is None:
        raise NotFound(no_agent(slug))
    return found


def the_channel(slug: str, among: QuerySet[Channel] | None = None) -> Channel:
    found = (Channel.objects.all() if among is None else among).filter(slug=slug).first()
    if found is None:
        raise NotFound(no_channel(slug))
    return found


def the_row(rows: QuerySet[Any], pk: int, what: str) -> Any:
    """The row of this primary key; a number too large for the column is one that is not there."""
    found = rows.filter(pk=pk).first()
    if found is None:
        raise NotFound(f"there is no {what} {str(pk)[:30]}")
    return found


def named_agent(slug: str) -> Agent:
    """The agent that a body names in its field ``agent``."""
    found = Agent.objects.filter(slug=slug).first()
    if found is None:
        raise ValidationError({"agent": [no_agent(slug)]})
    return found


def named_channel(slug: str) -> Channel:
    """The channel that a body names in its field ``channel``."""
    found = Channel.objects.filter(slug=slug).first()
    if found is None:
        raise ValidationError({"channel": [no_channel(slug)]})
    return found


def named_message(pk: int | None, name: str, channel: Channel) -> Message | None:
    """The message that a body names by its id, which must stand in the channel; None when it names none."""
    if pk is None:
        return None
    found = Message.objects.select_related("channel", "agent", "user").filter(pk=pk, channel=channel).first()
    if found is None:
        raise ValidationError({name: [f"{name} {pk}: allowed: the id of a message of channel {channel.slug!r}"]})
    return found
