"""Erase a person: what they said goes, and everything that derives from it; numbers stay.

Each table registers what derives from messages, and by which keys it is found (`agents.kit.erasing`). `forget` follows
these rules batch by batch and blanks whole columns: no text is compared with what the person said. What no key leads to is not
erased; `places_with_name` finds their name there, for a person to look at. The promise is in docs/explanation/security.md.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.db.models import CharField, JSONField, Min, Model, Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.utils.crypto import salted_hmac

from agents.kit.erasing import Derived, Erase, Person, matching, portions
from agents.kit.models import ApiToken
from agents.kit.registry import erasures, tables
from agents.models import Channel, ChannelMember, Message, Run

ERASED = "[erased]"
LISTED = 5
SALT = "agents.erasure"
CLOCKS = timedelta(minutes=10)  # by which those of two machines may differ
# Keys whose values say how an exchange is built, not what was said.
_STRUCTURE = frozenset({"type", "role", "tool", "nonce", "call_id", "id", "name", "cache", "ends", "kind", "status"})


def keys_said_by(person: Person) -> QuerySet[Message, Any]:
    """Return the primary keys of the messages that are theirs, for a subquery."""
    return Message.objects.filter(person.said).order_by().values("pk")


def of_messages(*lookups: str) -> Derived:
    """Rows that refer to one of their messages by one of these keys."""
    return matching(lambda person: reduce(or_, (Q(**{f"{lookup}__in": keys_said_by(person)}) for lookup in lookups)))


class Unknown(LookupError):
    """There is no person of this name; the message lists similar names."""


def find_outsider(name: str, *, channels: Collection[str] = ()) -> Person:
    """The outsider of this name, also one that was erased in part or wholly.

    Args:
        name: As it stands in the messages, to the letter.
        channels: Slugs, where others elsewhere have the same name; empty = everywhere.

    Raises:
        Unknown: No message has this name, or no channel this slug.
    """
    if missing := set(channels) - set(Channel.objects.filter(slug__in=channels).values_list("slug", flat=True)):
        raise Unknown(f"channel {', '.join(sorted(missing))}: there is none; allowed: slugs of channels")
    label = f"erased-{salted_hmac(SALT, name).hexdigest()[:8]}"
    said = Q(outsider__in=[name, label])
    if channels:
        said &= Q(channel__slug__in=channels)
    if not name or not Message.objects.filter(said).exists():
        like = Message.objects.filter(outsider__icontains=name).order_by("outsider").values_list("outsider", flat=True)
        others = ", ".join(map(repr, like.distinct()[:LISTED])) or "no similar name"
        raise Unknown(f"outsider {name!r} said nothing here; allowed: a speaker's name to the letter ({others})")
    return _person(names=(name,), label=label, said=said)


def find_user(who: str, *, deactivate: bool = False) -> Person:
    """The user of this id or username.

    Raises:
        Unknown: There is none.
    """
    users: Any = get_user_model()._default_manager
    user = users.filter(username=who).first()
    if user is None and who.isdecimal():
        user = users.filter(pk=int(who)).first()
    if user is None:
        like = users.filter(username__icontains=who).order_by("username").values_list("username", flat=True)
        others = ", ".join(map(repr, like[:LISTED])) or "no similar name"
        raise Unknown(f"user {who!r}: there is none; allowed: an id or a username ({others})")
    return _person(
        names=tuple(filter(None, (user.get_full_name(), user.get_username()))),
        label=f"erased-{salted_hmac(SALT, f'user:{user.pk}').hexdigest()[:8]}",
        said=Q(user=user.pk),
        user=user,
        deactivate=deactivate,
    )


def _person(*, said: Q, user: AbstractBaseUser | None = None, **fields: Any) -> Person:
    spoke = Message.objects.filter(said).order_by().values_list("channel").annotate(first=Min("created_at"))
    first = {channel: moment - CLOCKS for channel, moment in spoke}
    agents: set[int | None] = set()
    for channels in portions([*first]):
        for model in (Message, ChannelMember, Run):
            rows = model._default_manager.filter(channel__in=channels).order_by()
            agents |= set(rows.values_list("agent", flat=True).distinct())
    return Person(said=said, user=user, first=first, agents=frozenset(agents - {None}), **fields)  # type: ignore[arg-type]


@dataclass(slots=True)
class Erased:
    """What a rule erased: keys of the rows changed or deleted, or that would be; where `report_only`, that people should look at."""

    rule: Erase
    keys: set[Any] = field(default_factory=set)


def forget(person: Person, *, dry_run: bool = False) -> Iterator[Erased]:
    """Erase a person; yield what each rule erased as it is done.

    May be stopped at any time and begun again. A second call changes nothing more. Work under way is left: call it again when that
    has ended.
    """
    for rule in erasures():
        yield _follow(rule, person, dry_run=dry_run)
    if person.user is not None and not dry_run:
        _clear_account(person)


def _follow(rule: Erase, person: Person, *, dry_run: bool) -> Erased:
    erased = Erased(rule)
    found = sorted({key for derived in rule.rows for key in derived(rule.of, person)})
    for keys in portions(found):
        rows = rule.of._default_manager.filter(pk__in=keys).order_by("pk")
        if rule.delete:
            erased.keys.update(keys)
            if not dry_run:
                rows.delete()
            continue
        changes = {row["pk"]: _changed(rule, person, row) for row in rows.values("pk", *rule.names)}
        changes = {key: changed for key, changed in changes.items() if changed}
        erased.keys.update(changes)
        if not (dry_run or rule.report_only):
            _write(rule.of, changes)
    return erased


def _changed(rule: Erase, person: Person, row: dict[str, Any]) -> dict[str, Any]:
    """The columns that must change, with what they become."""
    keep = _STRUCTURE.union(rule.keep.split())
    labels = dict.fromkeys((*person.names, person.label), person.label)
    after: dict[str, Any] = {}
    for column in rule.names:
        value = row[column]
        if rule.name_only:
            longest = rule.of._meta.get_field(column).max_length  # type: ignore[union-attr]
            after[column] = person.label[:longest]  # a label may be longer than the name it stands for
        elif column in rule.emptied.split():
            after[column] = type(value)()
        else:
            after[column] = blanked(value, keep=keep, labels=labels)
    return {column: value for column, value in after.items() if row[column] and value != row[column]}


def blanked(value: Any, *, keep: Collection[str] = _STRUCTURE, labels: dict[str, str] | None = None) -> Any:
    """A text or JSON value with every text in it replaced by the mark; its build and its numbers stay.

    Args:
        keep: Keys whose values stay.
        labels: What replaces a text or key that is nothing but a name.
    """
    labels = labels or {}
    if isinstance(value, str):
        return labels.get(value, ERASED) if value else value
    if isinstance(value, list):
        return [blanked(item, keep=keep, labels=labels) for item in value]
    if not isinstance(value, dict):
        return value
    shown = {}
    for key, item in value.items():
        if key in keep and not isinstance(item, dict | list):
            shown[key] = labels.get(item, item) if isinstance(item, str) else item
        else:
            shown[labels.get(key, key)] = blanked(item, keep=keep, labels=labels)
    return shown


def _write(model: type[Model], changes: dict[Any, dict[str, Any]]) -> None:
    """Change these rows; those that get the same values by one statement."""
    same: dict[str, tuple[dict[str, Any], list[Any]]] = {}
    for key, values in changes.items():
        same.setdefault(json.dumps(values, sort_keys=True), (values, []))[1].append(key)
    with transaction.atomic():
        for values, keys in same.values():
            model._default_manager.filter(pk__in=keys).update(**values)


def _clear_account(person: Person) -> None:
    """Take the name from the account; where it is closed, also username, address, password and tokens."""
    user: Any = person.user
    user.first_name = user.last_name = ""
    if person.deactivate:
        user.username, user.email, user.is_active = person.label, "", False
        user.set_unusable_password()
        ApiToken.objects.filter(user=user).delete()
    user.save()


class Place(NamedTuple):
    """A column where a name stands, with the keys of the rows, newest first, at most `LISTED`."""

    table: str
    column: str
    rows: int
    keys: list[Any]


def places_with_name(person: Person) -> Iterator[Place]:
    """Find where texts have a name of the person in any case: what no key leads to, for people to look at. Reads every table."""
    ways = {
        way for name in person.names for way in (name, json.dumps(name)[1:-1])
    }  # as it is, and as JSON may be stored
    for table in tables().values():
        silent = table.no_speech.split()
        for column in table.model._meta.concrete_fields:
            if not isinstance(column, CharField | TextField | JSONField) or column.choices or column.name in silent:
                continue
            rows = table.model._default_manager.annotate(_text=Cast(column.name, TextField())).order_by("-pk")
            rows = rows.filter(reduce(or_, (Q(_text__icontains=way) for way in ways)))
            if number := rows.count():
                keys = list(rows.values_list("pk", flat=True)[:LISTED])
                yield Place(table.model._meta.db_table, column.name, number, keys)
