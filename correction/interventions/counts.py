"""Count how often interventions were evaluated, asked a judge and fired, from the newest rows of their log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from correction.interventions.models import InterventionLog

NEWEST = 1_000  # evaluations of an intervention that are counted
IN_USE_WITHIN = timedelta(days=7)
MOST_LOGS = 5_000  # newest ones in which the names are looked for


@dataclass(slots=True, kw_only=True)
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
    more: bool
    evaluated: int = 0
    held: int = 0
    asked: int = 0
    unjudged: int = 0
    fired: int = 0
    last_fired: datetime | None = None
    why: str = ""


def counts_of(name: str, newest: int = NEWEST) -> Counts:
    """Count the newest evaluations of the intervention of this name, of all agents.

    `held` are those whose functions all held, `why` is the reason of the newest one where that did not fire. `more`: there are older ones,
    which are not counted.
    """
    logs = InterventionLog.objects.filter(name=name).order_by("-pk")
    logs = logs.only("fired", "judge", "preconditions", "created_at", "why")
    newest_logs = list(logs[: newest + 1])  # one more, which tells whether there are older ones
    counts = Counts(name=name, more=len(newest_logs) > newest)
    for log in newest_logs[:newest]:
        counts.evaluated += 1
        if log.fired or log.judge or _functions_held(log):  # a judge is only asked where they held
            counts.held += 1
        if log.judge:
            counts.asked += 1
            if _could_not_judge(log):
                counts.unjudged += 1
        if log.fired:
            counts.fired += 1
            if counts.last_fired is None:
                counts.last_fired = log.created_at
    if newest_logs and not newest_logs[0].fired:
        counts.why = newest_logs[0].why
    return counts


def _functions_held(log: InterventionLog) -> bool:
    """Return whether every functional precondition held."""
    functions = [entry for entry in _logged_results(log) if entry.get("kind") == "functional"]
    return all(entry.get("held") is True for entry in functions)


def _could_not_judge(log: InterventionLog) -> bool:
    """Return whether a judge that was asked could not judge a claim."""
    for entry in _logged_results(log):
        is_judged = entry.get("kind") != "functional"
        if is_judged and entry.get("held") is None and str(entry.get("reasoning")).startswith("could not"):
            return True
    return False


def _logged_results(log: InterventionLog) -> list[dict[str, Any]]:
    """Return the logged results of the preconditions; what erasing left of them is none."""
    if not isinstance(log.preconditions, list):
        return []
    return [entry for entry in log.preconditions if isinstance(entry, dict)]


def names_in_use() -> list[str]:
    """Return the names that were evaluated within seven days, the latest first."""
    logs = InterventionLog.objects.filter(created_at__gte=timezone.now() - IN_USE_WITHIN).order_by("-created_at")
    return list(dict.fromkeys(logs.values_list("name", flat=True)[:MOST_LOGS]))
