"""The rate of false alarms that is promised, and how late a real fall is noticed: on simulated days, through the schedules' own test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluation.drift.simulation import Assumed, delay, false_alarms

QUARTERS = Assumed(days=90, agents=40, dimensions=2, histories=3, seed=11)


def test_forty_agents_raise_at_most_one_false_alarm_a_month_in_ninety_null_days() -> None:
    found = false_alarms(QUARTERS)

    assert found.per_month <= found.allowed == 1
    assert found.worst_history <= 3


def test_the_rate_holds_at_the_least_limit_too_where_the_test_alone_decides() -> None:
    found = false_alarms(replace(QUARTERS, limit=0.1))

    assert 0 < found.per_month <= 1  # a test that never alarms would detect nothing


def test_days_that_hang_together_break_the_assumption_and_it_shows() -> None:
    together = replace(QUARTERS, limit=0.1, day_effect=0.4, carry_over=0.7, histories=1)

    assert false_alarms(together).per_month > 1


@pytest.mark.parametrize(("drop", "half", "most"), [(1, 7, 30), (2, 3, 5)])
def test_a_fall_is_noticed_within_days(drop: float, half: float, most: float) -> None:
    found = delay(QUARTERS, drop, series=60)

    assert found.found >= 0.9
    assert found.half is not None
    assert found.most is not None
    assert (found.half <= half, found.most <= most) == (True, True), found


def test_equal_seeds_give_equal_numbers() -> None:
    small = Assumed(days=30, agents=5, dimensions=1, histories=2, limit=0.1, seed=3)

    assert false_alarms(small) == false_alarms(small)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"days": 8}, "days is 8; allowed: at least 9"),
        ({"agents": 0}, "agents is 0; allowed: at least 1"),
        ({"carry_over": 1}, "carry_over is 1; allowed: 0 or more, 0 to below 1"),
        ({"limit": 0}, "limit is 0; allowed: above 0, up to 9"),
    ],
)
def test_what_cannot_be_simulated_is_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Assumed(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("drop", [0, -1, float("nan")])
def test_a_delay_is_asked_for_a_fall(drop: float) -> None:
    with pytest.raises(ValueError, match="allowed: above 0"):
        delay(QUARTERS, drop)


def test_a_history_that_ends_before_the_fall_is_refused() -> None:
    with pytest.raises(ValueError, match="days is 20; the drop is on day 30"):
        delay(replace(QUARTERS, days=20), 1)
