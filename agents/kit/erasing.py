"""Rules of erasure: which columns of a table derive from a person's messages, and by which keys they are found.

`agents.erasure` follows them.

Agents, channels and messages are ids here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import Model, Q

PORTION = 500  # rows read, and at most changed, by one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person whose words are to be erased.

    Attributes:
        names: What they are called in texts.
        label: Replaces the name; the same whenever they are erased, and not to be guessed back.
        messages: Which messages are theirs.
        first: By the ids of the channels where they spoke, when the first of their messages there was stored, or a little before.
        agents: Agents that spoke or took a turn in these channels, or are members.
        user: Their account, where they have one.
        deactivate: Whether the account is closed, too.
    """

    names: tuple[str, ...]
    label: str
    messages: Q
    first: Mapping[int, datetime]
    agents: frozenset[int]
    user: AbstractBaseUser | None = None
    deactivate: bool = False

    @property
    def since(self) -> datetime:
        """Return when their first message was stored; before, nothing could be derived from any."""
        return min(self.first.values(), default=datetime.max.replace(tzinfo=UTC))


# The primary keys of the rows of a table that derive from a person's messages; the functions below make them.
Derived = Callable[[type[Model], Person], Iterable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Erase:
    """A rule: columns that are blanked in all rows that derive from a person's messages. Rows are found by keys; no text is searched.

    Attributes:
        columns: Their names, separated by spaces.
        rows: How these rows are found; a row that one of them finds is blanked.
        model: The table; that of the registration unless another is named.
        emptied: Those of the columns that become empty, separated by spaces; other texts become a mark.
        keep: Keys within JSON whose values are no words, separated by spaces.
        name_only: The columns hold nothing but the person's name, which their label replaces.
        delete: The rows are deleted.
        report_only: Nothing is changed: it is configuration by now, and people are shown how many rows there are.
    """

    columns: str
    rows: tuple[Derived, ...]
    model: type[Model] | None = None
    emptied: str = ""
    keep: str = ""
    name_only: bool = False
    delete: bool = False
    report_only: bool = False

    @property
    def of(self) -> type[Model]:
        assert self.model is not None  # noqa: S101 (set where the rules are collected)
        return self.model

    @property
    def table(self) -> str:
        return self.of._meta.db_table

    @property
    def names(self) -> list[str]:
        return self.columns.split()


def matching(condition: Callable[[Person], Q]) -> Derived:
    """Return a way to find rows: those that meet the condition which a function of the person returns."""

    def keys(model: type[Model], person: Person) -> Iterable[Any]:
        return model._default_manager.filter(condition(person)).values_list("pk", flat=True).iterator()

    return keys


def every(model: type[Model], _person: Person) -> Iterable[Any]:
    """Find all rows of the table: no key says what they hold."""
    return model._default_manager.values_list("pk", flat=True)


def there(channel: str, *, at: str = "created_at", **where: Any) -> Derived:
    """Return a way to find rows: those of a channel where the person spoke, written after their first message in that channel.

    Args:
        channel: The lookup of a row's channel.
        at: The lookup of the moment when it was written; a row without one is not written yet.
        where: Further conditions.
    """

    def keys(model: type[Model], person: Person) -> Iterator[Any]:
        for channels in portions([*person.first]):
            written = {f"{channel}__in": channels, f"{at}__gte": person.since}
            rows = model._default_manager.filter(**written, **where).order_by()
            for key, channel_id, moment in rows.values_list("pk", channel, at).iterator():
                if moment >= person.first[channel_id]:  # the query knows only the first of all channels
                    yield key

    return keys


def of_agents(agent: str, *, at: str = "created_at", **where: Any) -> Derived:
    """Return a way to find rows: those of agents that spoke where the person did, or of none, written after the person's first message.

    Args:
        agent: The lookup of a row's agent.
        at: The lookup of the moment when it was written.
        where: Further conditions.
    """

    def condition(person: Person) -> Q:
        of_these_or_none = Q(**{f"{agent}__in": person.agents}) | Q(**{f"{agent}__isnull": True})
        return of_these_or_none & Q(**{f"{at}__gte": person.since}, **where)

    return matching(condition)


def portions(keys: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Cut keys into parts of at most `PORTION`."""
    return (keys[start : start + PORTION] for start in range(0, len(keys), PORTION))
