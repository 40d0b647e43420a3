"""Erase a person: what they said goes, and everything that derives from it; numbers stay.

Each table registers what derives from messages, and by which keys it is found (`agents.kit.erasing`). `forget` follows
these rules batch by batch and blanks whole columns: no text is compared with what the person said. What no key leads to is not
erased; `places_with_name` finds their name there, for a person to look at. The promise is in docs/explanation/security.md.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
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
MOST_LISTED = 5  # names in a sentence, and rows of a column
SALT = "agents.erasure"
CLOCK_DIFFERENCE = timedelta(minutes=10)  # by which the clocks of two machines may differ
# Keys whose values say how an exchange is built, not what was said.
_STRUCTURE = frozenset({"type", "role", "tool", "nonce", "call_id", "id", "name", "cache", "ends", "kind", "status"})


def keys_said_by(person: Person) -> QuerySet[Message, Any]:
    """Return the primary keys of the messages that are theirs, for a subquery."""
    return Message.objects.filter(person.messages).order_by().values("pk")


def of_messages(*lookups: str) -> Derived:
    """Find the rows that refer to one of the person's messages by one of these keys, such as ``pk`` or ``run__trigger``."""
    if not lookups:
        raise ValueError("name at least one key: without a condition all rows would be found")

    def condition(person: Person) -> Q:
        refers_to_one = Q()
        for lookup in lookups:
            refers_to_one |= Q(**{f"{lookup}__in": keys_said_by(person)})
        return refers_to_one

    return matching(condition)


class Unknown(LookupError):
    """There is no person of this name; the message lists similar names."""


def find_outsider(name: str, *, channels: Collection[str] = ()) -> Person:
    """Return the outsider of this name, also one that was erased in part or wholly.

    Args:
        name: As it stands in the messages, to the letter.
        channels: Slugs, where others elsewhere have the same name; empty = everywhere.

    Raises:
        Unknown: No message has this name, or no channel this slug.
    """
    known_slugs = Channel.objects.filter(slug__in=channels).values_list("slug", flat=True)
    missing = set(channels) - set(known_slugs)
    if missing:
        raise Unknown(f"channel {', '.join(sorted(missing))}: there is none; allowed: slugs of channels")
    label = f"erased-{salted_hmac(SALT, name).hexdigest()[:8]}"
    # The label: what an earlier erasure has reached bears it instead of the name.
    messages = Q(outsider__in=[name, label])
    if channels:
        messages &= Q(channel__slug__in=channels)
    if not name or not Message.objects.filter(messages).exists():
        outsiders = Message.objects.filter(outsider__icontains=name).order_by("outsider")
        names = outsiders.values_list("outsider", flat=True).distinct()[:MOST_LISTED]
        similar = ", ".join(repr(similar_name) for similar_name in names) or "no similar name"
        raise Unknown(f"outsider {name!r} said nothing here; allowed: a speaker's name to the letter ({similar})")
    return _person(names=(name,), label=label, messages=messages)


def find_user(who: str, *, deactivate: bool = False) -> Person:
    """Return the user of this username, else of this id.

    Args:
        deactivate: Whether erasing them closes the account, too.

    Raises:
        Unknown: There is none.
    """
    users: Any = get_user_model()._default_manager
    user = users.filter(username=who).first()
    if user is None and who.isdecimal():
        user = users.filter(pk=int(who)).first()
    if user is None:
        names = users.filter(username__icontains=who).order_by("username").values_list("username", flat=True)
        similar = ", ".join(repr(name) for name in names[:MOST_LISTED]) or "no similar name"
        raise Unknown(f"user {who!r}: there is none; allowed: an id or a username ({similar})")
    names_of_user = (user.get_full_name(), user.get_username())
    return _person(
        names=tuple(name for name in names_of_user if name),
        label=f"erased-{salted_hmac(SALT, f'user:{user.pk}').hexdigest()[:8]}",
        messages=Q(user=user.pk),
        user=user,
        deactivate=deactivate,
    )


def _person(*, messages: Q, user: AbstractBaseUser | None = None, **fields: Any) -> Person:
    """Return a person with the channels where they spoke, since when, and the agents that spoke, are members or took a turn there.

    Args:
        messages: Which messages are theirs.
        fields: Further attributes of `Person`.
    """
    first_messages = (
        Message.objects.filter(messages).order_by().values_list("channel").annotate(first=Min("created_at"))
    )
    first = {channel: moment - CLOCK_DIFFERENCE for channel, moment in first_messages}
    agents: set[int | None] = set()
    for channels in portions([*first]):
        for model in (Message, ChannelMember, Run):
            rows = model._default_manager.filter(channel__in=channels).order_by()
            agents |= set(rows.values_list("agent", flat=True).distinct())
    return Person(messages=messages, user=user, first=first, agents=frozenset(agents - {None}), **fields)  # type: ignore[arg-type]


@dataclass(slots=True)
class Erased:
    """A rule with the keys of the rows that it changed or deleted, or would; of a `report_only` rule those that people should look at."""

    rule: Erase
    keys: set[Any] = field(default_factory=set)


def forget(person: Person, *, dry_run: bool = False) -> Iterator[Erased]:
    """Erase a person; yield what each rule erased as it is done, and take the name from their account at the end.

    May be stopped at any time and begun again. A second call changes nothing more. Work under way is left: call it again when that
    has ended.

    Args:
        dry_run: Change nothing; yield what would be erased.
    """
    for rule in erasures():
        yield _follow(rule, person, dry_run=dry_run)
    if person.user is not None and not dry_run:
        _clear_account(person)


def _follow(rule: Erase, person: Person, *, dry_run: bool) -> Erased:
    """Erase, portion by portion (500 rows), what a rule says derives from a person's messages.

    Args:
        dry_run: Find the rows and change nothing.

    Returns:
        The rule with the keys of the rows that it deletes or changes, with `dry_run` or a `report_only` rule would change; rows that
        already are as they should be are not among them.
    """
    erased = Erased(rule)
    derived_keys: set[Any] = set()
    for find_keys in rule.rows:
        derived_keys.update(find_keys(rule.of, person))
    for keys in portions(sorted(derived_keys)):
        rows = rule.of._default_manager.filter(pk__in=keys).order_by("pk")
        if rule.delete:
            erased.keys.update(keys)
            if not dry_run:
                rows.delete()
            continue
        changes = {}
        for row in rows.values("pk", *rule.names):
            changed_columns = _changed_columns(rule, person, row)
            if changed_columns:
                changes[row["pk"]] = changed_columns
        erased.keys.update(changes)
        if not (dry_run or rule.report_only):
            _write_changes(rule.of, changes)
    return erased


def _changed_columns(rule: Erase, person: Person, row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that must change, with their new values; empty where all are erased already."""
    keep = _STRUCTURE.union(rule.keep.split())
    labels = dict.fromkeys((*person.names, person.label), person.label)
    after: dict[str, Any] = {}
    for column in rule.names:
        value = row[column]
        if rule.name_only:
            longest = rule.of._meta.get_field(column).max_length  # type: ignore[union-attr]
            after[column] = person.label[:longest]  # a label may be longer than the name it stands for
        elif column in rule.emptied.split():
            after[column] = type(value)()  # an empty text, object or list
        else:
            after[column] = blanked(value, keep=keep, labels=labels)
    return {column: value for column, value in after.items() if row[column] and value != row[column]}


def blanked(value: Any, *, keep: Collection[str] = _STRUCTURE, labels: dict[str, str] | None = None) -> Any:
    """Return a text or JSON value with every text in it replaced by the mark ``[erased]``.

    Its structure, numbers and empty texts stay, and keys that are no name.

    Args:
        keep: Keys whose values stay, unless these are lists or objects, or nothing but a name.
        labels: Name to what replaces a text or key that is nothing but this name.
    """
    labels = labels or {}
    if value == "":
        return value
    if isinstance(value, str):
        return labels.get(value, ERASED)
    if isinstance(value, list):
        return [blanked(item, keep=keep, labels=labels) for item in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for key, item in value.items():
        is_kept = key in keep and not isinstance(item, dict | list)
        if is_kept and isinstance(item, str):
            result[key] = labels.get(item, item)
        elif is_kept:
            result[key] = item
        else:
            result[labels.get(key, key)] = blanked(item, keep=keep, labels=labels)
    return result


def _write_changes(model: type[Model], changes: dict[Any, dict[str, Any]]) -> None:
    """Change these rows; those that get the same values by one statement."""
    keys_by_values: dict[str, list[Any]] = defaultdict(list)
    for key, values in changes.items():
        keys_by_values[json.dumps(values, sort_keys=True)].append(key)
    with transaction.atomic():
        for keys in keys_by_values.values():
            model._default_manager.filter(pk__in=keys).update(**changes[keys[0]])  # the same for all of these keys


def _clear_account(person: Person) -> None:
    """Take the name from the account; where it is to be closed (`deactivate`), also username, address, password and tokens."""
    user: Any = person.user
    user.first_name = user.last_name = ""
    if person.deactivate:
        user.username = person.label
        user.email = ""
        user.is_active = False
        user.set_unusable_password()
        ApiToken.objects.filter(user=user).delete()
    user.save()


class NameInColumn(NamedTuple):
    """A column whose texts hold a name, with the keys of the rows, newest first, at most `MOST_LISTED`."""

    table: str
    column: str
    rows: int
    keys: list[Any]


def places_with_name(person: Person) -> Iterator[NameInColumn]:
    """Find columns whose texts hold a name of the person in any case: no key leads there, so people look at them. Reads every table."""
    if not person.names:  # without a condition all rows would be found
        return
    has_name = Q()
    for name in person.names:
        as_json = json.dumps(name)[1:-1]  # as a column of JSON may hold it: "Zoë" is Zo\u00eb there
        has_name |= Q(_text__icontains=name) | Q(_text__icontains=as_json)
    for table in tables().values():
        columns_without_speech = table.no_speech.split()
        for column in table.model._meta.concrete_fields:
            is_text = isinstance(column, CharField | TextField | JSONField) and not column.choices
            if not is_text or column.name in columns_without_speech:
                continue
            rows = table.model._default_manager.annotate(_text=Cast(column.name, TextField())).order_by("-pk")
            rows = rows.filter(has_name)
            number = rows.count()
            if number:
                keys = list(rows.values_list("pk", flat=True)[:MOST_LISTED])
                yield NameInColumn(table.model._meta.db_table, column.name, number, keys)
