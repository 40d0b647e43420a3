"""How often the drift test alarms without cause, and how late with: simulated message scores through the test that schedules use."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING

from evaluation.change.series import AGENTS
from evaluation.statistics.bootstrap import Observation
from evaluation.statistics.change_point import DAYS_PER_MONTH, FALSE_ALARMS_PER_MONTH, Point, find_drops
from evaluation.statistics.difference import error_of

if TYPE_CHECKING:
    import numpy as np

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Of series that drop on day 30: the share detected by the last day, and days to the alarm (1: the first evaluation).

    Attributes:
        half: Median over all series; infinite when fewer than half were detected.
        most: Days in which nine of ten were detected; infinite when fewer were.
    """

    drop: float
    detected: float
    half: float
    most: float


def false_alarms(assumed: Assumed) -> list[int]:
    """The alarms of each history in which nothing changes, over all agents and dimensions."""
    import numpy as np

    rng = np.random.default_rng(assumed.seed)
    series = range(assumed.agents * assumed.dimensions)
    return [sum(len(_drops(assumed, rng, 0.0)) for _ in series) for _ in range(assumed.histories)]


def per_month(assumed: Assumed, alarms: list[int]) -> float:
    return sum(alarms) / (assumed.histories * assumed.days / DAYS_PER_MONTH)


def delay(assumed: Assumed, drop: float, *, series: int = 200) -> Delay:
    """How long a drop of so many points goes unnoticed."""
    import numpy as np

    rng = np.random.default_rng([assumed.seed, 1])
    waits = []
    for _ in range(series):
        noticed = [(time - START) // DAY - DROP_ON_DAY + 1 for time in _drops(assumed, rng, drop)]
        waits.append(min((days for days in noticed if days > 0), default=math.inf))
    waits.sort()
    return Delay(
        drop=drop,
        detected=sum(map(math.isfinite, waits)) / series,
        half=median(waits),
        most=waits[math.ceil(0.9 * series) - 1],
    )


def _drops(assumed: Assumed, rng: np.random.Generator, drop: float) -> list[datetime]:
    """When the test alarms in one series. Scores are whole numbers from 0 to 9, three propositions a message."""
    import numpy as np

    mean, effect = rng.uniform(4, 8), 0.0
    points = []
    for day in range(assumed.days):
        fresh = rng.normal(0, assumed.day_effect * math.sqrt(1 - assumed.carry_over**2))
        effect = fresh + assumed.carry_over * effect if day else rng.normal(0, assumed.day_effect)
        count = max(2, assumed.messages // 2) if day % 3 == 2 else assumed.messages
        message = rng.normal(mean + effect - (drop if day >= DROP_ON_DAY else 0), BETWEEN_MESSAGES, (count, 1))
        scores = np.clip(np.rint(message + rng.normal(0, WITHIN_MESSAGE, (count, 3))), 0, 9)
        error = error_of([Observation(float(total), 3.0, n) for n, total in enumerate(scores.mean(axis=1))])
        points.append(Point(START + day * DAY, float(scores.mean()), error))
    series = max(AGENTS, assumed.agents) * assumed.dimensions
    return [
        points[alarm.index].time for alarm in find_drops(points, every=DAY, series=series, limit=assumed.limit).alarms
    ]


def measure_drift_alarms() -> None:
    assumed = Assumed()
    print(f"Assumed: {asdict(assumed)}")  # noqa: T201
    print(f"Promised: at most {FALSE_ALARMS_PER_MONTH:g} false alarm a month for all agents together")  # noqa: T201
    for day_effect, limit in ((0.2, 0.8), (0.3, 0.5), (0.5, 0.8)):
        for carry_over in (0.0, 0.3, 0.5, 0.8):
            case = replace(assumed, day_effect=day_effect, limit=limit, carry_over=carry_over)
            alarms = false_alarms(case)
            falls = [delay(case, drop) for drop in (1.0, 2.0)]
            print(  # noqa: T201
                f"days differ by {day_effect}, limit {limit}, correlation {carry_over}: {per_month(case, alarms):.2f} false alarms a month",
                flush=True,
            )
            for fall in falls:
                print(  # noqa: T201
                    f"  a fall of {fall.drop:g}: half within {fall.half:g} days, nine of ten within {fall.most:g}, "
                    f"{fall.detected:.0%} at all",
                    flush=True,
                )
