"""Check a sender's permissions and write messages in batches: short transactions, all or nothing, safe beside another writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Return what a user may do, by their permissions."""
    return Rights(
        make_channels=user.has_perm(MAKING),
        add_members=user.has_perm(JOINING),
        speak_for_users=user.has_perm(SPEAKING),
        user=user.pk,
    )


def check_rights(authors: Iterable[tuple[str, Author]], rights: Rights) -> None:
    """Raise `NotEntitled` for the first author of a channel (slug) that goes beyond these rights.

    Users other than the sender come first, for all channels; then channels that would be made, and agents that would join one.
    """
    agents: dict[str, dict[int, str]] = {}  # by channel: primary key to slug
    for channel, author in authors:
        agents_of_channel = agents.setdefault(channel, {})
        if author.agent_id is not None:
            agents_of_channel[author.agent_id] = author.slug
        if author.user_id not in (None, rights.user) and not rights.speak_for_users:
            users = get_user_model()._default_manager.filter(pk=author.user_id)
            name = users.values_list("username", flat=True).first()
            raise NotEntitled(
                f"user {name!r} in channel {channel!r}: storing what other users said needs the permission {SPEAKING}"
            )
    if rights.make_channels and rights.add_members:
        return
    slugs = list(agents)
    for start in range(0, len(slugs), CHUNK):
        part = slugs[start : start + CHUNK]
        members = _members_of(part)
        for channel in part:
            _check_channel(channel, agents[channel], members.get(channel), rights)


def _members_of(slugs: Sequence[str]) -> dict[str, set[int]]:
    """Return the member agents (pk) of those channels that exist."""
    members: dict[str, set[int]] = {}
    for slug in Channel.objects.filter(slug__in=slugs).values_list("slug", flat=True):
        members[slug] = set()
    memberships = ChannelMember.objects.filter(channel__slug__in=slugs, agent__isnull=False)
    for slug, agent_id in memberships.values_list("channel__slug", "agent_id"):
        members.setdefault(slug, set()).add(agent_id)
    return members


def _check_channel(channel: str, agents: Mapping[int, str], members: set[int] | None, rights: Rights) -> None:
    """Raise `NotEntitled` where a channel would have to be made, or joined by an agent, against these rights.

    Args:
        agents: Primary key to slug of those who speak in it.
        members: Its member agents (pk); None where there is no such channel, which all speakers join when it is made.
    """
    if members is None:
        if not rights.make_channels:
            raise NotEntitled(
                f"there is no channel {channel!r}, and it is only made for users with the permission {MAKING}; have it made "
                "first, with its agents"
            )
        return
    strangers = sorted(slug for agent_id, slug in agents.items() if agent_id not in members)
    if strangers and not rights.add_members:
        raise NotEntitled(
            f"agent {strangers[0]!r} is not a member of channel {channel!r}, and only joins it for users with the permission "
            f"{JOINING}"
        )


Key = tuple[str, str]  # channel slug and the message's id in it
CHANNELS_PER_QUERY = 200  # below SQLite's limit of 1,000 nested conditions


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
    """Count how many of these messages are new, writing nothing."""
    slugs = {message.target.slug for message in batch}
    channels = {channel.slug: channel for channel in Channel.objects.filter(slug__in=slugs)}
    stored = _find_stored(channels, {_key(message) for message in batch})
    return _result(batch, _not_stored(batch, stored), stored, orphans=())


def write_batch(
    batch: Sequence[Prepared],
    *,
    job: Import | None = None,
    on_new: Callable[[Sequence[Message]], None] | None = None,
) -> BatchResult:
    """Store the messages of a batch that are not stored yet, in one transaction, as messages of the import `job`.

    Missing channels are made, and agents who say something new become members. A reply gets its parent where that is stored or in the
    batch; stored replies that lack theirs are reported as orphans, too. The channels' rows are locked first, so that two writers
    neither take a position twice nor store a message twice.

    Args:
        job: The import that is noted on the messages; None: they are of none.
        on_new: Called with the new messages, inside the transaction; not where there are none.
    """
    with transaction.atomic():
        channels = _locked_channels({message.target.slug: message.target for message in batch})
        keys = {_key(message) for message in batch}
        parent_keys = {_parent_key(message) for message in batch if message.parent_key}
        stored = _find_stored(channels, keys | parent_keys)
        new = _not_stored(batch, stored)
        _raise_probabilities(channels, batch, new)
        rows = _unsaved_rows(new, channels, stored, job)
        Message.objects.bulk_create(rows.values())
        _make_members(channels, _speaking_agents(new))
        orphans = _link_to_parents(batch, new, rows, stored)
        if on_new is not None and rows:
            on_new(list(rows.values()))
    return _result(batch, new, stored, orphans)


def _speaking_agents(messages: Iterable[Prepared]) -> list[tuple[str, int]]:
    """Return channel slug and primary key of each agent that says something."""
    speaking: set[tuple[str, int]] = set()
    for message in messages:
        if message.author.agent_id is not None:
            speaking.add((message.target.slug, message.author.agent_id))
    return sorted(speaking)


def _link_to_parents(
    batch: Sequence[Prepared], new: Sequence[Prepared], rows: dict[Key, Message], stored: dict[Key, Stored]
) -> tuple[tuple[int, Key], ...]:
    """Link the new rows of a batch to parents among them; return messages (pk) that are without the parent (key) they should have.

    Args:
        batch: All its messages. Those stored before have a parent already, or are returned: an import may have been killed in between.
        rows: The new messages in the database, by key. Parents stored before are linked already.
    """
    linked: list[Message] = []
    orphans: list[tuple[int, Key]] = []
    duplicates = [message for message in batch if _key(message) in stored]
    for message in [*new, *duplicates]:
        if not message.parent_key:
            continue
        row = rows.get(_key(message))
        parent = rows.get(_parent_key(message))
        in_database = row or stored[_key(message)]
        if in_database.parent_id is not None:
            continue
        if row and parent:
            row.parent_id = parent.pk
            linked.append(row)
        else:
            orphans.append((in_database.pk, _parent_key(message)))
    if linked:
        Message.objects.bulk_update(linked, ["parent"], batch_size=250)
    return tuple(orphans)


def link_orphans(orphans: Sequence[tuple[int, Key]]) -> int:
    """Link replies (pk) to parents (key) that came later in the file; return how many have one that is not stored either."""
    lost = 0
    for start in range(0, len(orphans), CHUNK):
        part = orphans[start : start + CHUNK]
        channels = {channel.slug: channel for channel in Channel.objects.filter(slug__in={key[0] for _, key in part})}
        stored = _find_stored(channels, {key for _, key in part})
        linked = [Message(pk=pk, parent_id=stored[key].pk) for pk, key in part if key in stored]
        Message.objects.bulk_update(linked, ["parent"], batch_size=250)
        lost += len(part) - len(linked)
    return lost


def _key(message: Prepared) -> Key:
    return message.target.slug, message.key


def _parent_key(message: Prepared) -> Key:
    return message.target.slug, message.parent_key


def _result(
    batch: Sequence[Prepared], new: list[Prepared], stored: dict[Key, Stored], orphans: tuple[tuple[int, Key], ...]
) -> BatchResult:
    """Count the new messages and the duplicates of a batch, among these those that are stored under another author.

    A message that stands twice in the batch is a duplicate the second time.
    """
    other_author = 0
    for message in batch:
        in_database = stored.get(_key(message))
        if in_database is None:
            continue
        author = message.author
        stored_author = (in_database.agent_id, in_database.user_id, in_database.outsider)
        if stored_author != (author.agent_id, author.user_id, author.outsider):
            other_author += 1
    return BatchResult(len(new), len(batch) - len(new), other_author, orphans)


def _locked_channels(targets: dict[str, Target]) -> dict[str, Channel]:
    """Return the channels by slug, made where missing with the members that the file names, their rows locked (on SQLite the database is).

    Channels that exist stay as they are.
    """
    existing = set(Channel.objects.filter(slug__in=targets).values_list("slug", flat=True))
    missing = [target for slug, target in sorted(targets.items()) if slug not in existing]
    if missing:
        new_channels = [
            Channel(
                slug=target.slug,
                name=target.name,
                kind=target.kind,
                topic=target.topic,
                tags=dict(target.tags),
                inclusion_probability=target.inclusion_probability,
            )
            for target in missing
        ]
        Channel.objects.bulk_create(new_channels, ignore_conflicts=True)
    locked = Channel.objects.select_for_update().filter(slug__in=targets).order_by("pk")
    channels = {channel.slug: channel for channel in locked}
    _make_members(channels, _announced_members(missing))
    return channels


def _raise_probabilities(channels: Mapping[str, Channel], batch: Iterable[Prepared], new: Iterable[Prepared]) -> None:
    """Raise the chance with which channels were kept to that of the batch, where that is larger.

    A conversation that was left out before begins now with that chance, so what is stored from now on stands for fewer. What is certainly
    kept, as a file that a person chose is, changes nothing by messages that are stored already: the file may be an export of the channel.
    """
    probabilities = {message.target.slug: message.target.inclusion_probability for message in batch}
    with_new = {message.target.slug for message in new}
    raised: list[Channel] = []
    for slug, channel in channels.items():
        probability = probabilities[slug]
        is_export = probability == 1 and slug not in with_new
        was_empty = channel.next_position == 1
        if channel.inclusion_probability < probability and not is_export and not was_empty:
            channel.inclusion_probability = probability
            raised.append(channel)
    if raised:
        Channel.objects.bulk_update(raised, ["inclusion_probability"], batch_size=250)


def _announced_members(targets: Iterable[Target]) -> list[tuple[str, int]]:
    """Return channel slug and primary key of each agent that a file names as a member; unknown ones are left out."""
    announced = sorted((target.slug, agent) for target in targets for agent in target.members)
    if not announced:
        return []
    agents = dict(Agent.objects.filter(slug__in={agent for _, agent in announced}).values_list("slug", "pk"))
    return [(channel, agents[agent]) for channel, agent in announced if agent in agents]


def _find_stored(channels: dict[str, Channel], keys: set[Key]) -> dict[Key, Stored]:
    """Return, by key, those messages with one of these keys that are stored already; `channels` are known ones by slug."""
    ids_by_channel: dict[str, list[str]] = {}
    for slug, external_id in keys:
        if slug in channels and channels[slug].next_position > 1:  # else nothing was ever stored in it
            ids_by_channel.setdefault(slug, []).append(external_id)
    slug_of = {channels[slug].pk: slug for slug in ids_by_channel}
    stored: dict[Key, Stored] = {}
    groups = list(ids_by_channel.items())
    for start in range(0, len(groups), CHANNELS_PER_QUERY):
        condition = Q()
        for slug, ids in groups[start : start + CHANNELS_PER_QUERY]:
            condition |= Q(channel=channels[slug].pk, external_id__in=ids)
        rows = Message.objects.filter(condition).order_by()
        for channel_id, external_id, *rest in rows.values_list("channel_id", "external_id", *Stored._fields):
            stored[slug_of[channel_id], external_id] = Stored(*rest)
    return stored


def _not_stored(batch: Sequence[Prepared], stored: dict[Key, Stored]) -> list[Prepared]:
    """Return those that are not stored, each once."""
    new: dict[Key, Prepared] = {}
    for message in batch:
        if _key(message) not in stored:
            new.setdefault(_key(message), message)
    return list(new.values())


def _unsaved_rows(
    new: list[Prepared], channels: dict[str, Channel], stored: dict[Key, Stored], job: Import | None
) -> dict[Key, Message]:
    """Return unsaved rows at the next positions of their channels, which are raised in the database and in `channels`.

    A row has its parent only where that is in `stored`. A message without a time counts as said with a dated one near it; an
    idempotency key that another message has is left out.
    """
    _raise_positions(new, channels)
    used_keys = _used_idempotency_keys(new)
    said_at = _places_in_time(new)
    rows: dict[Key, Message] = {}
    for message in new:
        channel = channels[message.target.slug]
        parent = stored.get(_parent_key(message))
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
            tags=message.tags,
            imported_by=job,
        )
        if _key(message) in said_at:
            row.said_at = said_at[_key(message)]
        if message.idempotency_key and message.idempotency_key not in used_keys:
            row.idempotency_key = message.idempotency_key
            used_keys.add(message.idempotency_key)
        rows[_key(message)] = row
        channel.next_position += 1
    return rows


def _raise_positions(new: Iterable[Prepared], channels: dict[str, Channel]) -> None:
    """Reserve the positions of new messages in the database; one statement for all channels with as many."""
    channels_by_count: dict[int, list[int]] = {}
    for slug, count in Counter(message.target.slug for message in new).items():
        channels_by_count.setdefault(count, []).append(channels[slug].pk)
    for count, channel_ids in channels_by_count.items():
        Channel.objects.filter(pk__in=channel_ids).update(next_position=F("next_position") + count)


def _used_idempotency_keys(new: Iterable[Prepared]) -> set[str | None]:
    """Return those keys of new messages that another message has: a copy of a channel keeps none."""
    keys = {message.idempotency_key for message in new if message.idempotency_key}
    if not keys:
        return set()
    return set(Message.objects.filter(idempotency_key__in=keys).values_list("idempotency_key", flat=True))


def _places_in_time(new: list[Prepared]) -> dict[Key, datetime]:
    """Return when messages without a time count as said: with the dated one before them in their channel, else with the next one.

    Left out are messages with a time, and those of channels in which none of these has one.
    """
    said_at: dict[Key, datetime] = {}
    for messages in (new, new[::-1]):
        near: dict[str, datetime] = {}
        for message in messages:
            if message.sent_at is not None:
                near[message.target.slug] = message.sent_at
            elif message.target.slug in near:
                said_at.setdefault(_key(message), near[message.target.slug])
    return said_at


def _make_members(channels: dict[str, Channel], pairs: Sequence[tuple[str, int]]) -> None:
    """Make agents (pk) members of channels (slug); those who are members stay so."""
    rows = [ChannelMember(channel=channels[slug], agent_id=agent) for slug, agent in pairs]
    if rows:
        ChannelMember.objects.bulk_create(rows, ignore_conflicts=True)
