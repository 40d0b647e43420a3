"""Erase a person: their words, quotes of them and their name go wherever they are stored; numbers stay.

Every table with texts registers its columns as an `Erase` (`agents.kit.registry`). `forget` follows these rules batch by batch; what the
person said, and the questions of debates that they started, go last, because quotes are recognised by them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.db.models import BooleanField, Case, Max, Q, QuerySet, Value, When
from django.utils.crypto import salted_hmac

from agents.kit.models import ApiToken
from agents.kit.registry import NO_ROWS, Erase, Person, erasures
from agents.models import Channel, ChannelMember, Message

ERASED = "[erased]"
SHORTEST_QUOTE = 20  # characters
# Keys whose values say how an exchange is built, not what was said.
_STRUCTURE = frozenset({"type", "role", "tool", "nonce", "call_id", "id", "name", "cache", "ends"})


def said_by(person: Person) -> QuerySet[Message]:
    """Return the messages that are theirs."""
    return Message.objects.filter(person.said)


def keys_said_by(person: Person) -> QuerySet[Message, Any]:
    """Return the primary keys of these, for a subquery."""
    return said_by(person).order_by().values("pk")


class Words:
    """What a person said, and what they are called.

    A quote is any stretch of at least `SHORTEST_QUOTE` characters of one of their texts, in any case and with any white space. A text
    that is nothing but one of their shorter messages counts, too, where the person is known to have been.
    """

    def __init__(self, texts: Iterable[str], *, names: Iterable[str], label: str):
        self.label = label
        self._windows: set[str] = set()
        self._texts: set[str] = set()
        for text in texts:
            folded = _folded(text)
            self._windows.update(_stretches(folded))
            if folded and folded != ERASED:
                self._texts.add(folded)
        # Any of the names as words. One that could be a word of the language ("Will", "May") only as it is written.
        longest_first = sorted({name for name in names if name and name != label}, key=len, reverse=True)
        ways = [re.escape(name) if name.isalpha() else f"(?i:{re.escape(name)})" for name in longest_first]
        self._name = re.compile(rf"(?<!\w)(?:{'|'.join(ways)})(?!\w)") if ways else None

    def quoted(self, text: str) -> bool:
        """Whether the text has a quote in it."""
        return any(stretch in self._windows for stretch in _stretches(_folded(text)))

    def named(self, value: Any) -> bool:
        """Whether a text, or a text anywhere in a JSON value, has the name in it."""
        return self._name is not None and any(self._name.search(text) for text in _texts(value))

    def without(self, value: Any, *, near: bool) -> Any:
        """A text or JSON value without the person's words.

        Args:
            value: What is stored now.
            near: Whether the person is known to have been there: then their name and short messages go, too.
        """
        if isinstance(value, str):
            return self._without(value, near)
        if isinstance(value, dict):
            return {self._without(key, near): self.without(one, near=near) for key, one in value.items()}
        return [self.without(one, near=near) for one in value] if isinstance(value, list) else value

    def _without(self, text: str, near: bool) -> str:
        if near and _folded(text) in self._texts:
            return ERASED
        if self.quoted(text):
            text = self._without_quotes(text)
        return self._name.sub(self.label, text) if near and self._name is not None else text

    def _without_quotes(self, text: str) -> str:
        folded, places = _folded_with_places(text)
        parts, done, end = [], 0, 0
        for begin, stretch in enumerate(_stretches(folded)):
            if stretch in self._windows:
                if begin >= end:  # else the quote goes on
                    parts += [text[done : places[begin]], ERASED]
                end = begin + SHORTEST_QUOTE
                done = places[end - 1] + 1
        return "".join(parts) + text[done:]


def _stretches(folded: str) -> Iterator[str]:
    """Every stretch of `SHORTEST_QUOTE` characters, by where it begins."""
    return (folded[i : i + SHORTEST_QUOTE] for i in range(len(folded) - SHORTEST_QUOTE + 1))


def blanked(value: Any) -> Any:
    """A text or JSON value with every text in it replaced by the mark; its build stays."""
    if isinstance(value, str):
        return ERASED if value else value
    if isinstance(value, dict):
        return {
            key: one if key in _STRUCTURE and not isinstance(one, dict | list) else blanked(one)
            for key, one in value.items()
        }
    return [blanked(one) for one in value] if isinstance(value, list) else value


def _folded(text: str) -> str:
    return " ".join(text.lower().split())


def _folded_with_places(text: str) -> tuple[str, list[int]]:
    """As `_folded`, with the place in `text` of each character."""
    chars: list[str] = []
    places: list[int] = []
    for place, char in enumerate(text):
        for low in " " if char.isspace() else char.lower():
            if low != " " or (chars and chars[-1] != " "):
                chars.append(low)
                places.append(place)
    return "".join(chars), places


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from (key, *_texts(one))
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


LISTED = 5
SALT = "agents.erasure"


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
    channels = set(Message.objects.filter(said).order_by().values_list("channel", flat=True).distinct())
    if user is not None:
        channels |= set(ChannelMember.objects.filter(user_id=user.pk).values_list("channel", flat=True))
    alone = Person(said=said, user=user, channels=frozenset(), agents=frozenset(), **fields)
    for rule in erasures():
        if rule.own_words and rule.channel:
            channels |= set(_own_rows(rule, alone).values_list(rule.channel, flat=True))
    agents = {
        agent
        for model in (Message, ChannelMember)
        for agent in model._default_manager.filter(channel__in=channels)
        .order_by()
        .values_list("agent", flat=True)
        .distinct()
    }
    return Person(said=said, user=user, channels=frozenset(channels), agents=frozenset(agents - {None}), **fields)


BATCH = 500  # rows read, and at most changed, by one transaction


@dataclass(slots=True)
class Erased:
    """What a rule erased.

    Attributes:
        keys: Rows changed or deleted, or that would be; where `report_only`, rows that people should look at.
        named_elsewhere: Rows that have the name but are not near: left as they are, for it may be another's name.
    """

    rule: Erase
    keys: set[int] = field(default_factory=set)
    named_elsewhere: int = 0


def forget(person: Person, *, dry_run: bool = False, name_everywhere: bool = False) -> Iterator[Erased]:
    """Erase a person; yield what each rule erased as it is done.

    May be stopped at any time and begun again: their own messages, by which quotes are recognised, are blanked last. A second
    call changes nothing more.

    Args:
        name_everywhere: Take every text with the name for one about them, also where they are not known to have been.
    """
    rules = erasures()
    said = chain.from_iterable(_own_words(rule, person) for rule in rules if rule.own_words)
    words = Words(said, names=person.names, label=person.label)
    for rule in rules:
        yield _follow(rule, person, words, dry_run=dry_run, everywhere=name_everywhere)
    if person.user is not None and not dry_run:
        _clear_account(person)


def _own_rows(rule: Erase, person: Person) -> QuerySet[Any]:
    rows = rule.rows_of(person).order_by()
    return rows if rule.blank is None else rows.filter(rule.blank(person))


def _own_words(rule: Erase, person: Person) -> Iterator[str]:
    """The texts that are the person's own, by which quotes are recognised."""
    return _own_rows(rule, person).values_list(rule.own_words, flat=True).iterator()


def _follow(rule: Erase, person: Person, words: Words, *, dry_run: bool, everywhere: bool) -> Erased:
    erased = Erased(rule)
    rows = rule.rows_of(person).order_by("pk")
    marks = {
        "is_near": rule.is_near(person),
        "is_blanked": NO_ROWS if rule.blank is None else rule.blank(person),
        "is_name": NO_ROWS if rule.name_only is None else rule.name_only(person),
    }
    cases = {
        name: Case(When(q, then=Value(True)), default=Value(False), output_field=BooleanField())
        for name, q in marks.items()
    }
    last, after = rows.order_by().aggregate(last=Max("pk"))["last"], None
    while last is not None:
        ahead = rows.filter(pk__lte=last) if after is None else rows.filter(pk__gt=after, pk__lte=last)
        batch: list[dict[str, Any]] = list(ahead.annotate(**cases).values("pk", *rule.names, *marks)[:BATCH])
        if not batch:
            break
        after = batch[-1]["pk"]
        changes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for row in batch:
            if changed := _changed(rule, person, words, row, everywhere):
                changes.append((row, changed))
            elif not row["is_near"] and any(words.named(row[column]) for column in rule.names):
                erased.named_elsewhere += 1
        erased.keys.update(row["pk"] for row, _ in changes)
        if changes and not dry_run and not rule.report_only:
            _write(rule, changes)
    return erased


def _changed(rule: Erase, person: Person, words: Words, row: dict[str, Any], everywhere: bool) -> dict[str, Any]:
    """The columns that must change, with what they become."""
    after: dict[str, Any] = {}
    for column in rule.names:
        value = row[column]
        if row["is_name"]:
            after[column] = person.label
        elif row["is_blanked"]:
            after[column] = {} if column in rule.emptied.split() else blanked(value)
        else:
            after[column] = words.without(value, near=row["is_near"] or everywhere)
    if rule.delete and row["is_blanked"]:
        return after
    changed = {column: value for column, value in after.items() if value != row[column]}
    for column, value in changed.items():
        longest = rule.of._meta.get_field(column).max_length  # type: ignore[union-attr]
        if isinstance(value, str) and longest:
            changed[column] = value[:longest]  # a label may be longer than the name it stands for
    return changed


def _write(rule: Erase, changes: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Change or delete these rows. A text that was changed meanwhile stays for the next time."""
    rows = rule.of._default_manager
    with transaction.atomic():
        if rule.delete:
            rows.filter(pk__in=[row["pk"] for row, _ in changes]).delete()
            return
        for row, values in changes:
            as_read = {column: row[column] for column in values if isinstance(row[column], str)}
            rows.filter(pk=row["pk"], **as_read).update(**values)


def _clear_account(person: Person) -> None:
    """Take the name from the account; where it is closed, also username, address, password and tokens."""
    user: Any = person.user
    user.first_name = user.last_name = ""
    if person.deactivate:
        user.username, user.email, user.is_active = person.label, "", False
        user.set_unusable_password()
        ApiToken.objects.filter(user=user).delete()
    user.save()
