"""How often interventions were evaluated, asked a judge and fired, read from the newest rows of their log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from correction.interventions.models import InterventionLog

NEWEST = 1_000  # evaluations of an intervention that are counted
RECENT, MOST_LOGS = timedelta(days=7), 5_000  # in which interventions are in use


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The newest evaluations of one intervention.

    Attributes:
        evaluated: How many, at most 1,000; `more`: whether there were more before.
        held: Of them, those in which every function held, so that a judge would be asked or it fired.
        asked: In which a judge was asked. `unjudged`: in which it could not judge.
        fired: In which it fired. `last_fired`: when it did, last.
        why: Why it did not fire the last time; empty when it did.
    """

    name: str
    evaluated: int
    more: bool
    held: int
    asked: int
    unjudged: int
    fired: int
    last_fired: datetime | None
    why: str


def counts_of(name: str, newest: int = NEWEST) -> Counts:
    """Count the newest evaluations of the intervention of this name, of all agents."""
    logs = InterventionLog.objects.filter(name=name).order_by("-pk")
    rows = list(logs.values_list("fired", "judge", "preconditions", "created_at", "why")[: newest + 1])
    more, rows = len(rows) > newest, rows[:newest]
    fired = [row for row in rows if row[0]]
    return Counts(
        name=name,
        evaluated=len(rows),
        more=more,
        held=sum(fires or bool(judge) or _functions_held(logged) for fires, judge, logged, *_ in rows),
        asked=sum(bool(judge) for _, judge, *_ in rows),
        unjudged=sum(bool(judge) and _unjudged(logged) for _, judge, logged, *_ in rows),
        fired=len(fired),
        last_fired=fired[0][3] if fired else None,
        why=rows[0][4] if rows and not rows[0][0] else "",
    )


def _functions_held(logged: Any) -> bool:
    functions = [entry for entry in _entries(logged) if entry.get("kind") == "functional"]
    return all(entry.get("held") is True for entry in functions)


def _unjudged(logged: Any) -> bool:
    judged = [entry for entry in _entries(logged) if entry.get("kind") != "functional"]
    return any(entry.get("held") is None and str(entry.get("reasoning")).startswith("could not") for entry in judged)


def _entries(logged: Any) -> list[dict[str, Any]]:
    return [entry for entry in logged if isinstance(entry, dict)] if isinstance(logged, list) else []


def names_in_use() -> list[str]:
    """Return the names that were evaluated within seven days, the latest first."""
    logs = InterventionLog.objects.filter(created_at__gte=timezone.now() - RECENT).order_by("-created_at")
    return list(dict.fromkeys(logs.values_list("name", flat=True)[:MOST_LOGS]))
