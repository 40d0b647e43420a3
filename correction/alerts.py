"""Notice that the gate's pass rate fell, or that a budget is used up: a chore over the sums of hours."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import hypot

from django.db.models import Case, F, Q, When
from django.utils import timezone

from agents.kit.alerting import AlertKind, end_alerts, raise_alert
from agents.kit.ops.sums import read
from agents.models import Agent
from correction.costs import used_up_today
from correction.gate.statistics import GATE, VERDICTS
from correction.gate.thresholds import wilson_interval
from correction.models import GateSession, synthetic_logs

DAY = timedelta(days=1)
WEEK = timedelta(days=7)
LEAST_MESSAGES = 20  # scored on both sides
LEAST_FALL = 0.2  # of the share that passed
Z_99 = 2.576  # of a two-sided 99 % interval: the rates are compared every two minutes


def check_alerts() -> str:
    """Raise and end alerts of pass rates and budgets; return how many of each last."""
    return f"{_check_budgets()} budgets, {_check_pass_rates(timezone.now())} pass rates"


def _check_budgets() -> int:
    """Raise an alert for each budget that is used up today, end those of other budgets; return how many last.

    The key None stands for the budget of evaluations of channels.
    """
    used_up = used_up_today()
    agents = Agent.objects.in_bulk([key for key in used_up if key is not None])
    for key, budget in used_up.items():
        agent = agents.get(key) if key is not None else None
        whose = agent.display_name if agent is not None else "evaluations of channels"
        raise_alert(
            kind=AlertKind.BUDGET,
            about=str(key),
            title=f"The daily budget of {whose} is used up: ${budget.spent:.2f} of ${budget.cap:.2f}; "
            "checks go on after midnight UTC",
            agent=agent,
            page=agent,
            lasts=True,
        )
    end_alerts(kind=AlertKind.BUDGET, still=map(str, used_up))
    return len(used_up)


@dataclass(frozen=True, slots=True)
class _RateKey:
    """What a pass rate is about; drafts of different sources and scores of different judges are never mixed."""

    agent: int | None
    source: str
    dimension: str
    judge: str

    def __str__(self) -> str:
        return f"{self.agent} {self.source} {self.dimension} {self.judge}"


@dataclass(slots=True)
class _PassRate:
    """First drafts that have a score, and how many of them passed."""

    scored: int = 0
    passed: int = 0

    @property
    def share(self) -> float:
        return self.passed / self.scored

    def __str__(self) -> str:
        return f"{100 * self.share:.0f} % ({self.passed} of {self.scored})"


@dataclass(slots=True)
class _Comparison:
    """The pass rate of the last day, and that of the week before it."""

    day: _PassRate = field(default_factory=_PassRate)
    week: _PassRate = field(default_factory=_PassRate)

    @property
    def has_fallen(self) -> bool:
        """Return whether the rate fell by at least `LEAST_FALL`, and Newcombe's interval of the difference is clear of 0."""
        if min(self.day.scored, self.week.scored) < LEAST_MESSAGES:
            return False
        fall = self.week.share - self.day.share
        low_of_week, _ = wilson_interval(self.week.passed, self.week.scored, z=Z_99)
        _, high_of_day = wilson_interval(self.day.passed, self.day.scored, z=Z_99)
        margin = hypot(self.week.share - low_of_week, high_of_day - self.day.share)
        return fall >= LEAST_FALL and fall > margin


def _check_pass_rates(now: datetime) -> int:
    """Raise an alert for each pass rate that fell from the week before to the last day, end the others; return how many last.

    Messages of one conversation are counted as independent, which they are not quite; so the fall must be large, too.
    """
    fallen = {key: comparison for key, comparison in _compare_pass_rates(now).items() if comparison.has_fallen}
    agents = Agent.objects.in_bulk({key.agent for key in fallen if key.agent is not None})
    for key, comparison in fallen.items():
        agent = agents.get(key.agent) if key.agent is not None else None
        name = agent.display_name if agent is not None else "an agent"
        source = GateSession.Source(key.source).label
        raise_alert(
            kind=AlertKind.GATE_PASS_RATE,
            about=str(key),
            title=f"{comparison.day} of {name}'s messages of the last day passed {key.dimension}, "
            f"{comparison.week} in the week before ({source}; judge {key.judge})",
            agent=agent,
            page=agent,
            lasts=True,
        )
    end_alerts(kind=AlertKind.GATE_PASS_RATE, still=map(str, fallen))
    return len(fallen)


def _compare_pass_rates(now: datetime) -> dict[_RateKey, _Comparison]:
    """Return the pass rates of the first drafts of the last day and of the week before, per agent, source, dimension and judge.

    Of scored first drafts alone, without simulations. The day begins 24 hours before the last full hour.
    """
    day = now.replace(minute=0, second=0, microsecond=0) - DAY
    names = ("agent", "source", "dimension", "judge")
    rows = read(
        GATE,
        VERDICTS,
        start=day - WEEK,
        raw_keys={
            **{name: VERDICTS.keys[name] for name in names},
            "is_of_day": Case(When(log__created_at__gte=day, then=1), default=0),
        },
        keys={**{name: F(name) for name in names}, "is_of_day": Case(When(hour__gte=day, then=1), default=0)},
        raw_where=~synthetic_logs("log__"),
        where=Q(synthetic=False),
    )
    comparisons: dict[_RateKey, _Comparison] = defaultdict(_Comparison)
    for row in rows:
        key = _RateKey(row["k_agent"], str(row["k_source"]), row["k_dimension"], row["k_judge"])
        comparison = comparisons[key]
        rate = comparison.day if row["k_is_of_day"] else comparison.week
        rate.scored += row["s_first_scored"]
        rate.passed += row["s_first_scored"] - row["s_first_failures"]
    return comparisons
