"""The rate of false alarms that is promised, and how late a real fall is noticed: on simulated days, through the schedules' own test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.drift_alarms import Assumed, delay, false_alarms, per_month

pytestmark = pytest.mark.slow
QUARTERS = Assumed(days=90, agents=40, dimensions=2, histories=3, seed=11)


def test_forty_agents_raise_one_false_alarm_a_month_at_most() -> None:
    found = false_alarms(QUARTERS)

    assert per_month(QUARTERS, found) <= 1
    assert max(found) <= 3


def test_the_rate_holds_at_the_least_limit() -> None:
    least = replace(QUARTERS, limit=0.1)

    assert 0 < per_month(least, false_alarms(least)) <= 1  # a test that never alarms would detect nothing


def test_days_that_hang_together_somewhat_keep_near_the_promise() -> None:
    together = replace(QUARTERS, limit=0.5, day_effect=0.3, carry_over=0.5)

    assert per_month(together, false_alarms(together)) <= 1.5


def test_days_that_depend_on_each_other_break_the_assumption_and_it_shows() -> None:
    together = replace(QUARTERS, limit=0.1, day_effect=0.4, carry_over=0.7, histories=1)

    assert per_month(together, false_alarms(together)) > 1


@pytest.mark.parametrize(("drop", "half", "most"), [(1, 7, 30), (2, 3, 5)])
def test_a_fall_is_noticed_within_days(drop: float, half: float, most: float) -> None:
    found = delay(QUARTERS, drop, series=60)

    assert (found.detected >= 0.9, found.half <= half, found.most <= most) == (True, True, True), found
