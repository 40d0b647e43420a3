"""How well a score tells two kinds of things apart."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.statistics.bootstrap import Estimate
from evaluation.statistics.separation import Stratum, area_of

Scores = tuple[list[float], list[float]]
SCORES = st.lists(st.sampled_from([0.0, 1.0, 4.5, 8.0, 9.0]), min_size=5, max_size=12)
STRATA = st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=4)


def area_under_curve(strata: Sequence[Scores]) -> Estimate:
    """The area of scores of the first and of the second kind, per stratum."""
    rows = []
    for first, ordered in ((first, sorted(second)) for first, second in strata):
        wins = sum(bisect_left(ordered, x) + bisect_right(ordered, x) for x in first) / 2
        rows.append(Stratum(len(first), len(ordered), len(first) * len(ordered), wins))
    return area_of(rows)


@given(STRATA)
def test_it_is_the_share_of_pairs_in_order(strata: list[Scores]) -> None:
    pairs = [(a > b) + (a == b) / 2 for first, second in strata for a in first for b in second]

    result = area_under_curve(strata)

    assert result.value == pytest.approx(sum(pairs) / len(pairs))
    assert result.interval is not None
    assert result.value is not None
    assert 0 <= result.interval.low <= result.value <= result.interval.high <= 1
    assert result.interval.low < result.interval.high, "the best and the worst separation are not sure either"


def test_strata_that_score_high_for_both_kinds_do_not_pass_as_separation() -> None:
    strata: list[Scores] = [([9.0] * 6, [9.0] * 6), ([2.0] * 6, [2.0] * 6)]

    assert area_under_curve(strata).value == 0.5


@pytest.mark.parametrize("strata", [[], [([9.0] * 4, [0.0] * 9)], [([9.0] * 9, []), ([], [0.0] * 9)]])
def test_too_few_scores_give_no_figure_and_say_so(strata: list[Scores]) -> None:
    result = area_under_curve(strata)

    assert (result.value, result.interval) == (None, None)
    assert "at least 5" in result.reason


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_the_interval_holds_the_true_area_some_95_times_of_100(shift: float) -> None:
    rng = random.Random(7)

    def drawn(mean: float, n: int) -> list[float]:
        return [min(9, max(0, round(5 + 2 * rng.gauss(mean, 1)))) for _ in range(n)]

    truth = area_under_curve([(drawn(shift, 8_000), drawn(0, 8_000))]).value
    results = [area_under_curve([(drawn(shift, 10), drawn(0, 10)) for _ in range(4)]) for _ in range(300)]
    held = [r.interval.low <= truth <= r.interval.high for r in results if r.interval is not None and truth is not None]

    assert len(held) == 300
    assert sum(held) >= 276
