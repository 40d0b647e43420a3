"""Means from a few labels and many judge scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from evaluation.statistics.bootstrap import Estimate
from evaluation.statistics.prediction_powered import _estimate, _tuning, prediction_powered_mean

Floats = NDArray[np.float64]


def judged_data(
    rng: np.random.Generator, *, n: int = 60, rest: int = 600, bias: float = 1.0, noise: float = 0.7
) -> tuple[Floats, Floats, Floats]:
    """Labels of a random sample, and what a biased and noisy judge gave sample and rest; the true mean is 6."""
    truth = rng.normal(6, 2, n + rest)
    judge = truth + bias + rng.normal(0, noise, n + rest)
    return truth[:n], judge[:n], judge[n:]


def powered(
    labels: Sequence[float] | Floats, judged: Sequence[float] | Floats, rest: Sequence[float] | Floats
) -> Estimate:
    return prediction_powered_mean(list(labels), list(judged), list(rest))


def width(result: Estimate) -> float:
    assert result.interval is not None
    return result.interval.high - result.interval.low


def test_without_tuning_it_is_the_formula_of_the_paper() -> None:
    labels, judged, rest = judged_data(np.random.default_rng(0))

    estimate = _estimate(labels, judged, rest, 1.0)

    assert estimate.value == pytest.approx(rest.mean() + (labels - judged).mean())
    error = math.sqrt(rest.var(ddof=1) / rest.size + (labels - judged).var(ddof=1) / labels.size)
    assert estimate.interval is not None
    assert estimate.interval.high - estimate.interval.low == pytest.approx(2 * stats.norm.ppf(0.975) * error)


@pytest.mark.parametrize("noise", [0.3, 2.0, 8.0])
def test_tuning_finds_the_narrowest_interval(noise: float) -> None:
    labels, judged, rest = judged_data(np.random.default_rng(1), n=200, rest=2000, noise=noise)

    def variance(reliance: float) -> float:
        return float(
            reliance**2 * rest.var(ddof=1) / rest.size + (labels - reliance * judged).var(ddof=1) / labels.size
        )

    best = min(np.linspace(0, 1, 1001), key=variance)
    assert variance(_tuning(labels, judged, rest)) <= variance(float(best)) * (1 + 1e-9)


def test_it_keeps_its_coverage_where_the_judge_is_biased() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(200):
        labels, judged, rest = judged_data(rng)
        interval = powered(labels, judged, rest).interval
        assert interval is not None
        assert np.concatenate([judged, rest]).mean() > 6.5
        covered += interval.low <= 6 <= interval.high

    assert 0.92 <= covered / 200 <= 0.98


def test_a_good_judge_narrows_the_interval() -> None:
    rng = np.random.default_rng(3)
    labels, judged, rest = judged_data(rng)
    assert width(powered(labels, judged, rest)) < 0.6 * width(powered(labels, judged, []))
    labels, judged, rest = judged_data(rng)
    assert width(powered(labels, rng.permutation(judged), rest)) < 1.05 * width(powered(labels, judged, []))


@pytest.mark.parametrize("rest", [[], [7.0]])
def test_with_nothing_else_judged_the_labels_stand_alone(rest: list[float]) -> None:
    labels, judged, _ = judged_data(np.random.default_rng(6))

    assert powered(labels, judged, rest) == _estimate(labels, judged, np.array(rest), 0.0)


def test_a_judge_that_never_varies_is_not_relied_on() -> None:
    labels, _, _ = judged_data(np.random.default_rng(7))

    assert powered(labels, [7.0] * 60, [7.0] * 500).value == pytest.approx(labels.mean())


def test_equal_labels_do_not_prove_that_all_are_equal() -> None:
    assert width(powered([9] * 50, [9] * 50, [9] * 500)) == pytest.approx(2 * 1.96 / math.sqrt(600), rel=1e-3)


@pytest.mark.parametrize("count", [0, 1, 49])
def test_too_few_labels_give_no_estimate(count: int) -> None:
    result = powered([5] * count, [6] * count, [6] * 100)

    assert (result.value, result.interval) == (None, None)
    assert f"{count} label{'s' * (count != 1)}; at least 50" in result.reason


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="2 labels but 1 judge scores"):
        powered([1, 2], [1], [])
    with pytest.raises(ValueError, match="judged_rest: number 1 is nan"):
        powered([1, 2], [1, 2], [math.nan])
