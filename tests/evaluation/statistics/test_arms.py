"""Two arms of an experiment: textbook figures, and environments that are taken as wholes."""

from __future__ import annotations

import math
from collections.abc import Hashable
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from evaluation.statistics.arms import (
    detectable,
    detectable_d,
    effect,
    environments_needed,
    intraclass,
    pairs_for_a_verdict,
    pairs_needed,
    permutation_p,
    power,
    welch,
)

RNG = np.random.default_rng


def played(
    seed: int, environments: int, agents: int = 4, *, alike: float = 0.3, higher: float = 0.0
) -> dict[Hashable, list[float]]:
    """Scores of variance 1 in environments, alike to that degree."""
    rng = RNG([seed, environments])
    return {
        number: list(higher + rng.normal(0, math.sqrt(alike)) + rng.normal(0, math.sqrt(1 - alike), agents))
        for number in range(environments)
    }


def flat(arm: dict[Hashable, list[float]]) -> list[float]:
    return [score for scores in arm.values() for score in scores]


def test_a_small_example_by_hand() -> None:
    a, b = [6.0, 7.0, 5.0, 8.0], [4.0, 5.0, 5.0, 6.0]

    test = welch(a, b)
    size = effect(a, b)

    assert test is not None
    assert size is not None
    assert (test.t, test.p) == pytest.approx(tuple(stats.ttest_ind(a, b, equal_var=False)))
    assert size.d == pytest.approx(1.5 / math.sqrt((5 / 3 + 2 / 3) / 2))
    assert size.g == pytest.approx(size.d * (1 - 3 / (4 * 6 - 1)), rel=0.01)
    assert size.interval.low < 0 < size.interval.high


@pytest.mark.parametrize(("a", "b"), [([], [1.0, 2.0]), ([1.0], [1.0, 2.0]), ([2.0, 2.0], [2.0, 2.0])])
def test_too_few_scores_or_none_that_vary_give_no_figure(a: list[float], b: list[float]) -> None:
    assert welch(a, b) is None
    assert effect(a, b) is None


def test_only_the_clustered_test_keeps_its_rate_of_false_findings() -> None:
    naive = clustered = 0
    for seed in range(200):
        a, b = played(2 * seed, 24), played(2 * seed + 1, 24)
        test, p = welch(flat(a), flat(b)), permutation_p(a, b, seed=seed)
        assert test is not None
        assert p is not None
        naive, clustered = naive + (test.p < 0.05), clustered + (p < 0.05)

    assert naive > 20
    assert 5 <= clustered <= 18


def test_the_number_of_environments_gives_the_promised_power() -> None:
    between = math.sqrt(2 * (0.3 + 0.7 / 4))  # of the differences of two arms
    change = 0.8 * between
    needed = environments_needed(change, played(1, 1_000), played(2, 1_000))
    assert needed is not None
    assert needed == pytest.approx(15, abs=2)

    seen = 0
    for seed in range(300):
        a, b = played(2 * seed, needed, higher=change), played(2 * seed + 1, needed)
        p = permutation_p(a, b, seed=seed)
        seen += p is not None and p < 0.05

    assert seen / 300 >= 0.75  # 0.8, and the chance of 300


@pytest.mark.parametrize(
    ("d", "pairs", "comparisons", "rare"), [(0.6, 24, 1, 499), (0.8, 24, 5, 99), (1.0, 13, 1, 204)]
)
def test_power_is_that_of_the_t_test(d: float, pairs: int, comparisons: int, rare: int) -> None:
    ways = 10_000 if pairs > 13 else 2 ** (pairs - 1)
    limit = stats.t.isf(rare / ways / 2, pairs - 1)

    assert power(d, pairs, comparisons) == pytest.approx(stats.nct.sf(limit, pairs - 1, d * math.sqrt(pairs)))


def test_power_where_every_pair_must_agree_is_the_chance_that_they_do() -> None:
    for pairs, comparisons in ((6, 1), (7, 2), (8, 5)):
        d = detectable_d(pairs, comparisons)
        assert d is not None
        assert stats.norm.cdf(d) ** pairs == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(
    ("comparisons", "fewest", "of_one_deviation"), [(1, 6, 11), (2, 7, 13), (3, 7, 14), (5, 8, 16)]
)
def test_more_comparisons_take_more_pairs(comparisons: int, fewest: int, of_one_deviation: int) -> None:
    assert pairs_for_a_verdict(comparisons) == fewest
    assert power(20.0, fewest - 1, comparisons) == 0.0
    assert detectable_d(fewest - 1, comparisons) is None
    assert pairs_needed(1.0, comparisons) == of_one_deviation
    assert pairs_needed(20.0, comparisons) == fewest
    assert pairs_needed(1e-6, comparisons) is None


def test_few_environments_are_gone_through_and_fewer_than_three_say_nothing() -> None:
    a = {n: [8.0, 8.0] for n in range(3)}
    b = {n: [2.0, 2.0] for n in range(3)}

    assert permutation_p(a, b) == pytest.approx(2 / 8)
    assert permutation_p({0: [8.0], 1: [8.0]}, b) is None


def test_pairs_see_what_differences_between_environments_hide() -> None:
    a, b = played(1, 20, alike=0.95, higher=0.5), played(1, 20, alike=0.95)
    noise = RNG(3)
    a = {number: [score + noise.normal(0, 0.2) for score in scores] for number, scores in a.items()}

    paired = permutation_p(a, b)
    apart = stats.ttest_ind([fmean(scores) for scores in a.values()], [fmean(scores) for scores in b.values()]).pvalue
    assert paired is not None
    assert paired < 0.01 < apart
    smallest = detectable(a, b)
    assert smallest is not None
    assert smallest < 0.2


@pytest.mark.parametrize(("alike", "low", "high"), [(0.0, -0.1, 0.1), (0.3, 0.2, 0.4), (0.9, 0.85, 0.95)])
def test_how_alike_scores_of_one_environment_are_is_estimated(alike: float, low: float, high: float) -> None:
    estimated = intraclass(played(5, 300, alike=alike), played(6, 300, alike=alike, higher=3.0))

    assert estimated is not None
    assert low <= estimated <= high
    assert intraclass({1: [3.0], 2: [4.0]}) is None
