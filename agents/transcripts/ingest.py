"""Store messages that were sent elsewhere: once each, without answers of agents; only observing may follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.utils.module_loading import import_string
from pydantic import BaseModel, Field

from agents.models import Agent, Channel, Message
from agents.transcripts.prepare import Author, Prepared, Target
from agents.transcripts.store import Rights, check_rights, link_orphans, write_batch

MOST_MESSAGES = 1_000  # per call: one transaction, in which SQLite lets no other process write
Observer = Callable[[Sequence[Message]], int]
"""Called with new messages inside the transaction that stores them; returns how many it will judge."""


class IngestRefused(ValueError):
    """Messages that are refused; nothing was stored. `errors` says per place, e.g. ``messages[3].agent``, what is wrong."""

    def __init__(self, errors: dict[str, str]) -> None:
        self.errors = errors
        super().__init__("; ".join(errors.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """One message as its source has it. Exactly one of `agent` (slug), `user` (name) and `outsider` is set.

    Attributes:
        channel: Slug; made, as a public channel, where there is none.
        external_id: Its id in its channel: the same id again is the same message.
        parent: `external_id` of the message whose thread it is in.
    """

    channel: str
    external_id: str
    text: str
    agent: str = ""
    user: str = ""
    outsider: str = ""
    sent_at: datetime | None = None
    parent: str = ""
    tags: dict[str, str]
    payload: dict[str, Any]


class Ingested(BaseModel):
    """What became of a batch. ``received = imported + duplicates``."""

    received: int
    imported: int
    duplicates: int = Field(description="stored before, and left as they are")
    other_author: int = Field(description="duplicates that are stored under another author")
    observed: int = Field(description="of the imported, how many wait to be judged")
    replies_without_parent: int = Field(description="sent again after it, they are linked")


def ingest_messages(spoken: Sequence[Spoken], *, rights: Rights | None = None) -> Ingested:
    """Store messages that were said elsewhere, in the order given; those stored already stay as they are.

    One transaction: all of them or none. No stage and no agent sees them; only the `INGEST_OBSERVERS` are called.

    Args:
        spoken: At most `MOST_MESSAGES`.
        rights: What the sender may do; everything by default.

    Raises:
        NotEntitled: They need a channel or a member more than `rights` allow, or are another user's.
        IngestRefused: Too many, or one names an agent or user that does not exist or a synthetic channel.
    """
    if len(spoken) > MOST_MESSAGES:
        text = f"messages: {len(spoken):,} of them; allowed: at most {MOST_MESSAGES:,} in one request"
        raise IngestRefused({"messages": text})
    prepared = _prepared(spoken)
    check_rights(((message.target.slug, message.author) for message in prepared), rights or Rights())
    observers: list[Observer] = [import_string(path) for path in settings.INGEST_OBSERVERS]
    observed = 0

    def observe(new: Sequence[Message]) -> None:
        nonlocal observed
        observed = sum(observer(new) for observer in observers)

    result = write_batch(prepared, on_new=observe)
    return Ingested(
        received=len(spoken),
        imported=result.imported,
        duplicates=result.duplicates,
        other_author=result.other_author,
        observed=observed,
        replies_without_parent=link_orphans(result.orphans) if result.orphans else 0,
    )


def _prepared(spoken: Sequence[Spoken]) -> list[Prepared]:
    agents = dict(Agent.objects.filter(slug__in={one.agent for one in spoken} - {""}).values_list("slug", "pk"))
    names = {one.user for one in spoken} - {""}
    users = dict(get_user_model().objects.filter(username__in=names).values_list("username", "pk")) if names else {}
    targets = {slug: Target(slug=slug, name=slug) for slug in {one.channel for one in spoken}}
    synthetic = set(Channel.objects.filter(slug__in=targets, synthetic=True).values_list("slug", flat=True))
    errors: dict[str, str] = {}
    for number, one in enumerate(spoken):
        at = f"messages[{number}]"
        if one.agent and one.agent not in agents:
            errors[f"{at}.agent"] = f"there is no agent {one.agent!r}; make it first, or send `outsider`"
        if one.user and one.user not in users:
            errors[f"{at}.user"] = f"there is no user {one.user!r}; send `outsider` for a speaker who is none"
        if one.channel in synthetic:
            errors[f"{at}.channel"] = f"channel {one.channel!r} is synthetic: real messages are never mixed with it"
    if errors:
        raise IngestRefused(errors)
    return [
        Prepared(
            target=targets[one.channel],
            key=one.external_id,
            author=Author(agents.get(one.agent), one.agent, users.get(one.user), one.outsider),
            text=one.text,
            sent_at=one.sent_at,
            parent_key=one.parent,
            tags=one.tags,
            payload=one.payload,
            synthetic=False,
            idempotency_key="",
        )
        for one in spoken
    ]
