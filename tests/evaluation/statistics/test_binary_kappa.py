"""Kappa of two raters who say yes or no: textbook values, and an interval that perfect agreement has, too."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evaluation.statistics.agreement import TwoByTwo, binary_kappa


@pytest.mark.parametrize(
    ("table", "kappa"),
    [
        (TwoByTwo(20, 5, 10, 15), 0.4),  # Wikipedia, "Cohen's kappa", the first example
        (TwoByTwo(45, 15, 25, 15), 0.1304),  # and two more with as much agreement
        (TwoByTwo(25, 35, 5, 35), 0.2593),
        (TwoByTwo(24, 0, 0, 15), 1.0),
        (TwoByTwo(10, 0, 3, 47), 0.8392857142857142),  # as printed by tau2-bench
    ],
)
def test_kappa_of_yes_and_no_is_the_textbooks_with_an_interval(table: TwoByTwo, kappa: float) -> None:
    estimate = binary_kappa(table)

    assert estimate.value == pytest.approx(kappa, abs=5e-5)
    assert estimate.interval is not None
    assert estimate.interval.low < estimate.interval.high <= 1
    assert estimate.interval.low < kappa <= estimate.interval.high


def test_more_items_in_perfect_agreement_are_surer() -> None:
    lows = []
    for times in (1, 2, 4, 100):
        interval = binary_kappa(TwoByTwo(5 * times, 0, 0, 5 * times)).interval
        assert interval is not None
        lows.append(interval.low)

    assert lows == sorted(lows)
    assert lows[0] < 0.6
    assert lows[-1] > 0.97


@pytest.mark.parametrize("table", [TwoByTwo(0, 0, 0, 0), TwoByTwo(9, 0, 0, 0), TwoByTwo(0, 0, 0, 9)])
def test_kappa_of_one_answer_throughout_is_undefined(table: TwoByTwo) -> None:
    assert binary_kappa(table).value is None


@given(st.builds(TwoByTwo, *[st.integers(0, 60)] * 4))
def test_the_interval_of_kappa_holds_its_value_whatever_the_table(table: TwoByTwo) -> None:
    estimate = binary_kappa(table)
    assume(estimate.value is not None)
    assert estimate.value is not None
    assert estimate.interval is not None
    assert -1 <= estimate.interval.low <= estimate.value <= estimate.interval.high <= 1
