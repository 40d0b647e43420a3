"""The order of a channel: a message takes its position and is saved, in the caller's transaction."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.utils import timezone

from agents.models import Channel, Message

_TAKE_POSITION = """
    UPDATE channels SET next_position = next_position + 1 WHERE id = %s RETURNING next_position - 1, synthetic
"""


class ChannelGone(LookupError):
    """The channel was deleted meanwhile."""


def append(*, channel: Channel, **fields: Any) -> Message:
    """Save the next message of a channel, said now. Two statements; call it inside a short transaction.

    The statement that raises the counter also takes the position (`select_for_update` does nothing on SQLite), so two writers wait
    for each other and never share one.

    Args:
        channel: Where.
        fields: Further columns of `Message`.

    Raises:
        ChannelGone: There is no such channel any more.
        IntegrityError: A constraint speaks against it, e.g. the idempotency key is taken.
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
