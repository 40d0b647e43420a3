"""A place where somebody's words may be kept: columns of a table, and which of its rows are near that person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Model, Q, QuerySet

from agents.erasure.person import Person

NOTHING = Q(pk__in=[])


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Columns with texts, JSON or a name.

    Attributes:
        model: The table.
        columns: What is searched, and rewritten without the person's words.
        channel, agent: Lookups of a row's channel and agent: rows in a channel where the person was, or of an agent that spoke there,
            are near, and lose the name and short messages as well as quotes.
        near: Every row is near.
        whole: Rows of which the columns are blanked whatever they say, or which are deleted where the place says so.
        named: Rows of which the columns hold nothing but the person's name.
        rows: Leaves rows out.
        emptied: JSON columns that become empty where a row is blanked.
        delete: A row with the person's words goes as a whole.
        told_only: Nothing is changed: people wrote this as configuration, and are told that it looks like a quote.
    """

    model: type[Model]
    columns: tuple[str, ...]
    channel: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    near: bool = False
    whole: Callable[[Person], Q] | None = None
    named: Callable[[Person], Q] | None = None
    rows: Callable[[Person], QuerySet[Any]] | None = None
    emptied: tuple[str, ...] = ()
    delete: bool = False
    told_only: bool = False

    @property
    def table(self) -> str:
        return self.model._meta.db_table

    def of(self, person: Person) -> QuerySet[Any]:
        return self.model._default_manager.all() if self.rows is None else self.rows(person)

    def is_near(self, person: Person) -> Q:
        if self.near:
            return Q(pk__isnull=False)
        near = NOTHING
        for path in self.channel:
            near |= Q(**{f"{path}__in": person.channels})
        for path in self.agent:
            near |= Q(**{f"{path}__in": person.agents})
        return near
