"""The judge's own noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics.noise import judge_noise, noise_of_mean

REPEATS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=10)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_of_pairs_it_is_the_root_of_half_the_mean_squared_difference(pairs: list[tuple[int, int]]) -> None:
    # Bland & Altman's formula for duplicate measurements
    assert judge_noise(pairs).within_sd == pytest.approx(
        math.sqrt(sum((a - b) ** 2 for a, b in pairs) / len(pairs) / 2)
    )


def test_it_is_the_residual_of_the_analysis_of_variance() -> None:
    groups = [[7, 8, 7], [2, 4], [5, 5, 6, 9]]
    f = stats.f_oneway(*groups).statistic
    grand = np.mean(np.concatenate([np.array(g) for g in groups]))
    between = sum(len(g) * (np.mean(g) - grand) ** 2 for g in groups) / (len(groups) - 1)

    within_sd = judge_noise(groups).within_sd

    assert within_sd is not None
    assert within_sd**2 == pytest.approx(between / f)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    found = [judge_noise(rng.normal(rng.uniform(0, 9), 0.8, 3).tolist() for _ in range(6)).interval for _ in range(400)]
    covered = sum(i is not None and i.low <= 0.8 <= i.high for i in found)

    assert 0.92 <= covered / 400 <= 0.98


def test_the_noise_of_a_mean_is_how_much_it_varies_when_the_same_messages_are_judged_again() -> None:
    rng = np.random.default_rng(6)
    truth, repeats = np.array([2.0, 8, 5, 6]), [1, 2, 3, 6]
    means = [np.mean([rng.normal(t, 0.7, k).mean() for t, k in zip(truth, repeats, strict=True)]) for _ in range(4000)]

    assert noise_of_mean(0.7, repeats) == pytest.approx(float(np.std(means)), rel=0.05)


@given(REPEATS, st.randoms(use_true_random=False))
def test_the_order_of_items_and_repeats_and_each_items_level_change_nothing(
    repeats: list[list[int]], random: object
) -> None:
    moved = [[score + 10 * i for score in random.sample(r, len(r))] for i, r in enumerate(repeats)]  # type: ignore[attr-defined]
    random.shuffle(moved)  # type: ignore[attr-defined]
    before, after = judge_noise(repeats), judge_noise(moved)

    assert (after.items, after.repeated) == (before.items, before.repeated)
    assert (after.within_sd is None) == (before.within_sd is None)
    if before.within_sd is not None:
        assert after.within_sd == pytest.approx(before.within_sd)
        assert after.of_mean == pytest.approx(before.of_mean)


def test_more_repeats_make_the_mean_less_noisy_not_the_judge() -> None:
    few, many = (judge_noise([[4, 6] * k, [7, 9] * k]) for k in (1, 50))

    assert few.of_mean is not None
    assert many.of_mean is not None
    assert many.of_mean < few.of_mean / 9
    assert many.within_sd == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(("repeats", "items"), [([], 0), ([[]], 0), ([[5], [6], []], 2)])
def test_without_repeats_there_is_no_noise_figure(repeats: list[list[int]], items: int) -> None:
    noise = judge_noise(repeats)

    assert (noise.within_sd, noise.interval, noise.of_mean, noise.items) == (None, None, None, items)
    assert "two repeats" in noise.reason


def test_a_judge_that_repeats_itself_exactly_has_none() -> None:
    noise = judge_noise([[5, 5], [8, 8, 8]])

    assert (noise.within_sd, noise.of_mean, noise.repeated) == (0, 0, 2)


@pytest.mark.parametrize(("sd", "repeats"), [(1.0, []), (1.0, [2, 0]), (-1.0, [2]), (math.nan, [2])])
def test_impossible_numbers_are_refused(sd: float, repeats: list[int]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        noise_of_mean(sd, repeats)
