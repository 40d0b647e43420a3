"""How often the interval holds the true change: simulations with fixed seeds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from scipy import stats

from evaluation.change.comparison import compare
from evaluation.change.measurements import Measurement
from evaluation.statistics.bootstrap import Observation, bootstrap_difference
from tests.evaluation.comparison.sides import adherence, of, only, side

TRIALS = 150
OFF_BY_CHANCE = 3 * (0.95 * 0.05 / TRIALS) ** 0.5  # three standard errors of a share of 95 %


def share_covered(make: Callable[[random.Random], tuple[Measurement, Measurement]], true_change: float) -> float:
    rng, held = random.Random(2), 0
    for _ in range(TRIALS):
        interval = only(compare(*make(rng), propositions=False)).interval
        assert interval is not None
        held += interval.low <= true_change <= interval.high
    return held / TRIALS


def noisy(rng: random.Random, mean: float, first: int, *, messages: int, repeats: int = 1) -> Measurement:
    """Three propositions on each message; the mean of noisy repeats; what is good in one is good in the others."""
    rows: dict[str, list[Observation]] = {"a": [], "b": [], "c": []}
    for message in range(first, first + messages):
        good = rng.gauss(mean, 1)
        for name, weight in (("a", 1.0), ("b", 2.0), ("c", 0.5)):
            value = sum(good + rng.gauss(0, 1) for _ in range(repeats)) / repeats
            rows[name].append(Observation(value, weight, f"message:{message}"))
    return side({"adherence": rows})


def test_one_score_per_message_gives_nearly_students_interval() -> None:
    before, now = [8.0, 9, 6, 7, 9, 8, 5, 9, 7, 8] * 5, [6.0, 7, 5, 9, 4, 8] * 8

    interval = only(compare(adherence(before), adherence(now, first=1000))).interval

    assert interval is not None
    expected = stats.ttest_ind(now, before, equal_var=False).confidence_interval()
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=0.06)


@pytest.mark.parametrize(("messages", "repeats"), [(12, 1), (12, 3), (30, 1)])
def test_scores_of_one_message_belong_together(messages: int, repeats: int) -> None:
    """95 % intervals (94.7 % in 4,500 trials); were each score counted alone, three times as many would give some 75 %."""

    def make(rng: random.Random) -> tuple[Measurement, Measurement]:
        return (
            noisy(rng, 6.0, 0, messages=messages, repeats=repeats),
            noisy(rng, 5.0, 1000, messages=messages, repeats=repeats),
        )

    assert share_covered(make, -1.0) == pytest.approx(0.95, abs=OFF_BY_CHANCE)


def test_pairs_of_situations_that_differ_widely() -> None:
    def make(rng: random.Random) -> tuple[Measurement, Measurement]:
        hard = [rng.gauss(5, 3) for _ in range(10)]
        simulated = [[s + shift + rng.gauss(0, 1) for s in hard] for shift in (0.0, -1.0)]
        return tuple(side({"adherence": {"voice": of(scores, unit="situation")}}) for scores in simulated)  # type: ignore[return-value]

    assert share_covered(make, -1.0) == pytest.approx(0.95, abs=OFF_BY_CHANCE)


def test_an_improvement_and_a_fall_are_judged_alike() -> None:
    rng = random.Random(3)
    for _ in range(10):
        before, now = noisy(rng, 6, 0, messages=10), noisy(rng, 5, 1000, messages=14)
        there, back = only(compare(before, now)), only(compare(now, before))

        assert there.delta == pytest.approx(-(back.delta or 0))
        assert there.p_value == pytest.approx(back.p_value)
        assert (there.verdict == "drifted") == (back.verdict == "drifted")


def test_many_messages_are_not_resampled_and_give_the_same_interval() -> None:
    rng = random.Random(4)
    before, now = ([float(rng.choice([2, 7, 8, 9])) for _ in range(250)] for _ in range(2))

    found = only(compare(adherence(before), adherence(now, first=1000))).interval
    resampled = bootstrap_difference(of(before), of(now, first=1000)).interval

    assert found is not None
    assert resampled is not None
    assert (found.low, found.high) == pytest.approx((resampled.low, resampled.high), abs=0.05)
