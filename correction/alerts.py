"""Notice that the gate's pass rate fell, or that a budget is used up: a chore over the sums of hours."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from math import hypot
from typing import Any

from django.db.models import Case, F, Q, When
from django.utils import timezone

from agents.kit.alerting import AlertKind, end_alerts, raise_alert
from agents.kit.ops.sums import read
from agents.models import Agent
from correction.costs import used_up_today
from correction.gate.statistics import GATE, VERDICTS
from correction.gate.thresholds import wilson_interval
from correction.models import GateSession, synthetic_logs

DAY, WEEK = timedelta(days=1), timedelta(days=7)
LEAST = 20  # messages scored on both sides
LEAST_FALL = 0.2  # of the share that passed
Z = 2.576  # of a 99 % interval: it is looked at again and again


def look() -> str:
    """Raise and end alerts of pass rates and budgets; says how many last."""
    return f"{_budgets()} budgets, {_pass_rates(timezone.now())} pass rates"


def _budgets() -> int:
    used_up = used_up_today()
    agents = Agent.objects.in_bulk([agent for agent in used_up if agent is not None])
    for key, (spent, cap) in used_up.items():
        agent = agents.get(key) if key is not None else None
        whose = agent.display_name if agent is not None else "evaluations of channels"
        raise_alert(
            kind=AlertKind.BUDGET,
            about=str(key),
            title=f"The daily budget of {whose} is used up: ${spent:.2f} of ${cap:.2f}; checks go on after midnight UTC",
            agent=agent,
            page=agent,
            lasts=True,
        )
    end_alerts(kind=AlertKind.BUDGET, still=map(str, used_up))
    return len(used_up)


def _pass_rates(now: datetime) -> int:
    """Compare the first drafts of a day with those of the week before, per agent, dimension, judge and source.

    Messages of one conversation are counted as independent, which they are not quite; so the fall must be large, too.
    """
    recent = now.replace(minute=0, second=0, microsecond=0) - DAY
    names = ("agent", "source", "dimension", "judge")
    sums: dict[tuple[Any, ...], dict[int, Counter[str]]] = defaultdict(lambda: {0: Counter(), 1: Counter()})
    rows = read(
        GATE,
        VERDICTS,
        start=recent - WEEK,
        raw_keys={
            **{name: VERDICTS.keys[name] for name in names},
            "recent": Case(When(log__created_at__gte=recent, then=1), default=0),
        },
        keys={**{name: F(name) for name in names}, "recent": Case(When(hour__gte=recent, then=1), default=0)},
        raw_where=~synthetic_logs("log__"),
        where=Q(synthetic=False),
    )
    for row in rows:
        counts = sums[tuple(row[f"k_{name}"] for name in names)][row["k_recent"]]
        counts.update(scored=row["s_first_scored"], failed=row["s_first_failures"])
    fallen = {key: (sides[1], sides[0]) for key, sides in sums.items() if _fell(sides[0], sides[1])}
    agents = Agent.objects.in_bulk({key[0] for key in fallen})
    lasting = []
    for (agent_key, source, dimension, judge), (after, before) in fallen.items():
        agent, where = agents.get(agent_key), GateSession.Source(str(source)).label
        lasting.append(about := f"{agent_key} {source} {dimension} {judge}")
        raise_alert(
            kind=AlertKind.GATE_PASS_RATE,
            about=about,
            title=f"{_share(after)} of {agent.display_name if agent else 'an agent'}'s messages of the last day passed {dimension}, "
            f"{_share(before)} in the week before ({where}; judge {judge})",
            agent=agent,
            page=agent,
            lasts=True,
        )
    end_alerts(kind=AlertKind.GATE_PASS_RATE, still=lasting)
    return len(lasting)


def _share(counts: Counter[str]) -> str:
    passed = counts["scored"] - counts["failed"]
    return f"{100 * passed / counts['scored']:.0f} % ({passed} of {counts['scored']})"


def _fell(before: Counter[str], after: Counter[str]) -> bool:
    """Whether the share that passed fell by at least `LEAST_FALL`, and Newcombe's interval of the difference is clear of 0."""
    n, m = before["scored"], after["scored"]
    if min(n, m) < LEAST:
        return False
    passed, passes = n - before["failed"], m - after["failed"]
    fall, low, high = passed / n - passes / m, wilson_interval(passed, n, z=Z)[0], wilson_interval(passes, m, z=Z)[1]
    return fall >= LEAST_FALL and fall > hypot(passed / n - low, high - passes / m)
