"""Comparing sums with the raw rows they were made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import F

from agents.models import Rollup, Span
from agents.rollups.families import Family, Rolled, Table, grouped
from agents.rollups.spans import HOUR, after, floor

TOLERANCE = 1e-6  # relative, of what a database adds in floating point: scores, and dollars on SQLite


@dataclass(frozen=True, slots=True)
class Difference:
    """A table whose sums of a span are not those of what they were made of. `wrong` are columns with (summed, right)."""

    table: str
    span: str
    start: datetime
    key: tuple[Any, ...]
    wrong: Mapping[str, tuple[Any, Any]]

    def __str__(self) -> str:
        told = ", ".join(f"{name} {summed} instead of {right}" for name, (summed, right) in self.wrong.items())
        return f"{self.table}, {self.span} from {self.start:%Y-%m-%d %H:%M} UTC, {self.key}: {told}"


@dataclass(slots=True)
class Checked:
    """How many spans were compared, how many could not be, for their raw rows are pruned, and what was wrong."""

    spans: int
    pruned: int
    differences: list[Difference]


def verify(rolled: Rolled, *, since: datetime | None = None) -> Checked:
    """Compare every closed hour with its raw rows, and every day and month with its hours and days.

    An hour with fewer raw rows than were summed was pruned: its sums are all there is, and cannot be compared.

    Args:
        rolled: What was summed up.
        since: Leave out what begins earlier.
    """
    state = Rollup.objects.filter(name=rolled.name).first()
    found = Checked(0, 0, [])
    if state is None or state.closed_before is None:
        return found
    for hour in _hours(rolled, since, state.closed_before):
        found.spans += 1
        if not rolled.is_whole(hour):
            found.pruned += 1
            continue
        for family in rolled.families:
            raw = grouped(family.of_hour(hour), family.keys, family.sums)
            found.differences += _compare(family.tables[0], Span.HOUR, hour, family, raw)
    for family in rolled.families:
        for table in family.tables:
            for span in table.spans:
                if (table, span) != (family.tables[0], Span.HOUR):
                    found.differences += _made_of_others(found, family, table, span, since, state.closed_before)
    return found


def _hours(rolled: Rolled, since: datetime | None, closed_before: datetime) -> Iterator[datetime]:
    """Hours with raw rows or sums."""
    rows = (
        rolled.rows().filter(created_at__lt=closed_before).order_by("created_at").values_list("created_at", flat=True)
    )
    sums = rolled.families[0].tables[0].model._default_manager.filter(span=Span.HOUR).order_by("start")
    starts = sums.values_list("start", flat=True)
    hour = since if since is None else floor(since, Span.HOUR)
    while True:
        firsts = [
            (rows if hour is None else rows.filter(created_at__gte=hour)).first(),
            (starts if hour is None else starts.filter(start__gte=hour)).first(),
        ]
        known = [floor(moment, Span.HOUR) for moment in firsts if moment is not None]
        if not known:
            return
        yield min(known)
        hour = min(known) + HOUR


def _made_of_others(
    found: Checked, family: Family, table: Table, span: int, since: datetime | None, closed_before: datetime
) -> Iterator[Difference]:
    """Sums that are made of sums: those of the whole table against the hours of the first one, span by span."""
    hours = family.tables[0].model._default_manager.filter(span=Span.HOUR).order_by("start")
    moment = hours.values_list("start", flat=True).filter(**({} if since is None else {"start__gte": since})).first()
    while moment is not None:
        start = floor(moment, span)
        end = after(start, span)
        if end > closed_before:
            return
        if since is None or start >= since:
            found.spans += 1
            parts = hours.filter(start__gte=start, start__lt=end)
            right = grouped(parts, {key: F(key) for key in table.keys}, family.added())
            yield from _compare(table, span, start, family, right)
        moment = hours.values_list("start", flat=True).filter(start__gte=end).first()


def _compare(table: Table, span: int, start: datetime, family: Family, right: Iterable[Any]) -> Iterator[Difference]:
    rows = table.model._default_manager.filter(span=span, start=start)
    summed = grouped(rows, {key: F(key) for key in table.keys}, family.added())  # two deleted agents are one: none
    ours, theirs = _by_key(table, summed), _by_key(table, right)
    for key in sorted(ours.keys() | theirs.keys(), key=str):
        one, other = ours.get(key, {}), theirs.get(key, {})
        wrong = {
            name: (one.get(f"s_{name}"), other.get(f"s_{name}"))
            for name in family.sums
            if not _same(one.get(f"s_{name}"), other.get(f"s_{name}"))
        }
        if wrong:
            yield Difference(table.model._meta.db_table, Span(span).label, start, key, wrong)


def _by_key(table: Table, rows: Iterable[Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(row[f"k_{key}"] for key in table.keys): row for row in rows}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float | Decimal) and isinstance(other, float | Decimal):
        return math.isclose(float(one), float(other), rel_tol=TOLERANCE, abs_tol=TOLERANCE / 100)
    return bool(one == other)
