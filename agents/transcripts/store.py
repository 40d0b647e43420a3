"""Check a sender's permissions and write messages in batches: short transactions, whole or not at all, safe beside another writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import F, Q

from agents.models import Agent, Channel, ChannelMember, Import, Message
from agents.transcripts.prepare import Prepared, Target

MAKING, JOINING, SPEAKING = "agents.add_channel", "agents.add_channelmember", "agents.change_channel"
CHUNK = 500


class NotEntitled(Exception):
    """Nothing was stored. The sentence names the channel, who speaks there, and the permission that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What somebody may; unless anything is said everything, as who works at the machine itself may.

    Attributes:
        make_channels: Have channels made that are not there.
        add_members: Have agents join channels that are there, as whoever speaks in one does.
        speak_for_users: Hand in what users said; what `user` said always.
        user: Primary key of whose rights these are.
    """

    make_channels: bool = True
    add_members: bool = True
    speak_for_users: bool = True
    user: int | None = None


def rights_of(user: User | AnonymousUser) -> Rights:
    """Of a user of the API."""
    return Rights(
        make_channels=user.has_perm(MAKING),
        add_members=user.has_perm(JOINING),
        speak_for_users=user.has_perm(SPEAKING),
        user=user.pk,
    )


@dataclass(slots=True)
class Needs:
    """What messages need, as they come by."""

    _agents: dict[str, dict[int, str]] = field(default_factory=dict)  # by channel: primary key to slug
    _users: dict[int, str] = field(default_factory=dict)  # primary key to a channel

    def add(self, message: Prepared) -> None:
        speaking = self._agents.setdefault(message.target.slug, {})
        if message.author.agent_id is not None:
            speaking[message.author.agent_id] = message.author.slug or ""
        if message.author.user_id is not None:
            self._users.setdefault(message.author.user_id, message.target.slug)

    def check(self, rights: Rights) -> None:
        """Raises `NotEntitled` for the first that goes beyond these rights."""
        others = {pk: slug for pk, slug in self._users.items() if pk != rights.user}
        if others and not rights.speak_for_users:
            pk, slug = next(iter(others.items()))
            name = get_user_model()._default_manager.filter(pk=pk).values_list("username", flat=True).first()
            text = f"user {name!r} in channel {slug!r}: what other users said is only handed in with the permission {SPEAKING}"
            raise NotEntitled(text)
        if rights.make_channels and rights.add_members:
            return
        for channel, members in self._channels():
            self._check_channel(channel, members, rights)

    def _check_channel(self, channel: str, members: Mapping[int, object] | None, rights: Rights) -> None:
        if members is None:
            if not rights.make_channels:
                raise NotEntitled(
                    f"there is no channel {channel!r}, and it is only made for users with the permission {MAKING}; have it made "
                    "first, with its agents"
                )
            return
        strangers = sorted(slug for pk, slug in self._agents[channel].items() if pk not in members)
        if strangers and not rights.add_members:
            raise NotEntitled(
                f"agent {strangers[0]!r} is not a member of channel {channel!r}, and only joins it for users with the permission "
                f"{JOINING}"
            )

    def _channels(self) -> Iterator[tuple[str, Mapping[int, object] | None]]:
        """Each channel with its agents; None where there is none."""
        slugs = list(self._agents)
        for start in range(0, len(slugs), CHUNK):
            part = slugs[start : start + CHUNK]
            found: dict[str, dict[int, None]] = {
                slug: {} for slug in Channel.objects.filter(slug__in=part).values_list("slug", flat=True)
            }
            members = ChannelMember.objects.filter(channel__slug__in=part, agent__isnull=False)
            for slug, pk in members.values_list("channel__slug", "agent_id"):
                if slug in found and pk is not None:
                    found[slug][pk] = None
            yield from ((slug, found.get(slug)) for slug in part)


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
        parents = {(message.target.slug, message.parent_key) for message in batch if message.parent_key}
        stored = _stored(channels, {_key(message) for message in batch} | parents)
        new = _new(batch, stored)
        rows = _rows(new, channels, stored, job)
        Message.objects.bulk_create([row for _, row in rows])
        speaking = {(m.target.slug, m.author.agent_id) for m in new if m.author.agent_id is not None}
        _join(channels, sorted(speaking))
        orphans = _link_parents(rows, stored) + _unlinked(batch, stored)
        if on_new is not None and rows:
            on_new([row for _, row in rows])
    return _result(batch, new, stored, tuple(orphans))


def link_orphans(orphans: Sequence[tuple[int, Key]]) -> int:
    """Link replies to parents that came later in the file; returns how many have no parent at all."""
    lost = 0
    for start in range(0, len(orphans), 500):
        part = orphans[start : start + 500]
        channels = {channel.slug: channel for channel in Channel.objects.filter(slug__in={key[0] for _, key in part})}
        stored = _stored(channels, {key for _, key in part})
        found = [Message(pk=pk, parent_id=stored[key].pk) for pk, key in part if key in stored]
        Message.objects.bulk_update(found, ["parent"], batch_size=250)
        lost += len(part) - len(found)
    return lost


def _key(message: Prepared) -> Key:
    return message.target.slug, message.key


def _result(
    batch: Sequence[Prepared], new: list[Prepared], stored: dict[Key, Stored], orphans: tuple[tuple[int, Key], ...]
) -> BatchResult:
    other = 0
    for message in batch:
        there, author = stored.get(_key(message)), message.author
        other += there is not None and there[1:4] != (author.agent_id, author.user_id, author.outsider)
    return BatchResult(len(new), len(batch) - len(new), other, orphans)


def _locked_channels(targets: dict[str, Target]) -> dict[str, Channel]:
    """The channels by slug, made where missing, their rows locked (on SQLite the whole database is)."""
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
    found: dict[Key, Stored] = {}
    groups = list(wanted.items())
    for start in range(0, len(groups), CHANNELS_PER_QUERY):
        condition = Q()
        for slug, ids in groups[start : start + CHANNELS_PER_QUERY]:
            condition |= Q(channel=channels[slug].pk, external_id__in=ids)
        rows = Message.objects.filter(condition).order_by()
        for channel, key, *rest in rows.values_list("channel_id", "external_id", *Stored._fields):
            found[slugs[channel], key] = Stored(*rest)
    return found


def _new(batch: Sequence[Prepared], stored: dict[Key, Stored]) -> list[Prepared]:
    """Those not stored, each once."""
    new: dict[Key, Prepared] = {}
    for message in batch:
        if _key(message) not in stored:
            new.setdefault(_key(message), message)
    return list(new.values())


def _rows(
    new: list[Prepared], channels: dict[str, Channel], stored: dict[Key, Stored], job: Import | None
) -> list[tuple[Prepared, Message]]:
    """Unsaved rows at the next positions of their channels, which this takes."""
    _take_positions(channels, Counter(message.target.slug for message in new))
    taken = _taken_idempotency_keys(new)
    rows = []
    for message in new:
        channel = channels[message.target.slug]
        parent = stored.get((channel.slug, message.parent_key))
        row = Message(
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
            synthetic=message.synthetic,
            idempotency_key=None if message.idempotency_key in taken else message.idempotency_key,
            tags=message.tags,
            imported_by=job,
        )
        taken.add(message.idempotency_key)
        channel.next_position += 1
        rows.append((message, row))
    return rows


def _take_positions(channels: dict[str, Channel], counts: Counter[str]) -> None:
    """Raise `next_position` in the database; the objects keep the first position that was taken."""
    by_count: dict[int, list[int]] = {}
    for slug, count in counts.items():
        by_count.setdefault(count, []).append(channels[slug].pk)
    for count, pks in by_count.items():
        Channel.objects.filter(pk__in=pks).update(next_position=F("next_position") + count)


def _taken_idempotency_keys(new: list[Prepared]) -> set[str]:
    """Keys that cannot be given: the empty one and those another message has (a copy of a channel keeps none)."""
    keys = {message.idempotency_key for message in new} - {""}
    if not keys:
        return {""}
    taken = Message.objects.filter(idempotency_key__in=keys).values_list("idempotency_key", flat=True)
    return {"", *(key for key in taken if key)}


def _join(channels: dict[str, Channel], pairs: Sequence[tuple[str, int]]) -> None:
    """Make agents (pk) members of channels (slug); those who are members stay so."""
    rows = [ChannelMember(channel=channels[slug], agent_id=agent) for slug, agent in pairs]
    if rows:
        ChannelMember.objects.bulk_create(rows, ignore_conflicts=True)


def _link_parents(rows: list[tuple[Prepared, Message]], stored: dict[Key, Stored]) -> list[tuple[int, Key]]:
    """Link replies to parents of the same batch; returns those whose parent is in neither batch nor database."""
    pks = {_key(message): row.pk for message, row in rows}
    linked, orphans = [], []
    for message, row in rows:
        parent = (message.target.slug, message.parent_key)
        if not message.parent_key or parent in stored:
            continue
        if parent in pks:
            row.parent_id = pks[parent]
            linked.append(row)
        else:
            orphans.append((row.pk, parent))
    if linked:
        Message.objects.bulk_update(linked, ["parent"], batch_size=250)
    return orphans


def _unlinked(batch: Sequence[Prepared], stored: dict[Key, Stored]) -> list[tuple[int, Key]]:
    """Duplicates that are stored without the parent they should have."""
    there = ((message, stored.get(_key(message))) for message in batch if message.parent_key)
    return [
        (row.pk, (message.target.slug, message.parent_key)) for message, row in there if row and row.parent_id is None
    ]
