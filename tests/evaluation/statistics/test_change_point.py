"""Drops in a series of scores: how often an alarm is false, and how soon a true drop is found."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics.change_point import Point, alarm_threshold, apart, find_drops, mean_run_length

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


def daily(*scores: float, error: float | None = None) -> list[Point]:
    return [Point(START + day * DAY, score, error) for day, score in enumerate(scores)]


# -- simulated agents: whole scores of 0 to 9, as a judge gives them
def even(rng: np.random.Generator, day: int, drop: float) -> Point:
    """20 messages every day, symmetric scores."""
    scores = np.clip(np.round(rng.normal(6.5 - drop, 1.7, 20)), 0, 9)
    return Point(START + day * DAY, float(scores.mean()), float(scores.std(ddof=1)) / math.sqrt(20))


def uneven(rng: np.random.Generator, day: int, drop: float) -> Point | None:
    """5 to 30 messages, skewed towards 9, at odd times, every fifth evaluation missing."""
    if rng.random() < 0.2:
        return None
    count = int(rng.integers(5, 31))
    scores = np.clip(np.round(9 - rng.gamma(1.2, (2 + drop) / 1.2, count)), 0, 9)
    time = START + (day + rng.uniform(-0.2, 0.2)) * DAY
    return Point(time, float(scores.mean()), float(scores.std(ddof=1)) / math.sqrt(count))


def moody(rng: np.random.Generator, day: int, drop: float) -> Point:
    """As `even`, with days that are better and worse by 0.3 points beyond what the errors say."""
    return even(rng, day, drop + rng.normal(0, 0.3))


def lopsided(rng: np.random.Generator, day: int, drop: float) -> Point:
    """Days that are better and worse by 0.6 points, measured now by 4 messages and now by 400."""
    count = (4, 400)[day % 2]
    scores = rng.normal(6 - drop + rng.normal(0, 0.6), 1.7, count)
    return Point(START + day * DAY, float(scores.mean()), 1.7 / math.sqrt(count))


def unknown_errors(rng: np.random.Generator, day: int, drop: float) -> Point:
    point = even(rng, day, drop)
    return Point(point.time, point.score)


Simulator = Callable[[np.random.Generator, int, float], Point | None]


def series(
    simulate: Simulator, rng: np.random.Generator, days: int, *, drop: float = 0.0, since: int = 10**6
) -> list[Point]:
    points = [simulate(rng, day, drop if day >= since else 0.0) for day in range(days)]
    return [point for point in points if point is not None]


# -- false alarms
@pytest.mark.parametrize("simulate", [uneven, lopsided, unknown_errors])
def test_forty_agents_raise_at_most_three_false_alarms_in_ninety_days(simulate: Simulator) -> None:
    rng = np.random.default_rng(11)
    quarters = 8 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 2  # `make fuzz` looks longer

    alarms = sum(
        len(find_drops(series(simulate, rng, 90), every=DAY).alarms) for _ in range(quarters) for _agent in range(40)
    )

    assert alarms / quarters <= 3
    assert alarms > 0 or quarters < 8  # a test that never alarms would detect nothing; two quarters may have none


# Montgomery, "Introduction to Statistical Quality Control", table of two-sided CUSUMs with k = 0.5: ARL 168 at h = 4, 465 at h = 5;
# a one-sided chart runs twice as long.
@pytest.mark.parametrize(("threshold", "published"), [(4, 2 * 168), (5, 2 * 465)])
def test_run_lengths_are_those_of_published_tables(threshold: float, published: float) -> None:
    assert mean_run_length(threshold) == pytest.approx(published, rel=0.02)


def test_the_threshold_keeps_the_promised_rate() -> None:
    daily_threshold = alarm_threshold(every=DAY, series=40)

    assert mean_run_length(daily_threshold) == pytest.approx(1.5 * 40 * 30, rel=1e-6)
    assert alarm_threshold(every=DAY / 4, series=10) == pytest.approx(daily_threshold)


def test_an_evaluation_counts_as_its_t_statistic_against_those_before() -> None:
    past, last = [7.0, 6.4, 8.1, 7.3, 6.9, 7.7, 6.2, 7.4], 5.5
    prediction_error = np.std(past, ddof=1) * math.sqrt(1 + 1 / len(past))
    tail = stats.t.cdf((last - np.mean(past)) / prediction_error, len(past) - 1)

    scan = find_drops(daily(*past, last), every=DAY)

    assert scan.statistic == pytest.approx(-stats.norm.ppf(tail) - 0.5)


# -- true drops
@pytest.mark.parametrize(("simulate", "at_most"), [(uneven, 12), (moody, 8)])
def test_a_drop_of_one_point_is_found_within_days(simulate: Simulator, at_most: int) -> None:
    rng = np.random.default_rng(13)
    delays: list[float] = []
    onsets: list[float] = []
    for _agent in range(60):
        points = series(simulate, rng, 70, drop=1, since=30)
        found = [a for a in find_drops(points, every=DAY).alarms if points[a.index].time >= START + 29.5 * DAY]
        delays.append((points[found[0].index].time - START) / DAY - 29 if found else math.inf)
        onsets.extend((points[a.onset].time - START) / DAY for a in found[:1])

    assert median(delays) <= at_most
    assert sum(map(math.isinf, delays)) <= 5  # what it costs to allow for days that hang together
    assert abs(median(onsets) - 30) <= 2


def test_an_alarm_says_since_when_and_how_much() -> None:
    before, after = [7.0, 7.2, 6.9, 7.1, 7.0, 6.8, 7.1, 7.0, 6.9, 7.2], [5.9, 6.1, 6.0, 5.9]

    scan = find_drops(daily(*before, *after, error=0.2), every=DAY)

    (alarm,) = scan.alarms
    assert alarm.onset == 10
    assert alarm.index <= 12
    assert alarm.before == pytest.approx(7.02)
    assert alarm.after - alarm.before == pytest.approx(-1, abs=0.2)


AT_5, AT_7, AT_3 = [5.0, 5.2, 4.9, 5.1], [7.0, 7.2, 6.9, 7.1], [3.0, 3.2, 2.9, 3.1]


@pytest.mark.parametrize(
    ("scores", "onsets"),
    [
        (AT_7 * 5 + AT_5 * 10, [20]),
        (AT_7 * 5 + AT_5 * 5 + AT_3 * 3, [20, 40]),
        (AT_5 * 5 + AT_7 * 5, []),
    ],
    ids=["one drop", "two drops", "a rise"],
)
def test_each_drop_is_one_alarm_since_it_began(scores: list[float], onsets: list[int]) -> None:
    assert [alarm.onset for alarm in find_drops(daily(*scores), every=DAY).alarms] == onsets


def test_a_sure_but_small_drop_is_no_alarm() -> None:
    small = daily(*[7.0, 7.1, 6.9, 7.0] * 6, *[6.7, 6.8, 6.6, 6.7] * 6, error=0.05)

    assert find_drops(small, every=DAY).alarms == ()
    assert len(find_drops(small, every=DAY, limit=0.2).alarms) == 1


def test_scores_that_never_moved_may_move_by_a_trifle() -> None:
    assert find_drops(daily(*[9.0] * 20, 8.95), every=DAY).statistic < 1
    assert len(find_drops(daily(*[9.0] * 20, 8.0, 8.0), every=DAY).alarms) == 1


@given(st.lists(st.floats(0, 9), max_size=30))
def test_what_was_found_stays_found_when_more_is_known(scores: list[float]) -> None:
    whole = find_drops(daily(*scores, error=0.3), every=DAY).alarms
    half = len(scores) // 2
    first_half = find_drops(daily(*scores[:half], error=0.3), every=DAY).alarms

    assert first_half == tuple(alarm for alarm in whole if alarm.index < half)


# -- the edges
@pytest.mark.parametrize("count", [0, 1, 8])
def test_too_few_evaluations_say_so(count: int) -> None:
    scan = find_drops(daily(*[7.0] * count), every=DAY)

    assert (scan.alarms, scan.statistic) == ((), 0)
    assert f"{count} evaluation{'s' * (count != 1)}; at least 9" in scan.reason


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (daily(5, 6)[::-1], "not in order of time"),
        (daily(5, math.nan), "scores: number 2 is nan"),
        (daily(5, 6, error=-1), "an error is -1"),
    ],
)
def test_points_that_cannot_be_meant_are_refused(points: list[Point], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_drops(points, every=DAY)


@pytest.mark.parametrize("options", [{"every": timedelta(0)}, {"series": 0}, {"limit": -1}])
def test_an_option_out_of_range_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        find_drops(daily(*[7.0] * 20), **{"every": DAY, **options})  # type: ignore[arg-type]


def test_evaluations_that_look_back_on_the_same_messages_are_thinned() -> None:
    kept = apart(daily(*range(9)), 3 * DAY)

    assert [point.score for point in kept] == [0, 3, 6]
    assert apart([], DAY) == []
