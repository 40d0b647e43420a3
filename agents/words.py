"""What a person said, for the rules by which they are erased (`agents.kit.registry.Erase`)."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from agents.kit.registry import Person
from agents.models import Message


def said_by(person: Person) -> QuerySet[Message]:
    """Return the messages that are theirs."""
    return Message.objects.filter(person.said)


def keys_said_by(person: Person) -> QuerySet[Message, Any]:
    """Return the primary keys of these, for a subquery."""
    return said_by(person).order_by().values("pk")
