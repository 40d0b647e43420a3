"""How often the drift test alarms without cause, and how late with: simulated message scores through the test that schedules use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING

from evaluation.drift.points import ratio_error
from evaluation.drift.series import AGENTS, drops_in
from evaluation.statistics.change_point import DAYS_PER_MONTH, FALSE_ALARMS_PER_MONTH, Point

if TYPE_CHECKING:
    import numpy as np

    from evaluation.statistics.estimates import Floats

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
DROP_ON_DAY = 30
BETWEEN_MESSAGES, WITHIN_MESSAGE = 1.5, 0.8  # standard deviations in points


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What is simulated.

    Attributes:
        days: Days of one history, measured once a day; at least 9.
        agents: Agents, each with its own mean score, 4 to 8.
        dimensions: Series per agent.
        messages: Messages judged per evaluation, with three propositions each; a third of the days has half as many.
        day_effect: Standard deviation of what makes one day better than another, beyond its messages, in points.
        carry_over: Correlation of a day's effect with that of the day before, 0 to below 1.
        limit: Least drop that alarms, in points.
        histories: How often the whole is repeated.
        seed: Equal seeds give equal numbers.
    """

    days: int = 90
    agents: int = AGENTS
    dimensions: int = 2
    messages: int = 20
    day_effect: float = 0.2
    carry_over: float = 0.0
    limit: float = 0.8
    histories: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("days", 9), ("agents", 1), ("dimensions", 1), ("messages", 2), ("histories", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: at least {least}")
        if not self.day_effect >= 0 or not 0 <= self.carry_over < 1:
            raise ValueError(
                f"day_effect is {self.day_effect}, carry_over is {self.carry_over}; allowed: 0 or more, 0 to below 1"
            )
        if not 0 < self.limit <= 9:
            raise ValueError(f"limit is {self.limit}; allowed: above 0, up to 9")


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseAlarms:
    """Of histories in which nothing changed: alarms in all, and per month of all agents; `allowed` is what is promised."""

    alarms: int
    per_month: float
    worst_history: int
    allowed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Of series that drop on day 30: the share found at all by the last day, and days to the alarm (1: the first evaluation).

    Attributes:
        half: Median over all series; None when fewer than half were found.
        most: Days in which nine of ten were found; None when fewer were.
    """

    drop: float
    series: int
    found: float
    half: float | None
    most: float | None


def false_alarms(assumed: Assumed) -> FalseAlarms:
    """Count the alarms of histories in which nothing changes."""
    import numpy as np

    rng = np.random.default_rng(assumed.seed)
    per_history = [
        sum(_alarms(assumed, rng) for _ in range(assumed.agents * assumed.dimensions)) for _ in range(assumed.histories)
    ]
    months = assumed.histories * assumed.days / DAYS_PER_MONTH
    alarms = sum(per_history)
    return FalseAlarms(
        alarms=alarms,
        per_month=alarms / months,
        worst_history=max(per_history),
        allowed=FALSE_ALARMS_PER_MONTH,
    )


def delay(assumed: Assumed, drop: float, *, series: int = 200) -> Delay:
    """Measure how long a drop of so many points goes unnoticed.

    Raises:
        ValueError: The drop is not above 0, or the histories end before it.
    """
    import numpy as np

    if not (math.isfinite(drop) and drop > 0):
        raise ValueError(f"drop is {drop}; allowed: above 0")
    if assumed.days <= DROP_ON_DAY:
        raise ValueError(f"days is {assumed.days}; the drop is on day {DROP_ON_DAY}, allowed: more than that")
    rng = np.random.default_rng([assumed.seed, 1])
    waits = [_wait(assumed, rng, drop) for _ in range(series)]
    found = sorted(waits)
    half, most = median(found), found[math.ceil(0.9 * series) - 1]
    return Delay(
        drop=drop,
        series=series,
        found=sum(map(math.isfinite, waits)) / series,
        half=half if math.isfinite(half) else None,
        most=most if math.isfinite(most) else None,
    )


def _alarms(assumed: Assumed, rng: np.random.Generator) -> int:
    return len(_drops(assumed, rng, 0.0))


def _wait(assumed: Assumed, rng: np.random.Generator, drop: float) -> float:
    """Days from the drop to the first alarm after it; infinite when there is none."""
    noticed = [(time - START) // DAY - DROP_ON_DAY + 1 for time in _drops(assumed, rng, drop)]
    return min((days for days in noticed if days > 0), default=math.inf)


def _drops(assumed: Assumed, rng: np.random.Generator, drop: float) -> list[datetime]:
    series = max(AGENTS, assumed.agents) * assumed.dimensions
    alarms, _ = drops_in(_history(assumed, rng, drop), every=DAY, series=series, limit=assumed.limit)
    return [alarm.time for alarm in alarms]


def _history(assumed: Assumed, rng: np.random.Generator, drop: float) -> list[Point]:
    """Days of one series. Scores are whole numbers from 0 to 9, three propositions a message."""
    mean, effect = rng.uniform(4, 8), 0.0
    points = []
    for day in range(assumed.days):
        fresh = rng.normal(0, assumed.day_effect * math.sqrt(1 - assumed.carry_over**2))
        effect = fresh + assumed.carry_over * effect if day else rng.normal(0, assumed.day_effect)
        count = max(2, assumed.messages // 2) if day % 3 == 2 else assumed.messages
        message = rng.normal(mean + effect - (drop if day >= DROP_ON_DAY else 0), BETWEEN_MESSAGES, (count, 1))
        scores = as_judged(message + rng.normal(0, WITHIN_MESSAGE, (count, 3)))
        error = ratio_error([3.0] * count, [float(total) for total in scores.sum(axis=1)])
        points.append(Point(START + day * DAY, float(scores.mean()), error))
    return points


def as_judged(scores: Floats) -> Floats:
    """As a judge scores: whole numbers, 0 to 9."""
    import numpy as np

    return np.clip(np.rint(scores), 0, 9)
