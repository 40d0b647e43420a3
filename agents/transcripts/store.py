"""Check a sender's permissions and write messages in batches: short transactions, all or nothing, safe beside another writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import F, Q

from agents.models import Agent, Channel, ChannelMember, Import, Message
from agents.transcripts.prepare import Author, Prepared, Target

MAKING, JOINING, SPEAKING = "agents.add_channel", "agents.add_channelmember", "agents.change_channel"
CHUNK = 500


class NotEntitled(Exception):
    """Nothing was stored. The sentence names the channel, who speaks there, and the permission that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What the sender of messages may do; by default everything, as on the command line.

    Attributes:
        make_channels: Have missing channels made.
        add_members: Have agents join existing channels, as every speaker of a channel does.
        speak_for_users: Send what other users said; what `user` said is always allowed.
        user: Primary key of the sender.
    """

    make_channels: bool = True
    add_members: bool = True
    speak_for_users: bool = True
    user: int | None = None


def rights_of(user: User | AnonymousUser) -> Rights:
    return Rights(
        make_channels=user.has_perm(MAKING),
        add_members=user.has_perm(JOINING),
        speak_for_users=user.has_perm(SPEAKING),
        user=user.pk,
    )


def check_rights(authors: Iterable[tuple[str, Author]], rights: Rights) -> None:
    """Raise `NotEntitled` for the first author of a channel (slug) that goes beyond these rights."""
    agents: dict[str, dict[int, str]] = {}  # by channel: primary key to slug
    for channel, author in authors:
        speaking = agents.setdefault(channel, {})
        if author.agent_id is not None:
            speaking[author.agent_id] = author.slug
        if author.user_id not in (None, rights.user) and not rights.speak_for_users:
            name = (
                get_user_model()._default_manager.filter(pk=author.user_id).values_list("username", flat=True).first()
            )
            raise NotEntitled(
                f"user {name!r} in channel {channel!r}: storing what other users said needs the permission {SPEAKING}"
            )
    slugs = [] if rights.make_channels and rights.add_members else list(agents)
    for start in range(0, len(slugs), CHUNK):
        part = slugs[start : start + CHUNK]
        members: dict[str, set[int | None]] = {
            slug: set() for slug in Channel.objects.filter(slug__in=part).values_list("slug", flat=True)
        }
        there = ChannelMember.objects.filter(channel__slug__in=part, agent__isnull=False)
        for slug, pk in there.values_list("channel__slug", "agent_id"):
            members.setdefault(slug, set()).add(pk)
        for channel in part:
            if channel not in members and not rights.make_channels:
                raise NotEntitled(
                    f"there is no channel {channel!r}, and it is only made for users with the permission {MAKING}; have it made "
                    "first, with its agents"
                )
            strangers = sorted(
                slug for pk, slug in agents[channel].items() if pk not in members.get(channel, agents[channel])
            )
            if strangers and not rights.add_members:
                raise NotEntitled(
                    f"agent {strangers[0]!r} is not a member of channel {channel!r}, and only joins it for users with the permission "
                    f"{JOINING}"
                )


Key = tuple[str, str]
"""Channel slug and the message's id in it."""

CHANNELS_PER_QUERY = 200
"""Below SQLite's limit of 1,000 nested conditions."""


class Stored(NamedTuple):
    """A message that is in the database."""

    pk: int
    agent_id: int | None
    user_id: int | None
    outsider: str
    parent_id: int | None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a batch did.

    `other_author`: duplicates that are stored under another author. `orphans`: messages (pk) without the parent (key) they
    should have, because it comes later in the file or an earlier import was killed before it linked them.
    """

    imported: int
    duplicates: int
    other_author: int = 0
    orphans: tuple[tuple[int, Key], ...] = ()


def count_batch(batch: Sequence[Prepared]) -> BatchResult:
    """How many of these messages are new, writing nothing."""
    slugs = {message.target.slug for message in batch}
    channels = {channel.slug: channel for channel in Channel.objects.filter(slug__in=slugs)}
    stored = _stored(channels, {_key(message) for message in batch})
    return _result(batch, _new(batch, stored), stored, ())


def write_batch(
    batch: Sequence[Prepared],
    *,
    job: Import | None = None,
    on_new: Callable[[Sequence[Message]], None] | None = None,
) -> BatchResult:
    """Store the messages of a batch that are not stored yet, in one transaction, as messages of the import `job`.

    The channels' rows are locked first, so that two writers neither take a position twice nor store a message twice.
    `on_new` is called with the new messages, inside the transaction.
    """
    with transaction.atomic():
        channels = _locked_channels({message.target.slug: message.target for message in batch})
        parents = {_parent(message) for message in batch if message.parent_key}
        stored = _stored(channels, {_key(message) for message in batch} | parents)
        new = _new(batch, stored)
        rows = _rows(new, channels, stored, job)
        Message.objects.bulk_create(rows.values())
        _join(channels, sorted({(m.target.slug, m.author.agent_id) for m in new if m.author.agent_id is not None}))
        linked: list[Message] = []
        orphans: list[tuple[int, Key]] = []
        for message in [*new, *(message for message in batch if _key(message) in stored)]:
            row, parent = rows.get(_key(message)), rows.get(_parent(message))
            there = row or stored[_key(message)]
            if not message.parent_key or there.parent_id is not None:
                continue
            if row and parent:
                row.parent_id = parent.pk
                linked.append(row)
            else:
                orphans.append((there.pk, _parent(message)))
        if linked:
            Message.objects.bulk_update(linked, ["parent"], batch_size=250)
        if on_new is not None and rows:
            on_new(list(rows.values()))
    return _result(batch, new, stored, tuple(orphans))


def link_orphans(orphans: Sequence[tuple[int, Key]]) -> int:
    """Link replies to parents that came later in the file; returns how many have no parent at all."""
    lost = 0
    for start in range(0, len(orphans), CHUNK):
        part = orphans[start : start + CHUNK]
        channels = {channel.slug: channel for channel in Channel.objects.filter(slug__in={key[0] for _, key in part})}
        stored = _stored(channels, {key for _, key in part})
        linked = [Message(pk=pk, parent_id=stored[key].pk) for pk, key in part if key in stored]
        Message.objects.bulk_update(linked, ["parent"], batch_size=250)
        lost += len(part) - len(linked)
    return lost


def _key(message: Prepared) -> Key:
    return message.target.slug, message.key


def _parent(message: Prepared) -> Key:
    return message.target.slug, message.parent_key


def _result(
    batch: Sequence[Prepared], new: list[Prepared], stored: dict[Key, Stored], orphans: tuple[tuple[int, Key], ...]
) -> BatchResult:
    duplicates = [(stored[_key(message)], message.author) for message in batch if _key(message) in stored]
    other = sum(there[1:4] != (author.agent_id, author.user_id, author.outsider) for there, author in duplicates)
    return BatchResult(len(new), len(batch) - len(new), other, orphans)


def _locked_channels(targets: dict[str, Target]) -> dict[str, Channel]:
    """The channels by slug, made where missing, their rows locked (on SQLite the database is)."""
    known = set(Channel.objects.filter(slug__in=targets).values_list("slug", flat=True))
    missing = [target for slug, target in sorted(targets.items()) if slug not in known]
    if missing:
        rows = [Channel(slug=t.slug, name=t.name, kind=t.kind, topic=t.topic, tags=dict(t.tags)) for t in missing]
        Channel.objects.bulk_create(rows, ignore_conflicts=True)
    locked = Channel.objects.select_for_update().filter(slug__in=targets).order_by("pk")
    channels = {channel.slug: channel for channel in locked}
    members = sorted((target.slug, slug) for target in missing for slug in target.members)
    if members:
        agents = dict(Agent.objects.filter(slug__in={slug for _, slug in members}).values_list("slug", "pk"))
        _join(channels, [(slug, agents[member]) for slug, member in members if member in agents])
    return channels


def _stored(channels: dict[str, Channel], keys: set[Key]) -> dict[Key, Stored]:
    """Those messages that are stored already."""
    wanted: dict[str, list[str]] = {}
    for slug, key in keys:
        if slug in channels and channels[slug].next_position > 1:  # else nothing was ever stored in it
            wanted.setdefault(slug, []).append(key)
    slugs = {channels[slug].pk: slug for slug in wanted}
    stored: dict[Key, Stored] = {}
    groups = list(wanted.items())
    for start in range(0, len(groups), CHANNELS_PER_QUERY):
        condition = Q()
        for slug, ids in groups[start : start + CHANNELS_PER_QUERY]:
            condition |= Q(channel=channels[slug].pk, external_id__in=ids)
        rows = Message.objects.filter(condition).order_by()
        for channel, key, *rest in rows.values_list("channel_id", "external_id", *Stored._fields):
            stored[slugs[channel], key] = Stored(*rest)
    return stored


def _new(batch: Sequence[Prepared], stored: dict[Key, Stored]) -> list[Prepared]:
    """Those not stored, each once."""
    new: dict[Key, Prepared] = {}
    for message in batch:
        if _key(message) not in stored:
            new.setdefault(_key(message), message)
    return list(new.values())


def _rows(
    new: list[Prepared], channels: dict[str, Channel], stored: dict[Key, Stored], job: Import | None
) -> dict[Key, Message]:
    """Unsaved rows at the next positions of their channels, which are raised in the database."""
    channels_by_count: dict[int, list[int]] = {}
    for slug, count in Counter(message.target.slug for message in new).items():
        channels_by_count.setdefault(count, []).append(channels[slug].pk)
    for count, pks in channels_by_count.items():
        Channel.objects.filter(pk__in=pks).update(next_position=F("next_position") + count)
    # An idempotency key that another message has is not stored again: a copy of a channel keeps none.
    keys = {message.idempotency_key for message in new} - {""}
    existing = (
        Message.objects.filter(idempotency_key__in=keys).values_list("idempotency_key", flat=True) if keys else ()
    )
    used: set[str | None] = {"", *existing}
    said_at = _places_in_time(new)
    rows = {}
    for message in new:
        channel, parent = channels[message.target.slug], stored.get(_parent(message))
        rows[_key(message)] = Message(
            channel=channel,
            position=channel.next_position,
            external_id=message.key,
            agent_id=message.author.agent_id,
            user_id=message.author.user_id,
            outsider=message.author.outsider,
            parent_id=parent.pk if parent else None,
            text=message.text,
            payload=message.payload,
            sent_at=message.sent_at,
            **({"said_at": said_at[_key(message)]} if _key(message) in said_at else {}),
            synthetic=message.synthetic,
            idempotency_key=None if message.idempotency_key in used else message.idempotency_key,
            tags=message.tags,
            imported_by=job,
        )
        used.add(message.idempotency_key)
        channel.next_position += 1
    return rows


def _places_in_time(new: list[Prepared]) -> dict[Key, datetime]:
    """When messages without a time count as said: with the dated one before them in their channel, else with the next one."""
    said_at: dict[Key, datetime] = {}
    for messages in (new, new[::-1]):
        near: dict[str, datetime] = {}
        for message in messages:
            if message.sent_at is not None:
                near[message.target.slug] = message.sent_at
            elif message.target.slug in near:
                said_at.setdefault(_key(message), near[message.target.slug])
    return said_at


def _join(channels: dict[str, Channel], pairs: Sequence[tuple[str, int]]) -> None:
    """Make agents (pk) members of channels (slug); those who are members stay so."""
    rows = [ChannelMember(channel=channels[slug], agent_id=agent) for slug, agent in pairs]
    if rows:
        ChannelMember.objects.bulk_create(rows, ignore_conflicts=True)
