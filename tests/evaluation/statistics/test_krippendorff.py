"""Krippendorff's alpha: the examples of his own paper, the definition by pairs, and what must not change it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics.krippendorff import Metric, krippendorff_alpha

Rating = int | None
Items = list[list[Rating]]
N = None
# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), section C: four observers, twelve units.
FOUR_OBSERVERS: list[list[Rating]] = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, N, N, N],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, N, 3],
    [N, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, N],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, N],
]
TWELVE_UNITS: Items = [list(unit) for unit in zip(*FOUR_OBSERVERS, strict=True)]
METRICS: tuple[Metric, ...] = ("nominal", "ordinal", "interval")
ITEMS = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=4), max_size=12)


def alpha_by_pairs(items: Items, metric: Metric) -> float | None:
    """The definition, pair by pair."""
    units = [[r for r in unit if r is not None] for unit in items]
    units = [unit for unit in units if len(unit) > 1]
    ratings = [r for unit in units for r in unit]
    counts = Counter(ratings)

    def difference(a: int, b: int) -> float:
        if metric == "nominal":
            return float(a != b)
        if metric == "interval":
            return float((a - b) ** 2)
        low, high = min(a, b), max(a, b)
        between = sum(n for value, n in counts.items() if low <= value <= high)
        return float((between - (counts[low] + counts[high]) / 2) ** 2) if a != b else 0.0

    def disagreement(values: list[int]) -> float:
        times = Counter(values)
        return sum(times[a] * times[b] * difference(a, b) for a in times for b in times if a != b)

    if len(units) < 2 or len(counts) < 2:
        return None
    observed = sum(disagreement(unit) / (len(unit) - 1) for unit in units) / len(ratings)
    return 1 - observed / (disagreement(ratings) / (len(ratings) * (len(ratings) - 1)))


@pytest.mark.parametrize(("metric", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_four_observers_and_twelve_units(metric: Metric, published: float) -> None:
    estimate = krippendorff_alpha(TWELVE_UNITS, metric)

    assert estimate.value == pytest.approx(published, abs=5e-4)
    assert estimate.n == 11  # the twelfth unit has one rating and pairs with nothing


@pytest.mark.parametrize(
    ("first", "second", "published"),
    [
        ([0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0], 0.095),
        ([*map(ord, "aabbdcccedda")], [*map(ord, "babbbccceddd")], 0.692),
    ],
    ids=["section A", "section B"],
)
def test_alpha_of_two_observers_and_nominal_data(first: list[int], second: list[int], published: float) -> None:
    items = [list(pair) for pair in zip(first, second, strict=True)]

    assert krippendorff_alpha(items, "nominal").value == pytest.approx(published, abs=5e-4)


@given(ITEMS, st.sampled_from(METRICS))
def test_alpha_is_what_its_definition_says(items: Items, metric: Metric) -> None:
    expected = alpha_by_pairs(items, metric)

    value = krippendorff_alpha(items, metric, resamples=100).value

    assert value is None if expected is None else value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("metric", METRICS)
def test_the_interval_is_that_of_scipys_percentile_bootstrap_over_items(metric: Metric) -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 6, 40)
    items: Items = [[int(np.clip(t + rng.integers(-1, 2), 0, 5)) for _ in range(3)] for t in truth]

    def alpha(index: Any) -> float:
        return alpha_by_pairs([items[int(i)] for i in index], metric) or 0.0

    interval = krippendorff_alpha(items, metric, seed=1).interval
    reference = stats.bootstrap(
        (np.arange(40),), alpha, vectorized=False, method="percentile", n_resamples=500, rng=1
    ).confidence_interval

    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((reference.low, reference.high), abs=0.05)


@given(ITEMS, st.sampled_from(METRICS), st.randoms(use_true_random=False))
def test_who_rated_and_in_which_order_changes_neither_value_nor_interval(
    items: Items, metric: Metric, random: Any
) -> None:
    shuffled = [random.sample(unit, len(unit)) for unit in random.sample(items, len(items))]

    assert krippendorff_alpha(shuffled, metric, resamples=100) == krippendorff_alpha(items, metric, resamples=100)


@pytest.mark.parametrize(
    ("metric", "relabel", "same"),
    [
        ("nominal", lambda r: {0: 5, 1: 3, 2: 9, 3: 0, 4: 1, 5: 7}[r], True),
        ("ordinal", lambda r: r**3, True),
        ("ordinal", lambda r: {0: 5, 1: 3, 2: 9, 3: 0, 4: 1, 5: 7}[r], False),
        ("interval", lambda r: 3 * r + 7, True),
        ("interval", lambda r: r**3, False),
    ],
)
def test_each_metric_sees_what_its_scale_means_and_no_more(
    metric: Metric, relabel: Callable[[int], int], same: bool
) -> None:
    relabelled = [[None if r is None else relabel(r) for r in unit] for unit in TWELVE_UNITS]
    before, after = krippendorff_alpha(TWELVE_UNITS, metric).value, krippendorff_alpha(relabelled, metric).value

    assert (after == pytest.approx(before)) is same


def test_missing_ratings_are_as_if_never_asked() -> None:
    short = [[r for r in unit if r is not None] for unit in TWELVE_UNITS]

    assert krippendorff_alpha(short) == krippendorff_alpha(TWELVE_UNITS)


@pytest.mark.parametrize(
    ("items", "n", "reason"),
    [
        ([], 0, "0 items with two ratings or more"),
        ([[1, 2], [3, None]], 1, "1 items with two ratings or more"),
        ([[4, 4], [4, 4, None]], 2, "all ratings are the same"),
    ],
)
def test_too_little_to_agree_about_has_no_alpha(items: Items, n: int, reason: str) -> None:
    estimate = krippendorff_alpha(items)

    assert (estimate.value, estimate.interval, estimate.n) == (None, None, n)
    assert reason in estimate.reason


def test_perfect_agreement_has_a_value_but_no_claim_of_certainty() -> None:
    estimate = krippendorff_alpha([[1, 1], [5, 5], [3, 3]])

    assert estimate.value == pytest.approx(1)
    assert estimate.interval is None


def test_an_unknown_metric_and_a_rating_that_is_no_number_are_named() -> None:
    with pytest.raises(ValueError, match="metric is 'ratio'; allowed: nominal, ordinal, interval"):
        krippendorff_alpha(TWELVE_UNITS, "ratio")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="item 2: number 1 is nan"):
        krippendorff_alpha([[1, 2], [float("nan"), 2]])
